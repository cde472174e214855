"""A fleet: pools of replicas, what moves between them, those that come and go."""
