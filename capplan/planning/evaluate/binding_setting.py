"""The setting of an engine that keeps a fleet from more, read off a run that fails."""

import numpy as np

from capplan.planning.evaluate.run import Run

_FULL = 0.95
_OFTEN = 0.5
_FILLED = 0.7
"""Mean tokens of an iteration, over its budget, where the budget limits it."""
_QUEUES = 0.1
"""Share of the time in which requests wait, of a fleet that has a queue."""


def binding_setting(run: Run) -> str:
    """Return the setting that binds, or the limit that most requests miss.

    ``max_num_seqs`` where requests wait for a seat; ``max_len`` where for the room that
    each reserves; ``KV`` where for blocks. ``max_num_batched_tokens`` where iterations
    are as full as it lets them be while requests wait, or where one that is full takes
    longer than any gap between tokens may, which is what most requests miss.
    """
    engine, series = run.configuration.engine, run.simulation.series
    rules = engine.scheduler.rules
    waits = series.waiting_requests > 1.0
    if waits.mean() > _QUEUES:
        if _often(series.batch_requests[waits] >= _FULL * engine.max_num_seqs):
            return "max_num_seqs"
        if rules.reserves:
            return "max_len"
        if _often(series.kv_share[waits] >= _FULL):
            return "KV"
        totals = run.simulation.totals
        tokens = totals.prompt_tokens + totals.output_tokens - totals.cached_tokens
        iterations = max(1, run.simulation.iteration_count)
        if tokens > _FILLED * engine.max_num_batched_tokens * iterations:
            return "max_num_batched_tokens"
    attainment, slo = run.judgement.attainment, run.slo
    if attainment is None or slo is None:
        return ""
    shares = attainment.by_limit
    missed = min(shares, key=lambda name: shares[name])
    if missed == "tbt" and not rules.reserves:
        limit_s = slo.strictest(run.simulation.class_names).limit_s(missed)
        tables = run.configuration.tables
        full = min(engine.max_num_batched_tokens, len(tables.fused_s) - 1)
        if tables.fused_s[full] > limit_s:
            return "max_num_batched_tokens"
    return missed.upper()


def _often(cases: np.ndarray) -> bool:
    return bool(cases.mean() > _OFTEN)
