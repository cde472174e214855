"""Autoscalers against fleets of a fixed size."""
