"""Dynamo's throughput planner: the forecast rate over what a replica serves.

ai-dynamo 1.6.1, dynamo/planner/core/throughput_scaling.py (``_throughput_agg``) and
config/defaults.py: every 180 s, ⌈forecast / rate⌉ replicas, at most 8 more or fewer
than those ready. While replicas start, no more are asked for, but fewer are. Its
planner does so where its target is an SLA; ``dynamo-load`` is its other one.

Here the rate that a replica serves is one figure; there a model fitted in operation
tells it anew for the forecast prompt and output lengths. The forecast is the last
period's count (``forecast=constant``) or a Kalman filter's; there it is auto-ARIMA by
default. No replicas for prefill alone, no budget of GPUs but ``max``.
"""

from collections.abc import Mapping

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers import forecasts
from capplan.simulator.autoscalers.settings import (
    common,
    keeping,
    rate,
    rate_per_replica_per_s,
    whole,
    within,
)
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules(
    {
        **common(180.0),
        **rate(),
        "forecast": Knob(0, choices=forecasts.FORECASTS),
        "step": Knob(8),
    }
)


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider by the forecast of the next period."""
    per_replica_per_s = rate_per_replica_per_s("dynamo", settings, known)
    period_s, step = settings["period"], int(settings["step"])
    forecast = forecasts.forecast(int(settings["forecast"]))

    @keeping(settings)
    def decide(view: View, current: int) -> int:
        current = within(current, settings)
        if view.since_s <= 0:
            return current
        count = forecast(view.arrived * period_s / view.since_s)
        wanted = whole(count / period_s / per_replica_per_s)
        wanted = min(max(wanted, view.ready - step), view.ready + step)
        wanted = max(wanted, int(settings["min"]))
        if current > view.ready and wanted > view.ready:
            return current
        return wanted

    return decide
