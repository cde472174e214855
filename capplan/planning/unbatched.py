"""Latency of each request alone on a replica: a bound that no deployment beats."""

from dataclasses import dataclass

import numpy as np

from capplan.deployment import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.units import format_duration
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace


@dataclass(frozen=True, eq=False)
class Unbatched:
    """Latency of each request alone, shape (n,) each.

    Parameters
    ----------
    ttft_s
        API server and prefill, in chunks of the token budget. [s]
    tpot_s
        Mean of its decode iterations at batch 1; 0 for one token. [s]
    e2e_s
        Arrival to last token. [s]
    """

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    e2e_s: np.ndarray


def unbatched(trace: Trace, tables: LatencyTables, engine: EngineSettings) -> Unbatched:
    """Return the latency of each request of a trace alone on a replica."""
    prompt, output = trace.prompt_tokens, trace.output_tokens
    budget = engine.max_num_batched_tokens
    rest = prompt % budget
    prefill_s = (
        (prompt // budget) * tables.fused_s[budget]
        + np.where(rest > 0, tables.fused_s[rest], 0.0)
        + tables.attention_s * prompt.astype(np.float64) ** 2 / 2
    )
    ttft_s = prefill_s + tables.request_s
    mean_context = prompt + output / 2
    token_s = tables.decode_s[1] + tables.decode_context_s[1] * mean_context
    tpot_s = np.where(output > 1, token_s, 0.0)
    return Unbatched(ttft_s, tpot_s, ttft_s + tpot_s * (output - 1))


def too_slow(trace: Trace, alone: Unbatched, slo: Slo) -> str | None:
    """Return why not even requests served one by one meet the SLO, or None.

    Names the limit that most of them miss, by how much, and the limit they need.
    """
    limits_s = dict(
        zip(
            ("TTFT", "TPOT", "e2e"),
            slo.columns(trace.request_class, trace.class_names),
            strict=True,
        )
    )
    alone_s = {"TTFT": alone.ttft_s, "TPOT": alone.tpot_s, "e2e": alone.e2e_s}
    met = {name: alone_s[name] <= limits_s[name] for name in limits_s}
    share = float((met["TTFT"] & met["TPOT"] & met["e2e"]).mean())
    if share >= slo.attainment:
        return None
    name = min(met, key=lambda limit: float(met[limit].mean()))
    ratio = alone_s[name] / limits_s[name]
    slowest = float(np.quantile(ratio, slo.attainment, method="higher"))
    row = int(np.argmin(np.abs(ratio - slowest)))
    return (
        f"{name} ≤ {format_duration(limits_s[name][row])} is met by "
        f"{float(met[name].mean()):.1%} of requests even when each runs alone; "
        f"{slo.attainment:.4g} of them need {slowest:.3g}× that, "
        f"{format_duration(slowest * limits_s[name][row])}"
    )
