"""Requests that no engine of a plan serves: named, and dropped where asked."""

from dataclasses import replace

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError, warn
from capplan.simulator.checks import oversized, refusal, unserved
from capplan.simulator.schedulers import parse_scheduler
from capplan.workload.trace import Trace


def without_oversized(
    trace: Trace, engines: list[EngineSettings], *, drop: bool
) -> Trace:
    """Return the trace without the requests that none of the engines serves."""
    if not engines:
        return trace
    no_one = np.logical_and.reduce([unserved(trace, engine) for engine in engines])
    if not no_one.any():
        return trace
    problem = f"{trace.source}: {_why_unserved(trace, engines)}"
    if not drop:
        cut = _cutting(trace, engines)
        raise InputError(f"{problem}; {cut}drop them with --drop-oversized")
    if no_one.all():
        raise InputError(f"{problem}; none is left")
    warn(f"{problem}; dropped")
    return trace.select(np.flatnonzero(~no_one))


def _cutting(trace: Trace, engines: list[EngineSettings]) -> str:
    """Return how to have prompts cut that are not, where that serves all; else none."""
    for engine in engines:
        policy = engine.scheduler
        if policy.settings.get("chunked") == 0:
            short = parse_scheduler(f"{policy.name}:chunked=1")
            values = {**policy.settings, "chunked": 1}.values()
            cut = replace(policy, values=tuple(values))
            if not unserved(trace, replace(engine, scheduler=cut)).any():
                text = f"{policy.name}:chunked=1" if cut == short else str(cut)
                return f"cut prompts with --scheduler {text}, or "
    return ""


def _why_unserved(trace: Trace, engines: list[EngineSettings]) -> str:
    """Return which requests fit no replica, and which their scheduler refuses."""
    too_large = np.logical_and.reduce([oversized(trace, engine) for engine in engines])
    texts = [refusal(trace, engine) for engine in engines]
    refused = next(filter(None, texts), "")
    if not too_large.any():
        return refused
    row = int(np.flatnonzero(too_large)[0])
    largest = max(engine.longest_request_tokens for engine in engines)
    longest = max(engine.max_model_len for engine in engines)
    return (
        f"{int(too_large.sum()):,} of {len(trace):,} requests fit no "
        f"replica; the first is row {row + 1} with {trace.prompt_tokens[row]:,} prompt "
        f"and {trace.output_tokens[row]:,} output tokens, where the largest replica "
        f"holds {largest:,} and takes {longest:,}" + (f"; {refused}" if refused else "")
    )
