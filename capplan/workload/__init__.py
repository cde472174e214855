"""What must be served: traces, arrivals and SLOs."""
