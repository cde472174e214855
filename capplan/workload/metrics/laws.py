"""What must hold of the metrics of a window, whatever the engine does."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from capplan.errors import InputError, warn
from capplan.workload.metrics.windows import Window

TOLERANCE = 0.10
"""Of laws of time: above, windows are too short or gauges are wrong."""
EXACT = 0.01
"""Of laws of tokens: above, models are mixed, or resets or replicas are missing."""
_EXACT_LAWS = ("prompt_by_source", "iteration_tokens")
TOLD = {
    "running": "mean running × time over the sum of inference times",
    "waiting": "mean waiting × time over the sum of queue times",
    "generation": "tokens generated over those of finished requests",
    "prompt_by_source": "prompt tokens by source over prompt tokens",
    "iteration_tokens": "tokens of iterations over prompt and generated tokens",
    "front_end_s": "TTFT − queue − prefill",
}


def laws(window: Window) -> dict[str, float]:
    """Return each law's left side over its right one, NaN where one is not stated.

    The last one is a time, that of the front end. [s]
    """

    def summed(quantity: str) -> float:
        found = window.observed(quantity)
        return float("nan") if found is None else found.total

    sources = [window.count(x) for x in ("computed", "hit", "external_hit")]
    by_source = np.nansum(sources) if np.isfinite(sources[0]) else np.nan
    queue_s, lasts_s = summed("queue_s"), window.lasts_s
    prompt, generated = window.count("prompt"), window.count("generation")
    return {
        "running": _over(window.running * lasts_s, summed("inference_s")),
        "waiting": _over(window.waiting * lasts_s, queue_s if queue_s > 60 else np.nan),
        "generation": _over(generated, summed("output_tokens")),
        "prompt_by_source": _over(float(by_source), prompt),
        "iteration_tokens": _over(summed("iteration_tokens"), prompt + generated),
        "front_end_s": window.mean("ttft_s")
        - window.mean("queue_s")
        - window.mean("prefill_s"),
    }


def check_laws(
    windows: Sequence[Window], where: str, *, one_front_end: bool = True
) -> None:
    """Refuse windows that break a law of tokens; warn of those that break one of time.

    Tokens of iterations are counted by the first of several front ends alone.
    """
    told = [laws(window) for window in windows]
    for found, name in product(told, _EXACT_LAWS):
        counted = one_front_end or name != "iteration_tokens"
        if counted and abs(found[name] - 1) > EXACT:
            raise InputError(
                f"{where}: {TOLD[name]} is {found[name]:.3g}; expected 1: models are "
                "mixed, or replicas or restarts are missing"
            )
    for name in ("running", "waiting"):
        known = sorted(x for found in told if np.isfinite(x := found[name]))
        if known and abs(known[len(known) // 2] - 1) > TOLERANCE:
            warn(
                f"{where}: {TOLD[name]} is {known[len(known) // 2]:.2f}: windows are "
                "short beside requests, or gauges are wrong"
            )


def _over(left: float, right: float) -> float:
    return left / right if right > 0 else float("nan")
