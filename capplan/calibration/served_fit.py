"""Make a latency profile of requests that a server answered."""

from typing import Any, NamedTuple

import numpy as np

from capplan.calibration.calibrate import (
    FEWEST_REQUESTS,
    NAMES,
    Calibration,
    calibrate,
    trace_of,
)
from capplan.calibration.served_work import exercised
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.fitted_profile import Identity
from capplan.latency.profile import ErrorRecord, Profile
from capplan.latency.served_run import ServedRun
from capplan.latency.terms import DecodeTerms, FusedTerms
from capplan.simulator.checks import oversized

DECODE_FORM = "aladdin"
FUSED_FORM = "prompt-apart"
"""A coefficient each for prompt tokens, decoding requests and attention."""


class ServedFit(NamedTuple):
    """The profile of a served run, and the calibration it is made of."""

    profile: Profile
    calibration: Calibration
    run: ServedRun
    engine: EngineSettings
    kv_source: str  # how engine.kv_blocks was obtained


def fit_served(
    run: ServedRun,
    engine: EngineSettings,
    identity: Identity,
    *,
    kv_source: str = "given",
) -> ServedFit:
    """Return the profile under which a simulated engine serves a run as measured.

    Its errors are of requests: of TPOT for decode and mixed iterations, of TTFT for
    prefill; of a long run also held out, of the second half by a fit to the first.
    ``kv_source`` says how ``engine.kv_blocks`` was obtained.
    """
    _refuse_too_large(run, engine)
    calibration = calibrate(run, engine)
    fixed_s, prefill_s, attention_s, decode_s, context_s = (
        calibration.coefficients_s.tolist()
    )
    shared = {
        "constant_s": fixed_s,
        "per_request_s": decode_s,
        "per_context_s": context_s,
    }
    profile = Profile(
        **identity._asdict(),
        block_size=engine.block_size,
        decode_form=DECODE_FORM,
        fused_form=FUSED_FORM,
        decode=DecodeTerms(**shared),
        fused=FusedTerms(
            **shared,
            # A profile counts half a pair for a token's own; Q counts a whole one.
            per_prompt_token_s=prefill_s + 0.5 * attention_s,
            attention_s=attention_s,
        ),
        validity=exercised(calibration.simulation),
        errors=_errors(run, engine, calibration),
        meta=_meta(run, engine, calibration, kv_source),
    )
    return ServedFit(profile, calibration, run, engine, kv_source)


def _refuse_too_large(run: ServedRun, engine: EngineSettings) -> None:
    too_large = oversized(trace_of(run), engine)
    if not too_large.any():
        return
    row = int(np.flatnonzero(too_large)[0])
    tokens = run.prompt_tokens + run.output_tokens - 1
    needed = -(-int(tokens.max()) // engine.block_size) + 1
    raise InputError(
        f"{run.source}: {int(too_large.sum())} of {len(tokens)} requests do not fit "
        f"{engine.kv_blocks:,} KV blocks of {engine.block_size} tokens; the first, "
        f"{row + 1} by arrival, has {run.prompt_tokens[row]:,} prompt and "
        f"{run.output_tokens[row]:,} output tokens; expected kv_blocks >= {needed:,}"
    )


def _errors(
    run: ServedRun, engine: EngineSettings, calibration: Calibration
) -> dict[str, ErrorRecord]:
    rows = calibration.fitted_rows
    first, second = np.split(rows, [len(rows) // 2])
    halved = None
    if len(first) >= FEWEST_REQUESTS:
        halved = calibrate(run, engine, rows=first)
    records: dict[str, ErrorRecord] = {}
    for column, phases in (("ttft_s", ("prefill",)), ("tpot_s", ("decode", "mixed"))):
        inside = _abs_errors(run, calibration, column, rows)
        outside = None if halved is None else _abs_errors(run, halved, column, second)
        record = ErrorRecord(
            points=len(inside),
            mean_abs=float(inside.mean()),
            max_abs=float(inside.max()),
            held_out_mean_abs=None if outside is None else float(outside.mean()),
            held_out_max_abs=None if outside is None else float(outside.max()),
            # The spread of two thirds of the requests. A request that meets another
            # batch than it did is far off, whatever the iterations take: it does not
            # count as an error of theirs.
            sigma=float(np.quantile(inside if outside is None else outside, 0.683)),
        )
        records |= dict.fromkeys(phases, record)
    return records


def _abs_errors(
    run: ServedRun, calibration: Calibration, column: str, rows: np.ndarray
) -> np.ndarray:
    simulated_s, measured_s = getattr(calibration.times, column), getattr(run, column)
    return np.abs(simulated_s[rows] / measured_s[rows] - 1)


def _meta(
    run: ServedRun, engine: EngineSettings, calibration: Calibration, kv_source: str
) -> dict[str, Any]:
    known = dict(zip(NAMES, calibration.identified, strict=True))
    errors_s = {
        f"{name}_standard_error": round(float(error), 15)
        if np.isfinite(error)
        else "unbounded"
        for name, error in zip(NAMES, calibration.standard_errors_s, strict=True)
    }
    return {
        "found_by": "simulation of a served run; its iterations were not seen",
        "errors_are_of": "TPOT (decode, mixed) and TTFT (prefill) of requests",
        "requests": len(run.arrival_s),
        "requests_failed": run.failed,
        "identified": ", ".join(name for name in NAMES if known[name]),
        "not_identified": ", ".join(name for name in NAMES if not known[name]),
        **errors_s,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_num_seqs": engine.max_num_seqs,
        "kv_blocks": engine.kv_blocks,
        "kv_blocks_source": kv_source,
        "async_scheduling": engine.async_scheduling,
        "prefix_caching": engine.prefix_caching,
    }
