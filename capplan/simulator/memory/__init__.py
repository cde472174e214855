"""What routers remember of the replicas and of what they sent."""
