"""Forms of the latency model, simplest first.

A form gives one or more shapes. A shape fixes what the model is not linear in (knots,
the position of a hinge, a saturation rate) and lists its basis terms; the fit finds one
coefficient >= 0 for each. Where a form has several shapes, the best fitting is taken.

References
----------
Nie et al., "Aladdin", section 3, Eq. 1-3 (``aladdin``); SA scheduling, Eq. 14-16
(``interaction``).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from capplan.latency.measurements import Points
from capplan.latency.terms import DecodeTerms, FusedTerms

MOST_BATCH_KNOTS = 12
MOST_TOKEN_KNOTS = 18

Basis = list[dict[str, Any]]


class Shape(NamedTuple):
    """A form with knots and hinges fixed, linear in its coefficients."""

    fixed: dict[str, Any]
    basis: Basis
    """Keys of the terms and their values at coefficient 1."""
    ties: tuple[str, ...] = ()
    """Keys whose neighbouring values are weakly drawn together."""


Shapes = list[Shape]
Form = Callable[[Points, float | None], Shapes]
"""Shapes for points and the initial saturation rate of a mixture of experts."""


def _scalars(*names: str) -> Basis:
    return [{name: 1.0} for name in names]


def _nondecreasing(count: int, name: str, start: int = 0) -> Basis:
    """Return step functions: values at the knots that never fall."""
    ones = np.tril(np.ones((count, count)))
    return [{name: ones[:, column].tolist()} for column in range(start, count)]


def _free(count: int, name: str) -> Basis:
    """Return unit vectors: any values >= 0 at the knots."""
    return [{name: row.tolist()} for row in np.eye(count)]


def thinned(values: np.ndarray, most: int, least_ratio: float = 1.0) -> list[int]:
    """Return at most ``most`` of the distinct values, evenly by ratio, ends kept.

    Examples
    --------
    >>> thinned(np.array([1, 2, 4, 8, 16]), 3)
    [1, 4, 16]
    """
    distinct = np.unique(np.asarray(values, np.int64))
    ratio = least_ratio
    while True:
        kept = [int(distinct[0])]
        for value in distinct[1:]:
            if value >= kept[-1] * ratio and value > kept[-1]:
                kept.append(int(value))
        if kept[-1] != distinct[-1]:
            if len(kept) > 1 and distinct[-1] < kept[-1] * ratio:
                kept.pop()
            kept.append(int(distinct[-1]))
        if len(kept) <= most:
            return kept
        ratio = max(ratio, 1.05) * 1.08


def _context_tents(
    knots: list[int], points: Points, most: int = MOST_BATCH_KNOTS
) -> Basis:
    """Return hat functions for a context slope that varies with the batch.

    Only batch sizes measured over a span of contexts wide enough to separate the slope
    from the base get one; the others are interpolated.
    """
    known = []
    for batch in knots:
        contexts = points.context[(points.decoding == batch) & (batch > 0)]
        if len(contexts) >= 3 and contexts.max() >= 4 * max(contexts.min(), 1):
            known.append(batch)
    if not known:
        return _scalars("per_context_s")
    known = thinned(np.array(known), most)
    tents = [np.interp(knots, known, row) for row in np.eye(len(known))]
    return [{"batch_context_s": row.tolist()} for row in tents]


def _hinges(values: np.ndarray) -> list[int]:
    """Return positions to try for a hinge, inside the measured range."""
    inner = np.unique(values)[1:-1]
    return thinned(inner, 10) if len(inner) else []


# ----------------------------------------------------------------- decode

_PLANE = ("constant_s", "per_request_s", "per_context_s")


def _linear(*names: str) -> Form:
    return lambda points, rate: [Shape({}, _scalars(*names))]


def _decode_hinge(points: Points, rate: float | None) -> Shapes:
    basis = _scalars(*_PLANE, "per_request_beyond_s")
    return [Shape({"beyond_batch": batch}, basis) for batch in _hinges(points.batch)]


def _decode_saturation(points: Points, rate: float | None) -> Shapes:
    """Weights of the experts that a batch touches: m·(1 − exp(−r·b))."""
    rates = np.geomspace(0.01, 0.6, 10)
    if rate:
        rates = rate * np.array([0.5, 0.65, 0.8, 1.0, 1.25])
    basis = _scalars(*_PLANE, "saturation_s")
    return [Shape({"saturation_rate": round(float(r), 5)}, basis) for r in rates]


def _decode_knots(points: Points, rate: float | None) -> Shapes:
    knots = thinned(points.batch, MOST_BATCH_KNOTS)
    basis = _nondecreasing(len(knots), "batch_s") + _context_tents(knots, points)
    return [Shape({"batch": knots}, basis, ("batch_context_s",))]


def _decode_steps(points: Points, rate: float | None) -> Shapes:
    """Knots that may jump, up or down, where the batch passes a power of two."""
    knots = _step_knots(points.batch)
    basis = _free(len(knots), "batch_s") + _context_tents(knots, points, 6)
    return [Shape({"batch": knots}, basis, ("batch_s", "batch_context_s"))]


# ----------------------------------------------------------------- with prefill


def _fused_aladdin(points: Points, rate: float | None) -> Shapes:
    basis = _scalars("constant_s", "per_token_s")
    if points.counts()["mixed"]:
        basis += _scalars("per_request_s", "per_context_s")
    return [Shape({}, basis)]


def _fused_quadratic(points: Points, rate: float | None) -> Shapes:
    [linear] = _fused_aladdin(points, rate)
    return [Shape({}, linear.basis + _scalars("attention_s"))]


def _fused_hinge(points: Points, rate: float | None) -> Shapes:
    [quadratic] = _fused_quadratic(points, rate)
    basis = [*quadratic.basis, {"per_token_beyond_s": [1.0]}]
    return [
        Shape({"beyond_tokens": [tokens]}, basis)
        for tokens in _hinges(points.new_tokens)
    ]


def _fused_knots(points: Points, rate: float | None) -> Shapes:
    tokens = thinned(points.new_tokens, MOST_TOKEN_KNOTS, 1.3)
    batch, beside = _decode_beside(points)
    basis = _nondecreasing(len(tokens), "tokens_s") + _scalars("attention_s") + beside
    return [Shape({"tokens": tokens, "batch": batch}, basis, ("batch_context_s",))]


def _fused_steps(points: Points, rate: float | None) -> Shapes:
    """Knots that may jump where the tokens pass a power of two."""
    tokens = _step_knots(points.new_tokens)
    batch, beside = _decode_beside(points)
    basis = _free(len(tokens), "tokens_s") + _scalars("attention_s") + beside
    fixed = {"tokens": tokens, "batch": batch}
    return [Shape(fixed, basis, ("tokens_s", "batch_context_s"))]


def _decode_beside(points: Points) -> tuple[list[int], Basis]:
    """Return knots and basis of the decoding requests, empty if none were measured."""
    if not points.counts()["mixed"]:
        return [], []
    knots = [0, *thinned(points.decoding[points.phase == 2], MOST_BATCH_KNOTS)]
    basis = _nondecreasing(len(knots), "batch_s", start=1)
    return knots, basis + _context_tents(knots, points)


def _step_knots(values: np.ndarray) -> list[int]:
    """Return knots on both sides of each power of two.

    An octave (low, 2·low] with more than three measured values also gets knots near
    1.125, 1.25 and 1.5 times low.
    """
    distinct = np.unique(np.asarray(values, np.int64))
    knots: set[int] = set()
    low = 0
    for high in 2 ** np.arange(0, 31):
        inside = distinct[(distinct > low) & (distinct <= high)]
        if len(inside):
            wanted = [inside[0], inside[-1]]
            for share in (1.125, 1.25, 1.5) if len(inside) > 3 else ():
                wanted.append(inside[np.argmin(abs(inside - share * low))])
            knots.update(int(value) for value in wanted)
        low = int(high)
    return sorted(knots)


DECODE_FORMS: dict[str, Form] = {
    "aladdin": _linear(*_PLANE),
    "interaction": _linear(*_PLANE, "per_mean_context_s"),
    "hinge": _decode_hinge,
    "saturation": _decode_saturation,
    "knots": _decode_knots,
    "steps": _decode_steps,
}
"""Forms of a decode iteration, simplest first."""

FUSED_FORMS: dict[str, Form] = {
    "aladdin": _fused_aladdin,
    "quadratic": _fused_quadratic,
    "hinge": _fused_hinge,
    "knots": _fused_knots,
    "steps": _fused_steps,
}
"""Forms of an iteration with prefill in it, simplest first."""


def assemble(
    kind: type[DecodeTerms] | type[FusedTerms], shape: Shape, coefficients: np.ndarray
) -> DecodeTerms | FusedTerms:
    """Return the terms of a shape with its coefficients."""
    sums: dict[str, Any] = {}
    for coefficient, term in zip(coefficients, shape.basis, strict=True):
        for key, unit in term.items():
            sums[key] = sums.get(key, 0.0) + coefficient * np.asarray(unit)
    plain = {key: np.asarray(value).tolist() for key, value in sums.items()}
    return kind(**shape.fixed, **plain)


def design(
    kind: type[DecodeTerms] | type[FusedTerms], shape: Shape, points: Points
) -> np.ndarray:
    """Return the design matrix, shape (points, coefficients). [s]"""
    beyond = shape.fixed.get("beyond_tokens")
    # FusedTerms needs a slope for each hinge, in the columns of other terms too.
    zeros = {"per_token_beyond_s": [0.0] * len(beyond)} if beyond else {}
    columns = [
        predict(kind(**{**zeros, **shape.fixed, **term}), points)
        for term in shape.basis
    ]
    return np.column_stack(columns)


_TIE = 0.02
"""Relative error that neighbours differing by 100 % count as."""


def tie_rows(shape: Shape, points: Points) -> np.ndarray:
    """Return rows that weakly draw neighbouring values together (regularisation).

    A batch size measured with few contexts leaves base and slope of its knot
    interchangeable, and without a tie one of them may end at 0. The rows change a
    fit by a fraction of a percent where points determine it. Shape (ties,
    coefficients).
    """
    rows: list[np.ndarray] = []
    for key in shape.ties:
        values = [np.asarray(term[key]) for term in shape.basis if key in term]
        if not values:
            continue
        zeros = np.zeros(len(values[0]))
        knots = np.column_stack(
            [np.asarray(term.get(key, zeros)) for term in shape.basis]
        )
        if key == "batch_context_s":
            share = np.max(points.decode_context / points.seconds)
            rows.append(_TIE * share * np.diff(knots, axis=0))
        else:
            at = np.asarray(shape.fixed[key.removesuffix("_s")])
            near_s = _near_seconds(at, points)
            rows.append(_TIE * np.diff(knots / near_s[:, None], axis=0))
    return np.vstack(rows) if rows else np.zeros((0, len(shape.basis)))


def _near_seconds(knots: np.ndarray, points: Points) -> np.ndarray:
    """Return the geometric mean of the times measured nearest to each knot. [s]"""
    nearest = np.abs(np.log(points.new_tokens[:, None] / knots)).argmin(axis=1)
    total = np.bincount(nearest, np.log(points.seconds), len(knots))
    count = np.bincount(nearest, minlength=len(knots))
    known = count > 0
    logs = np.interp(np.log(knots), np.log(knots[known]), total[known] / count[known])
    return np.exp(logs)


def predict(terms: DecodeTerms | FusedTerms, points: Points) -> np.ndarray:
    """Return the time of each point by one kind of terms, shape (points,). [s]"""
    b = points.decoding
    if isinstance(terms, DecodeTerms):
        return terms.base_s(b) + terms.context_s(b) * points.decode_context
    return (
        terms.tokens_time_s(points.prefill_tokens + b)
        + terms.decode_share_s(b)
        + terms.context_s(b) * points.decode_context
        + terms.attention_s * points.attention
    )


def iteration_s(decode: DecodeTerms, fused: FusedTerms, points: Points) -> np.ndarray:
    """Return the time of each point by the terms of its phase, shape (points,). [s]"""
    return np.where(points.phase == 1, predict(decode, points), predict(fused, points))
