"""A latency profile from the requests that an engine served."""
