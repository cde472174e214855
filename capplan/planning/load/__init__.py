"""What is to be served: requests, their arrivals, and windows of their time."""
