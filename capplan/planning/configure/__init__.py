"""Configurations: GPU type, layout, engine settings and iteration times."""
