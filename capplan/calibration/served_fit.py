"""Make a latency profile of requests that a server answered."""

from typing import Any, NamedTuple

import numpy as np

from capplan.calibration.calibrate import FEWEST_REQUESTS, NAMES, Calibration, calibrate
from capplan.calibration.served_work import exercised
from capplan.deployment import EngineSettings
from capplan.errors import InputError
from capplan.latency.fitted_profile import Identity
from capplan.latency.profile import ErrorRecord, Profile, Validity
from capplan.latency.served_run import ServedRun
from capplan.latency.terms import DecodeTerms, FusedTerms
from capplan.simulator.checks import oversized
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

DECODE_FORM = "aladdin"
FUSED_FORM = "prompt-apart"
"""Prompt tokens and decoding requests each at their own price, and attention."""


class ServedFit(NamedTuple):
    """The profile of a served run, and the calibration it is made of."""

    profile: Profile
    calibration: Calibration


def fit_served(
    run: ServedRun,
    engine: EngineSettings,
    identity: Identity,
    *,
    kv_source: str = "given",
) -> ServedFit:
    """Return the profile under which a simulated engine serves a run as measured.

    Its errors are of requests, not of iterations: of TPOT for decode and mixed
    iterations, of TTFT for prefill. Where the run is long enough, they are also taken
    held out: of the second half, by the coefficients of the first.

    Parameters
    ----------
    run
        Requests as one engine served them, with TTFT.
    engine
        Settings of that engine.
    identity
        What was measured, on what, and by whom.
    kv_source
        Where ``engine.kv_blocks`` is from, for the profile's ``meta``.

    Raises
    ------
    InputError
        When too few requests have a TTFT and a TPOT, or one does not fit the KV
        blocks.
    """
    _refuse_too_large(run, engine)
    found = calibrate(run, engine)
    held_out = _held_out(run, engine, found.fitted_rows)
    fixed_s, prefill_s, attention_s, decode_s, context_s = found.coefficients_s.tolist()
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
            # Half a pair for each token: the law counts a token's own, Q does not.
            per_prompt_token_s=prefill_s + 0.5 * attention_s,
            attention_s=attention_s,
        ),
        validity=_validity(run, engine, found),
        errors=_errors(run, found, held_out),
        meta=_meta(run, engine, found, kv_source),
    )
    return ServedFit(profile, found)


def _refuse_too_large(run: ServedRun, engine: EngineSettings) -> None:
    too_large = oversized(_trace(run), engine)
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


def _trace(run: ServedRun) -> Trace:
    return Trace(run.prompt_tokens, run.output_tokens, run.arrival_s, source=run.source)


def _held_out(
    run: ServedRun, engine: EngineSettings, fitted: np.ndarray
) -> tuple[Calibration, np.ndarray] | None:
    """Return the calibration of the first half, and the rows of the second."""
    half = len(fitted) // 2
    if half < FEWEST_REQUESTS:
        return None
    return calibrate(run, engine, rows=fitted[:half]), fitted[half:]


def _validity(run: ServedRun, engine: EngineSettings, found: Calibration) -> Validity:
    """Return the range that the simulated run went through."""
    simulation = simulate(
        _trace(run), found.tables(engine), engine, 1, record_iterations=True
    )
    assert simulation.iterations is not None
    return Validity.model_validate(exercised(simulation.iterations, simulation.table))


def _errors(
    run: ServedRun,
    found: Calibration,
    held_out: tuple[Calibration, np.ndarray] | None,
) -> dict[str, ErrorRecord]:
    records: dict[str, ErrorRecord] = {}
    for column, phases in (("ttft_s", ("prefill",)), ("tpot_s", ("decode", "mixed"))):
        inside = _relative(run, found, column, found.fitted_rows)
        outside = (
            None
            if held_out is None
            else _relative(run, held_out[0], column, held_out[1])
        )
        record = ErrorRecord(
            points=len(inside),
            mean_abs=float(np.abs(inside).mean()),
            max_abs=float(np.abs(inside).max()),
            held_out_mean_abs=None
            if outside is None
            else float(np.abs(outside).mean()),
            held_out_max_abs=None if outside is None else float(np.abs(outside).max()),
            sigma=_sigma(inside if outside is None else outside),
        )
        records |= dict.fromkeys(phases, record)
    return records


def _relative(
    run: ServedRun, found: Calibration, column: str, rows: np.ndarray
) -> np.ndarray:
    return getattr(found.times, column)[rows] / getattr(run, column)[rows] - 1


def _sigma(errors: np.ndarray) -> float:
    """Return the spread that two thirds of the requests keep.

    A request that meets another batch than it did is far off, whatever the
    iterations take: it does not count as an error of theirs.
    """
    return float(np.quantile(np.abs(errors), 0.683))


def _meta(
    run: ServedRun, engine: EngineSettings, found: Calibration, kv_source: str
) -> dict[str, Any]:
    unknown = [
        name for name, known in zip(NAMES, found.identified, strict=True) if not known
    ]
    errors_s = {
        f"{name}_standard_error": round(float(error), 15)
        if np.isfinite(error)
        else "unbounded"
        for name, error in zip(NAMES, found.standard_errors_s, strict=True)
    }
    return {
        "found_by": "simulation of a served run; its iterations were not seen",
        "errors_are_of": "TPOT (decode, mixed) and TTFT (prefill) of requests",
        "requests": len(run.arrival_s),
        "requests_failed": run.failed,
        "identified": ", ".join(name for name in NAMES if name not in unknown),
        "not_identified": ", ".join(unknown),
        **errors_s,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_num_seqs": engine.max_num_seqs,
        "kv_blocks": engine.kv_blocks,
        "kv_blocks_source": kv_source,
        "async_scheduling": engine.async_scheduling,
        "prefix_caching": engine.prefix_caching,
    }
