"""Iteration time of an engine: profiles, how they are fitted, estimates.

:mod:`~capplan.latency.contract` holds the tables the simulator runs on, made by a
:class:`~capplan.latency.profile.Profile`. Import from the files; this package is light.
"""
