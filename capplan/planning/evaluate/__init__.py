"""One fleet simulated and judged: a run, and what it says of the SLO."""
