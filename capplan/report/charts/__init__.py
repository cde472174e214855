"""Charts of results as inline SVG."""
