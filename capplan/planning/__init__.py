"""The search for the fewest replicas, their cost and the plan."""
