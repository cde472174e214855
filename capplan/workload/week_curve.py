"""A typical week of traffic: the course of day, night and weekend by harmonics."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from capplan.shipped import shipped
from capplan.workload.catalog import read_yaml
from capplan.workload.days import DAY_S

WEEKEND = (5, 6)
"""Days of the week, from Monday as 0."""
TYPICAL = "azure-week-like"
"""Workload whose curves are taken as typical."""

Curves = Mapping[str, Mapping[str, Any]]
"""Mean, cosines and sines of weekday and weekend, in shares of the week's rate."""


def typical_curves() -> Curves:
    """Return the curves that ship with the workload ``TYPICAL``."""
    recipe = read_yaml(shipped("workloads") / f"{TYPICAL}.yaml")["recipe"]
    curves: Curves = recipe["share_of_rate"]
    return curves


def share_of_rate(curves: Curves, at_s: np.ndarray) -> np.ndarray:
    """Return the rate at times from Monday 00:00 over the mean of the week."""
    weekend = np.isin(at_s // DAY_S % 7, WEEKEND)
    shares = {}
    for name, curve in curves.items():
        waves = harmonics(at_s, len(curve["cos"]))
        shares[name] = waves @ [curve["mean"], *curve["cos"], *curve["sin"]]
    return np.where(weekend, shares["weekend"], shares["weekday"])


def harmonics(at_s: np.ndarray, count: int) -> np.ndarray:
    """Return 1, the cosines and the sines of the harmonics of a day, one per column."""
    angle = 2 * np.pi / DAY_S * np.outer(at_s, np.arange(1, count + 1))
    return np.hstack([np.ones((len(at_s), 1)), np.cos(angle), np.sin(angle)])
