"""The cheapest mix of replicas of several kinds."""
