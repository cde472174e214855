"""Fit a latency model to measured iterations and choose its form.

Errors are relative, coefficients are >= 0, and the form is chosen by its
cross-validated error on points, and on whole batch sizes or token counts, left out.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from capplan.errors import ProfileError
from capplan.latency.forms import (
    DECODE_FORMS,
    FUSED_FORMS,
    Form,
    Shape,
    assemble,
    design,
    iteration_s,
    predict,
    tie_rows,
)
from capplan.latency.least_squares import relative_nnls
from capplan.latency.measurements import Points
from capplan.latency.profile import ErrorRecord
from capplan.latency.terms import DecodeTerms, FusedTerms

_BATCH = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
FOLDS = 5
_SEED = 20240611
_NOISE = 0.004  # measurements repeat no better; smaller differences do not count

Terms = DecodeTerms | FusedTerms


class FormScore(NamedTuple):
    """Held-out errors of one form; a row of the table that explains the choice."""

    part: str
    """``decode`` or ``fused``."""
    form: str
    coefficients: int
    held_out_points: float
    held_out_groups: float
    """Error on batch sizes (decode) or token counts (fused) left out whole."""
    chosen: bool = False
    reason: str = ""

    @property
    def score(self) -> float:
        """Mean of both held-out errors, points counting twice."""
        return (2 * self.held_out_points + self.held_out_groups) / 3


class Fit(NamedTuple):
    """A fitted latency model, its errors by phase and the scores of all forms."""

    decode: DecodeTerms
    fused: FusedTerms
    decode_form: str
    fused_form: str
    errors: dict[str, ErrorRecord]
    scores: list[FormScore]


class _Part(NamedTuple):
    name: str
    kind: type[DecodeTerms] | type[FusedTerms]
    forms: dict[str, Form]
    points: Points
    group: np.ndarray  # batch size or token count of each point


def fit(
    points: Points,
    *,
    form: str | None = None,
    decode_form: str | None = None,
    fused_form: str | None = None,
    expert_rate: float | None = None,
) -> Fit:
    """Fit decode iterations and iterations with prefill, choosing the form of each.

    Mixed points are optional. A form that is not given, for both or for one, is chosen
    by cross-validation. ``expert_rate`` is the initial saturation rate of a mixture of
    experts, ``-log(1 - experts per token / experts)``.
    """
    _check_form(form, {**DECODE_FORMS, **FUSED_FORMS})
    _check_form(decode_form, DECODE_FORMS)
    _check_form(fused_form, FUSED_FORMS)
    counts = points.counts()
    for name in ("prefill", "decode"):
        if not counts[name]:
            raise ProfileError(f"no {name} point was given; a profile needs both")
    rows = points.of("decode")
    part = _Part("decode", DecodeTerms, DECODE_FORMS, rows, rows.batch)
    decode, decode_held_out, decode_scores = _choose(
        part, decode_form or (form if form in DECODE_FORMS else None), expert_rate
    )
    rows = points.of("prefill", "mixed")
    part = _Part("fused", FusedTerms, FUSED_FORMS, rows, rows.new_tokens)
    fused, fused_held_out, fused_scores = _choose(
        part, fused_form or (form if form in FUSED_FORMS else None), expert_rate
    )
    assert isinstance(decode, DecodeTerms)
    assert isinstance(fused, FusedTerms)
    held_out_s = np.empty(len(points.seconds))
    held_out_s[points.phase == 1] = decode_held_out
    held_out_s[points.phase != 1] = fused_held_out
    scores = decode_scores + fused_scores
    chosen = {row.part: row.form for row in scores if row.chosen}
    return Fit(
        decode=decode,
        fused=_completed(fused, decode, points),
        decode_form=chosen["decode"],
        fused_form=chosen["fused"],
        errors=_phase_errors(points, iteration_s(decode, fused, points), held_out_s),
        scores=scores,
    )


def _phase_errors(
    points: Points, fitted_s: np.ndarray, held_out_s: np.ndarray
) -> dict[str, ErrorRecord]:
    """Return the relative errors of two predictions of the same points, by phase."""
    errors = {}
    for name, rows in points.phases().items():
        fitted = fitted_s[rows] / points.seconds[rows] - 1
        unseen = held_out_s[rows] / points.seconds[rows] - 1
        unseen = unseen[np.isfinite(unseen)]
        if not len(unseen):
            unseen = fitted
        errors[name] = ErrorRecord.of(int(rows.sum()), fitted, unseen)
    return errors


def _check_form(form: str | None, forms: dict[str, Form]) -> None:
    if form is not None and form not in forms:
        raise ProfileError(f"form {form!r} is unknown; expected {', '.join(forms)}")


def _choose(
    part: _Part, form: str | None, rate: float | None
) -> tuple[Terms, np.ndarray, list[FormScore]]:
    """Return the terms, their held-out predictions and the scores of all forms."""
    count = len(part.points.seconds)
    scores: list[FormScore] = []
    held_out: dict[str, np.ndarray] = {}
    for name in [form] if form else part.forms:
        shapes = part.forms[name](part.points, rate)
        needed = min((len(shape.basis) for shape in shapes), default=0) + 1
        if not shapes or count < needed:
            if form:
                raise ProfileError(
                    f"{part.name} form {name!r} needs at least {max(needed, 3)} points "
                    f"at {max(needed, 3)} different places; {count} were given"
                )
            continue
        held_out[name] = _held_out(part, name, rate, _random_folds(part.group))
        grouped = _held_out(part, name, rate, _group_folds(part.group))
        scores.append(
            FormScore(
                part.name,
                name,
                len(shapes[0].basis),
                _mean_error(part.points, held_out[name]),
                _mean_error(part.points, grouped),
            )
        )
    if not scores:
        raise ProfileError(
            f"{count} {part.name} points are too few for any form; the simplest needs 4"
        )
    scores = _mark(scores, forced=form is not None)
    chosen = next(row.form for row in scores if row.chosen)
    terms = _best(part, part.forms[chosen](part.points, rate), part.points)
    return terms, held_out[chosen], scores


def _mark(scores: list[FormScore], forced: bool) -> list[FormScore]:
    """Choose the form with fewest coefficients that is within noise of the best."""
    if forced:
        return [scores[0]._replace(chosen=True, reason="given")]
    best = min(row.score for row in scores)
    enough = best * 1.1 + _NOISE
    chosen = min(
        (row for row in scores if row.score <= enough), key=lambda row: row.coefficients
    )

    def reason(row: FormScore) -> str:
        if row is chosen and row.score == best:
            return "least error at points not fitted to"
        if row is chosen:
            return f"simplest within noise of the best ({100 * best:.2f} %)"
        if row.score <= enough:
            return "no better with more coefficients"
        return f"error at points not fitted to {100 * row.score:.2f} %"

    return [row._replace(chosen=row is chosen, reason=reason(row)) for row in scores]


def _mean_error(points: Points, predicted_s: np.ndarray) -> float:
    """Return the mean over the phases of their mean relative error."""
    error = np.abs(predicted_s / points.seconds - 1)
    known = np.isfinite(error)
    phases = np.unique(points.phase[known])
    means = [error[known & (points.phase == code)].mean() for code in phases]
    return float(np.mean(means)) if means else np.inf


def _random_folds(group: np.ndarray) -> Iterator[np.ndarray]:
    """Leave out points at random, but never the only one at the smallest or largest.

    Leaving that out would test extrapolation, which is reported separately.
    """
    fold = np.random.default_rng(_SEED).permutation(len(group)) % FOLDS
    for end in (group.min(), group.max()):
        if (group == end).sum() == 1:
            fold[group == end] = -1
    return (fold == k for k in range(FOLDS))


def _group_folds(group: np.ndarray) -> Iterator[np.ndarray]:
    """Leave out whole batch sizes or token counts, never the smallest and largest."""
    inner = np.unique(group)[1:-1]
    fold = np.where(np.isin(group, inner), np.searchsorted(inner, group) % FOLDS, -1)
    return (fold == k for k in range(FOLDS))


def _held_out(
    part: _Part, name: str, rate: float | None, folds: Iterator[np.ndarray]
) -> np.ndarray:
    """Return the prediction of each point by a fit without it; nan if in no fold."""
    predicted_s = np.full(len(part.points.seconds), np.nan)
    for left_out in folds:
        rest = part.points.where(~left_out)
        shapes = part.forms[name](rest, rate)
        if left_out.any() and shapes:
            terms = _best(part, shapes, rest)
            predicted_s[left_out] = predict(terms, part.points.where(left_out))
    return predicted_s


def _best(part: _Part, shapes: list[Shape], points: Points) -> Terms:
    """Return the terms of the shape with the least squared relative error."""
    least: float | None = None
    for shape in shapes:
        columns = design(part.kind, shape, points)
        coefficients = relative_nnls(columns, points.seconds, tie_rows(shape, points))
        loss = float(np.mean((columns @ coefficients / points.seconds - 1) ** 2))
        if least is None or loss < least:
            least, best = loss, assemble(part.kind, shape, coefficients)
    return best


def _completed(fused: FusedTerms, decode: DecodeTerms, points: Points) -> FusedTerms:
    """Return the fused terms with what was not measured taken from decode."""
    fused = few_tokens_like_decode(fused, decode)
    if points.counts()["mixed"]:
        return fused
    largest = int(points.batch[points.phase == 1].max())
    return decode_beside_prefill(fused, decode, largest)


def few_tokens_like_decode(fused: FusedTerms, decode: DecodeTerms) -> FusedTerms:
    """Return fused terms with knots added below the fewest tokens measured.

    They follow the decode curve, scaled to meet the first knot: with few tokens
    both kinds of iteration mostly read all weights. Terms without knots are returned
    unchanged.
    """
    if not fused.tokens or fused.tokens[0] <= 1:
        return fused
    first = fused.tokens[0]
    few = [batch for batch in _BATCH if batch < first]
    base_s = decode.base_s(np.array([*few, first], np.float64))
    share = np.minimum(np.maximum.accumulate(base_s) / base_s.max(), 1.0)
    low_s = (fused.tokens_s[0] * share[:-1]).tolist()
    tokens, tokens_s = [*few, *fused.tokens], [*low_s, *fused.tokens_s]
    return fused.model_copy(update={"tokens": tokens, "tokens_s": tokens_s})


def decode_beside_prefill(
    fused: FusedTerms, decode: DecodeTerms, largest_batch: int
) -> FusedTerms:
    """Return fused terms in which decoding requests cost as much as without prefill.

    Their context costs the same, and an iteration never takes less than a decode
    iteration of its decoding requests. ``largest_batch`` is the largest measured.
    """
    knots = [batch for batch in _BATCH if batch < largest_batch] + [largest_batch]
    batch = np.array(knots, np.float64)
    beside_s = np.maximum(decode.base_s(batch) - fused.tokens_time_s(batch), 0)
    context_s = decode.context_s(batch).tolist()
    return fused.model_copy(
        update={
            "batch": [0, *knots],
            "batch_s": [0.0, *np.maximum.accumulate(beside_s).tolist()],
            "batch_context_s": [context_s[0], *context_s],
        }
    )
