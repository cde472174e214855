"""Estimate latency at a TP degree or on a GPU type that was not measured.

Across TP degrees N, compute falls as k/N + c (Aladdin, Eq. 5), the all-reduced bytes
grow as (N − 1)/N, which is linear in 1/N too, and the latency of an all-reduce grows
with N: each table entry is k/N + c + d·N.
Across GPU types, and from a single TP degree, each entry is scaled by the ratio of
two rooflines.
"""

from collections.abc import Callable, Sequence

import numpy as np

from capplan.errors import ProfileError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.fleet.gpu import Gpu
from capplan.latency.contract import LatencyTables
from capplan.latency.engine_time import Basis
from capplan.latency.least_squares import relative_nnls
from capplan.latency.profile import ErrorRecord, Profile
from capplan.latency.roofline import TOKENS, efficiency_of, roofline_terms
from capplan.latency.terms import DecodeTerms, FusedTerms, tables
from capplan.llm.architecture import Architecture

_BATCH = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024]
_LIMITS = (_BATCH[-1], TOKENS[-1])

SIGMA_ACROSS_TP = 0.1
SIGMA_ACROSS_GPU = 0.18
"""Relative error of the estimates, added to the sigma of the profiles used."""

_PRIOR = 0.05  # weight of the data sheet's k
_GROWTH = 0.1  # relative error that time doubling with N counts as
_BEYOND = 0.02  # weight of entries beyond the largest batch measured

_ENTRIES: dict[str, Callable[[LatencyTables], np.ndarray]] = {
    "decode": lambda table: table.decode_s[_BATCH],
    "decode_context": lambda table: table.decode_context_s[_BATCH],
    "tokens": lambda table: table.fused_s[TOKENS],
    "share": lambda table: np.maximum(table.fused_decode_s[_BATCH], 0.0),
    "fused_context": lambda table: table.fused_context_s[_BATCH],
    "attention": lambda table: np.array([table.attention_s]),
}


def across_tp(
    profiles: Sequence[Profile],
    tp: int,
    llm: Architecture | None = None,
    gpu: Gpu | None = None,
) -> Profile:
    """Return the profile of a TP degree estimated from those of at least two others.

    They are of one LLM on one GPU type; with ``llm`` and ``gpu``, the data sheet helps
    to separate compute that is split from all-reduces that grow.
    """
    kinds = {(p.gpu, p.llm, p.dtype, p.quantization, p.kv_dtype) for p in profiles}
    if len(kinds) != 1:
        raise ProfileError(
            f"TP {tp} can be predicted from profiles of one LLM on one GPU type only; "
            f"these are {', '.join(p.name for p in profiles)}"
        )
    degrees = np.array([profile.tp for profile in profiles], np.float64)
    if len(set(degrees)) < 2:
        raise ProfileError(
            f"TP {tp} needs profiles of two other degrees; there is only "
            f"{profiles[0].name}"
        )
    measured = [_kernels(profile) for profile in profiles]
    compute_s = _compute_of_one_gpu(llm, gpu, profiles[0]) if llm and gpu else {}
    entries = {
        name: _line(
            degrees,
            np.array([entry(table) for table in measured]),
            _trust(name, profiles),
            compute_s.get(name),
            tp,
        )
        for name, entry in _ENTRIES.items()
    }
    source = ", ".join(f"TP {profile.tp}" for profile in profiles)
    return _profile_of(
        entries,
        profiles[0],
        SIGMA_ACROSS_TP,
        "other-tp",
        tp=tp,
        source=f"k/N + c + d N through {source} of: {profiles[0].source}",
    )


def _kernels(profile: Profile) -> LatencyTables:
    """Return the tables of a profile without its engine's own time."""
    return tables(profile.decode, profile.fused, *_LIMITS, request_s=profile.request_s)


def _compute_of_one_gpu(
    llm: Architecture, gpu: Gpu, profile: Profile
) -> dict[str, np.ndarray]:
    """Return the data sheet's k of each entry: compute as on one GPU. [s]"""
    weight_dtype = "fp8" if profile.quantization.startswith("fp8") else None
    compute_only = efficiency_of(gpu)._replace(
        layer_s=0.0, all_reduce_s=0.0, link=np.inf
    )
    tp = profile.tp
    terms = roofline_terms(
        llm, gpu, tp, weight_dtype=weight_dtype, efficiency=compute_only
    )
    table = tables(*terms, *_LIMITS)
    return {name: tp * entry(table) for name, entry in _ENTRIES.items()}


def _trust(name: str, profiles: Sequence[Profile]) -> np.ndarray:
    """Return the weight of each profile's entries, shape (profiles, entries).

    An LLM that barely fits at one degree was measured with small batches only; its
    entries beyond them are extrapolated and get a small weight.
    """
    largest = [
        profile.validity.decode.batch[1] if profile.validity.decode else np.inf
        for profile in profiles
    ]
    batch = np.array(_BATCH, np.float64)
    if name in ("tokens", "attention"):
        batch = np.ones(len(TOKENS) if name == "tokens" else 1)
    within = batch <= np.array(largest)[:, None]
    # Where no profile was measured, all count alike.
    return np.where(within | ~within.any(axis=0), 1.0, _BEYOND)


def _line(
    degrees: np.ndarray,
    measured: np.ndarray,
    trust: np.ndarray,
    compute_s: np.ndarray | None,
    tp: int,
) -> np.ndarray:
    """Return k/N + c + d·N of each entry at ``tp``, fitted to the measured degrees. [s]

    Two degrees alone do not separate k from d, so k is drawn weakly towards the data
    sheet's, ``compute_s`` of shape (entries,), and d towards 0. ``measured`` and its
    weights ``trust`` have shape (degrees, entries).
    """
    line = np.column_stack([1 / degrees, np.ones(len(degrees)), degrees])
    estimate_s = []
    for column, values in enumerate(measured.T):
        values = np.maximum(values, 1e-15)
        design, target = line, values
        ties = np.array([[0.0, 0.0, _GROWTH * degrees.max() / values.mean()]])
        k = compute_s[column] if compute_s is not None else 0.0
        if k > 0:
            design = np.vstack([line, [1.0, 0.0, 0.0]])
            target = np.append(values, k)
        else:
            ties[0, 2] = 1e3 / values.mean()  # no prior for k: no growth with N
        weight = np.append(trust[:, column], np.full(len(target) - len(values), _PRIOR))
        coefficients = relative_nnls(design, target, ties, weight)
        estimate_s.append(float(coefficients @ [1 / tp, 1.0, tp]))
    return np.array(estimate_s)


def across_gpu(
    profile: Profile, llm: Architecture, gpu: Gpu, *, tp: int | None = None
) -> Profile:
    """Return a profile scaled to a GPU type and, if given, TP degree by rooflines."""
    to_tp = tp or profile.tp
    measured = _kernels(profile)
    old, new = (
        tables(*roofline_terms(llm, on, degree), *_LIMITS)
        for on, degree in ((find_gpu(profile.gpu), profile.tp), (gpu, to_tp))
    )
    scaled = {}
    for name, entry in _ENTRIES.items():
        # The share of decoding requests is attention; the roofline's share is 0.
        like = _ENTRIES["decode_context"] if name == "share" else entry
        scaled[name] = entry(measured) * like(new) / like(old)
    sigma = SIGMA_ACROSS_TP if gpu.name == profile.gpu else SIGMA_ACROSS_GPU
    return _profile_of(
        scaled,
        profile,
        sigma,
        "other-tp" if gpu.name == profile.gpu else "other-gpu",
        gpu=gpu.name,
        tp=to_tp,
        source=f"{profile.name} scaled by data sheets; measured: {profile.source}",
    )


def _profile_of(
    entries: dict[str, np.ndarray],
    like: Profile,
    sigma: float,
    basis: Basis,
    **changes: object,
) -> Profile:
    """Return a profile with knots at the entries, marked as an estimate."""
    decode = DecodeTerms(
        batch=_BATCH,
        batch_s=entries["decode"].tolist(),
        batch_context_s=entries["decode_context"].tolist(),
    )
    context = entries["fused_context"].tolist()
    fused = FusedTerms(
        tokens=TOKENS,
        tokens_s=entries["tokens"].tolist(),
        attention_s=float(entries["attention"][0]),
        batch=[0, *_BATCH],
        batch_s=[0.0, *np.maximum.accumulate(entries["share"]).tolist()],
        batch_context_s=[context[0], *context],
    )
    errors = {
        phase: ErrorRecord(sigma=float(np.hypot(like.sigma(phase), sigma)))
        for phase in like.errors
    }
    time = like.engine_time
    if time is not None:  # without the error that it had on its own profile
        time = time.model_copy(update={"served": None})
    return like.model_copy(
        update={
            "how": "estimate",
            "kernels_from": basis if like.kernels_from else None,
            "engine_time": time,
            "decode_form": "knots",
            "fused_form": "knots",
            "decode": decode,
            "fused": fused,
            "errors": errors,
            "kv_tokens": None,
            **changes,
        }
    )
