"""A plan: candidates, the best, its proof, and what is told of it."""
