"""Dynamo's load planner: one replica more or fewer by the use of KV.

ai-dynamo 1.6.1, dynamo/planner/core/load_scaling.py (``_agg_easy_decision``) and
state_machine.py: every 5 s, one more where the KV in use and that of the prompts that
wait is above 100 % of the blocks of any replica (``goal=latency``: 40 %), one fewer
where all are below 60 % (10 %) and the fullest would not be above the first with one
replica less. Nothing while replicas drain. While some start no more are asked for, and
fewer only where that was wanted for a whole period. Its planner does so by default.

The prompts that wait are taken as long as the mean of the last five minutes; there each
one's own length counts.
"""

import math
from collections.abc import Mapping

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.lengths import MeanLengths
from capplan.simulator.autoscalers.settings import common, keeping, within
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules(
    {
        **common(5.0),
        "goal": Knob(0, choices=("throughput", "latency")),
    }
)
_THRESHOLDS = ((1.0, 0.6), (0.4, 0.1))
"""Share of the KV above which there is one more and below which one fewer, by goal."""


def desired(
    highest: float, ready: int, lacking: int, goal: int, least: int
) -> int | None:
    """Return how many of those ready are enough; None for no change.

    ``highest`` is the share of KV that the fullest replica is asked for.
    """
    up, down = _THRESHOLDS[goal]
    if highest > up:
        return ready + 1
    if (ready > 1 or lacking > 0) and highest < down:
        fewer = max(ready - 1, least)
        if 0 < fewer < ready and highest * ready / fewer >= up:
            return ready
        return fewer
    return None


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider that goes by one replica."""
    goal, least = int(settings["goal"]), int(settings["min"])
    lengths = MeanLengths()
    cancel_s = math.nan  # since when replicas that start are not wanted

    @keeping(settings)
    def decide(view: View, current: int) -> int:
        nonlocal cancel_s
        current = within(current, settings)
        lengths.add(view)
        if view.ready == 0 or view.draining > 0:
            return current
        kv_tokens = view.total_blocks * known.block_size
        prompt_share = lengths.now().prompt / max(kv_tokens, 1)
        highest = float((view.kv_share + view.waiting * prompt_share).max())
        lacking = current - view.ready
        wanted = desired(highest, view.ready, lacking, goal, least)
        if lacking <= 0:
            cancel_s = math.nan
            return current if wanted is None else wanted
        if wanted is None or wanted > view.ready:
            cancel_s = math.nan
        elif math.isnan(cancel_s):
            cancel_s = view.now_s
        elif view.now_s - cancel_s >= settings["period"]:
            cancel_s = math.nan
            return wanted
        return current

    return decide
