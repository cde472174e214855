"""Fit latency profiles to measured iterations, or to the requests of a server."""
