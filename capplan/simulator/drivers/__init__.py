"""Who drives the replicas: one file for each source of requests."""
