"""Llumnix: the fleet's freeness kept in a band.

AlibabaPAI/llumnix, branch osdi24ae (92f6f9d5), vllm/core/request_scheduler.py
(``need_scale``, ``avg_load``) and vllm/engine/llm_engine_manager.py; band and bounds of
artifact/65_auto_scaling/config/serving_exp. Freeness is blocks for each request: every
10 s, where (free - demand)/(running + waiting) of the whole fleet is below ``up`` (10),
as many empty replicas as bring it there, at once; where (free - demand)/(running + 1 if
any wait) of the fleet without its last replica is above ``down`` (60), one fewer. One
change of a kind at a time. Down is ``up`` + 50 in its experiments. The paper
waits until freeness was out of its band for a time, which it does not state; the
artifact waits for its next look only, 10 s.

Demand is that of the freeness that is seen, by default of the first request in each
queue; in the artifact of all that wait. The artifact keeps 1 % of the blocks free and
counts a replica that drains among the others until it is empty; a wish to grow takes it
back, which is here one replica more.
"""

from collections.abc import Mapping

import numpy as np

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.settings import (
    TINY,
    common,
    keeping,
    time,
    whole,
    within,
)
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules(
    {
        **common(10.0, 16),
        "up": Knob(10.0, 0.001, 1e9),
        "down": Knob(60.0, 0.001, 1e9),
        "after": time(110.0),
    }
)


def free_blocks(view: View) -> float:
    """Return the blocks that are free and not demanded, of the whole fleet."""
    requests = view.running + (view.waiting > 0)
    idle = requests == 0
    free = view.total_blocks * (1 - view.kv_share)
    left = np.where(idle, 0.0, view.freeness) * requests
    return float(np.where(idle, free, left).sum())


def more(free: float, requests: float, total_blocks: int, up: float) -> int:
    """Return how many empty replicas bring the freeness up to the band."""
    lacking = up * requests - free
    return max(whole(lacking / total_blocks), 0)


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider that keeps the freeness in a band."""
    up, down = settings["up"], settings["down"]
    first_s = known.start_s + settings["after"]

    @keeping(settings)
    def decide(view: View, current: int) -> int:
        current = within(current, settings)
        if view.now_s <= first_s or view.ready == 0:
            return current
        free = free_blocks(view)
        running, waiting = float(view.running.sum()), float(view.waiting.sum())
        if running + waiting > 0 and free / (running + waiting) < up - TINY:
            if current <= view.ready:
                lacking = more(free, running + waiting, view.total_blocks, up)
                current += 1 if view.draining > 0 else lacking
        elif view.draining == 0:
            requests = running + (waiting > 0)
            kept = max(free - view.total_blocks, 0.0)
            if requests == 0 or kept / requests > down + TINY:
                current -= 1
        return current

    return decide
