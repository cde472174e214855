"""What happens when: a scheduler, event by event, under numba."""
