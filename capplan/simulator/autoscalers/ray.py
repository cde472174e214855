"""Ray Serve: requests in flight over a target of each replica, held for a delay.

ray 2.60.0 (b7f4259e), python/ray/serve/autoscaling_policy.py and config.py: mean /
``target`` replicas for the mean over ``look_back`` (30 s) of all requests, running,
waiting and held; of the way there ``up_factor`` or ``down_factor``. Up when that was
above the count for ``up_delay`` (30 s), down when below for ``down_delay`` (600 s), to
the count of that moment. With no replica and a request in sight, one at once.
``target`` is 2 by default, Ray's own: few for an LLM.

Ray decides every 0.1 s on reports that come every 10 s with a sample of every 2 s; here
it decides every 10 s on the samples of the ticks.
"""

import math
from collections import deque
from collections.abc import Mapping

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.settings import common, keeping, time
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules(
    {
        **common(10.0),
        "target": Knob(2.0, 0.001, 1e6),
        "look_back": time(30.0, 0.1),
        "up_delay": time(30.0),
        "down_delay": time(600.0),
        "up_factor": Knob(1.0, 0.001, 1000.0),
        "down_factor": Knob(1.0, 0.001, 1000.0),
    }
)
_EPSILON_S = 1e-6
"""``_DELAY_ELAPSED_EPS_S``. [s]"""


def scaled(desired: float, ready: int, up: float, down: float) -> int:
    """Return the count a factor of the way to the desired one."""
    change = desired - ready
    count = math.ceil(ready + (up if change > 0 else down) * change)
    if math.ceil(desired) < ready and count == ready:
        count -= 1
    return count


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider with delays."""
    target = settings["target"]
    up, down = settings["up_factor"], settings["down_factor"]
    seen: deque[tuple[float, float]] = deque()
    direction = 0
    since_s = 0.0  # when the direction was first wanted

    @keeping(settings)
    def decide(view: View, current: int) -> int:
        nonlocal direction, since_s
        in_flight = float(view.running.sum() + view.waiting.sum()) + view.held
        seen.append((view.now_s, in_flight))
        while seen[0][0] <= view.now_s - settings["look_back"]:
            seen.popleft()
        total = sum(count for _, count in seen) / len(seen)
        if view.ready == 0:
            return max(math.ceil(up), current) if total > 0 else current
        desired = view.ready * (total / (target * view.ready))
        wanted = max(scaled(desired, view.ready, up, down), 1)
        toward = (wanted > current) - (wanted < current)
        if toward != direction:
            direction, since_s = toward, view.now_s
        delay_s = settings["up_delay"] if toward > 0 else settings["down_delay"]
        if toward and view.now_s - since_s + _EPSILON_S >= delay_s:
            direction = 0
            return wanted
        return current

    return decide
