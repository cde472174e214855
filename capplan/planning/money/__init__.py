"""Prices, nodes, commitments and bills: what hours of nodes cost."""
