"""A plan under other days, engines and lengths."""
