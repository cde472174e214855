"""One replica: schedule, run an iteration or many, collect results."""
