"""What a simulation returns: requests, sums, windows, the fleet over time."""
