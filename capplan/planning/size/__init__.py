"""The search for the fewest replicas of each configuration."""
