"""Serving systems priced against one another."""
