"""llm-d's Workload Variant Autoscaler, V2: tokens demanded against tokens held.

llm-d-workload-variant-autoscaler b08b1c77, internal/engines/analyzers/saturation_v2/
analyzer.go and pipeline/cost_aware_optimizer.go; see ``variants.py`` for its metrics
and its HPA. A replica holds the smaller of k1 = ``kv`` of its KV tokens and k2: the
tokens in use where ``queue`` requests wait, else the mean of the last ten such, by
class of output length, else min(B·O/(I+O), S)·(I + O/2) for B tokens an iteration, S
requests, I prompt and O output tokens, else k1. Demand is tokens in use and I for each
that waits, and I + O for each that is held. Up by (demand/``up`` - capacity with those
starting) / median capacity, rounded up; down by (capacity of those ready -
demand/``down``) / median capacity, rounded down, to one at least.

Here I and O are means of the arrivals of the last five minutes, O as predicted, of the
whole fleet; there of the requests that each replica finished. One variant only.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.lengths import Lengths, MeanLengths
from capplan.simulator.autoscalers.settings import within
from capplan.simulator.autoscalers.variants import Peak, Seen, through_hpa, wva_settings
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules(
    wva_settings({"up": Knob(0.85, 0.01, 1.0), "down": Knob(0.70, 0.01, 1.0)})
)
_REMEMBERED = 10
"""``RollingAverageWindowSize``."""
_SHORT, _MEDIUM = 100, 500
"""Bounds of the classes of output length. [tokens]"""


def derived_capacity(budget: int, seats: int, lengths: Lengths) -> int:
    """Return k2 by the engine's settings, 0 where they do not tell. [tokens]"""
    prompt, output = lengths
    if budget <= 0 or output <= 0:
        return 0
    steady = min(budget * output / (prompt + output), seats)
    return int(steady * (prompt + output / 2))


def capacities(
    settings: Mapping[str, float], known: Known
) -> Callable[[Peak, int, Lengths], np.ndarray]:
    """Return what tells, with a memory, the tokens that each replica holds."""
    observed: dict[int, deque[int]] = {}

    def capacity(peak: Peak, kv_tokens: int, lengths: Lengths) -> np.ndarray:
        k1 = int(kv_tokens * settings["kv"])
        bucket = (lengths.output >= _SHORT) + (lengths.output >= _MEDIUM)
        past = observed.setdefault(bucket, deque(maxlen=_REMEMBERED))
        k2 = np.empty(len(peak.kv_share))
        for i, share in enumerate(peak.kv_share.tolist()):
            used = int(share * kv_tokens)
            if peak.waiting[i] >= int(settings["queue"]) and used > 0:
                past.append(used)
                k2[i] = used
            elif past:
                k2[i] = int(sum(past) / len(past))
            else:
                derived = derived_capacity(
                    known.max_num_batched_tokens, known.max_num_seqs, lengths
                )
                k2[i] = derived or k1
        return np.minimum(k2, k1)

    return capacity


def demand_tokens(view: View, peak: Peak, kv_tokens: int, lengths: Lengths) -> float:
    """Return the tokens in use and those of all that wait. [tokens]"""
    used = float(np.floor(peak.kv_share * kv_tokens).sum())
    queued = float(peak.waiting.sum()) * int(lengths.prompt)
    return used + queued + view.held * (lengths.prompt + lengths.output)


def change(
    demand: float, capacity: float, ready: int, current: int, up: float, down: float
) -> int:
    """Return the replicas to add to the current ones, those starting included."""
    required = demand / up - current * capacity
    if required > 0:
        return math.ceil(required / capacity)
    spare = ready * capacity - demand / down
    return -min(max(math.floor(spare / capacity), 0), max(current - 1, 0))


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider by tokens."""
    mean = MeanLengths()
    capacity_of = capacities(settings, known)
    capacity = 0.0  # of a replica, as last seen

    def decided(seen: Seen, published: int) -> int:
        nonlocal capacity
        view, peak = seen.view, seen.peak
        lengths = mean.now()
        kv_tokens = view.total_blocks * known.block_size
        if view.ready:
            capacity = float(int(np.median(capacity_of(peak, kv_tokens, lengths))))
        if capacity <= 0:
            return seen.current
        demand = demand_tokens(view, peak, kv_tokens, lengths)
        more = change(
            demand,
            capacity,
            view.ready,
            seen.current,
            settings["up"],
            settings["down"],
        )
        return within(seen.current + more, settings)

    through = through_hpa(settings, decided)

    def decide(view: View) -> int:
        mean.add(view)
        return through(view)

    return decide
