"""What no scheduler can do with less: lower bounds and their certificates."""
