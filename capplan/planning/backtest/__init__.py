"""A fleet that runs against its simulation."""
