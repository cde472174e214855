"""Planned LLMs, from what a test has at hand."""

import numpy as np

from capplan.fleet.price import Price
from capplan.planning.load.demand_curve import DemandCurve
from capplan.planning.shared_fleet.planned_llm import PlannedLlm, PlannedPool

DAY = [4.0] * 12 + [1.0] * 12


def price(usd=2.0, provider="P", node="n8", gpus=8, **more):
    return Price(
        usd, "a test", provider=provider, node=node, gpus_per_node=gpus, **more
    )


PRICE = price()


def llm(name, tp, count, rates=None, paid=PRICE, gpu="H100-SXM"):
    """Return an LLM whose rates are those of its hours, from a whole day on."""
    curve = None
    if rates is not None:
        each = np.array(rates, float)
        curve = DemandCurve(each, np.full(len(each), each.max()), 600.0, "a trace")
    pool = PlannedPool("", gpu, tp, count, paid, tp)
    why = "" if curve else "a test"
    return PlannedLlm(name, f"{name}/plan.json", (pool,), curve, why)
