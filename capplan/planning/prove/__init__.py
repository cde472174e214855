"""Lower bounds and certificates of plans, and both made again."""
