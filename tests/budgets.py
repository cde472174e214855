"""Budgets of plans that are not simulated."""

import math
from types import SimpleNamespace

from capplan.planning.budget import budget as budget_module
from capplan.planning.configure.configuration import only_configuration

ASKED = {
    "workload": "synthetic:prompt=300,output=80,n=300",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=1s,tpot=30ms",
    "rate": 100,
    "price": "H100-SXM=2/gpu",
    "cold_start": "6m",
}
PER_REPLICA = 8.0
"""Requests/s of a replica in the stubbed plans."""


def stub_plans(monkeypatch):
    """Let a replica serve so many requests a second; return the rates asked for."""
    seen = []

    def planned_at(rates, at_rate, progress=None, known=None):
        seen.extend(rates)
        run = SimpleNamespace(configuration=only_configuration(at_rate(rates[-1])))
        rows = [
            SimpleNamespace(
                replica_count=math.ceil(rate / PER_REPLICA), run=run, launch=None
            )
            for rate in rates
        ]
        return tuple(rows), ()

    monkeypatch.setattr(budget_module, "planned_at", planned_at)
    return seen
