"""A plan for each of several values of what is asked."""
