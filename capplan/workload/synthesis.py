"""Generate requests: resample or extend a trace, draw lengths, share a prefix."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.workload.arrivals import MOST_RATE_PER_S, with_arrivals
from capplan.workload.forest import (
    arriving,
    begins_s,
    begun,
    joined_rows,
    joined_texts,
    session_of,
    take,
)
from capplan.workload.lengths import parse_lengths
from capplan.workload.trace import COLUMNS, MAX_TOKENS, MOST_REQUESTS, Trace

DEFAULT_REQUESTS = 10_000
_SYNTHETIC = "synthetic:"
_OUTSIDE_BRACKETS = re.compile(r",(?![^(]*\))")


def resample(trace: Trace, n: int, rng: np.random.Generator) -> Trace:
    """Return ``n`` requests drawn from a trace with replacement, without times.

    Correlations between columns stay; those between successive requests do not. Each
    ``len(trace)`` draws get prefix groups and sessions of their own: otherwise a longer
    trace would hit the prefix cache more often. A group of every request stays one.
    Of conversations whole sessions are drawn, as many as have ``n`` requests or more.
    """
    if n < 1:
        raise InputError(f"{n} requests asked for; expected at least 1")
    if trace.has_turns:
        return _drawn_sessions(trace, n, rng)
    rows = rng.integers(len(trace), size=n)
    drawn = trace.changed(arrival_s=None).select(rows)
    note = f"{n:,} requests drawn with replacement from {len(trace):,}"
    drawn = renumbered(drawn, trace, np.arange(n) // len(trace))
    return drawn.changed(notes=(*trace.notes, note))


def _drawn_sessions(trace: Trace, n: int, rng: np.random.Generator) -> Trace:
    """Return sessions drawn with replacement, of ``n`` rows or more, begun at 0 s."""
    count = np.bincount(session_of(trace))
    drawn = rng.integers(len(count), size=n)
    drawn = drawn[: int(np.searchsorted(np.cumsum(count[drawn]), n)) + 1]
    note = f"{len(drawn):,} sessions drawn with replacement from {len(count):,}"
    begin_s = None if trace.arrival_s is None else np.zeros(len(drawn))
    return take(trace, drawn, begin_s).changed(notes=(*trace.notes, note))


def extend(trace: Trace, n: int, rng: np.random.Generator) -> Trace:
    """Return a trace of at least ``n`` requests that begins with the given one.

    Requests are added by :func:`resample`, with the gaps of the trace in order, which
    repeats its bursts; of conversations whole sessions, with those between sessions.
    """
    missing = n - len(trace)
    if missing <= 0:
        return trace
    added = resample(trace, missing, rng)
    if trace.has_turns:
        added = _begun_later(added, trace)
    else:
        arrival_s = trace.arrival_s
        added = replace(added, arrival_s=_later_s(arrival_s, missing, trace.source))
        added = renumbered(added, trace, 1)
    longer = merged([trace, added])
    n = len(longer)
    note = f"extended from {len(trace):,} to {n:,} requests by drawing from them again"
    return replace(longer, notes=(*trace.notes, note))


def _begun_later(added: Trace, trace: Trace) -> Trace:
    """Return sessions that begin behind those of a trace, with the same gaps."""
    added = added.changed(session=added.session + int(trace.session.max()) + 1)
    if trace.arrival_s is None:
        return added
    count = int(session_of(added).max()) + 1
    later_s = _later_s(np.sort(begins_s(trace)), count, trace.source)
    assert later_s is not None
    return begun(added, later_s)


def merged(traces: Sequence[Trace]) -> Trace:
    """Return the requests of traces in order of arrival, of equal ones the first.

    Where some come after answers the traces stand one behind the other.
    """
    arrivals_s = [each.arrival_s for each in traces if each.arrival_s is not None]
    result = joined(*(each.changed(arrival_s=None) for each in traces))
    if len(arrivals_s) < len(traces):
        return result
    arrival_s = np.concatenate(arrivals_s)
    return arriving(result, arrival_s)


def joined(trace: Trace, *later: Trace) -> Trace:
    """Return a trace with the requests of others behind its own.

    Texts of the same name are one.
    """
    traces = (trace, *later)
    columns: dict[str, Any] = {
        name: None
        if all(each.is_default(name) for each in traces)
        else np.concatenate([column, *(getattr(each, name) for each in later)])
        for name in COLUMNS
        if (column := getattr(trace, name)) is not None
        and all(getattr(each, name) is not None for each in later)
    }
    if any(each.has_turns for each in traces):
        columns |= joined_rows(traces)
    if any(each.text_names != trace.text_names for each in later):
        columns |= joined_texts(traces)
    return replace(trace, **columns)


def renumbered(drawn: Trace, trace: Trace, repetition: np.ndarray | int) -> Trace:
    """Return requests drawn from a trace, of other groups in each repetition of it."""
    columns: dict[str, Any] = {}
    for name in ("prefix_group", "session"):
        number, known = getattr(drawn, name), getattr(trace, name)
        highest = int(known.max())
        if highest > int(known.min()):
            later = number + repetition * (highest + 1)
            columns[name] = np.where(number >= 0, later, number)
    return drawn.changed(**columns)


def _later_s(arrival_s: np.ndarray | None, n: int, source: str) -> np.ndarray | None:
    """Return ``n`` arrivals after the last of some; None when there are none. [s]"""
    if arrival_s is None:
        return None
    span_s = float(arrival_s[-1] - arrival_s[0])
    if not span_s > 0:
        raise InputError(
            f"{source}: all requests arrive at once, which is no rate to "
            "extend them with; expected times that differ, or --rate"
        )
    rate_per_s = (len(arrival_s) - 1) / span_s
    gaps_s = np.diff(arrival_s, prepend=arrival_s[0] - 1 / rate_per_s)
    return arrival_s[-1] + np.cumsum(np.resize(gaps_s, n))


def with_shared_prefix(trace: Trace, prefix_tokens: int) -> Trace:
    """Return the trace with the same tokens at the start of every prompt.

    Prompts keep their lengths: one shorter than the prefix lies within it. The
    trace's own prefix groups are replaced.
    """
    if not 0 <= prefix_tokens <= MAX_TOKENS:
        raise InputError(
            f"--shared-prefix is {prefix_tokens} tokens; expected 0 to {MAX_TOKENS}"
        )
    note = f"every prompt begins with the same {prefix_tokens:,} tokens"
    shorter = int((trace.prompt_tokens < prefix_tokens).sum())
    if shorter:
        note += f", cut for {shorter:,} of {len(trace):,} prompts that are shorter"
    return replace(
        trace,
        prefix_group=np.full(len(trace), 0 if prefix_tokens else -1, np.int64),
        prefix_tokens=np.minimum(prefix_tokens, trace.prompt_tokens),
        notes=(*trace.notes, note),
    )


def reshaped(
    trace: Trace,
    prefix_tokens: int | None = None,
    output_scale: float | None = None,
    max_new_tokens: int | None = None,
) -> Trace:
    """Return the trace with a shared prefix, other answers and limits, as asked for."""
    if prefix_tokens is not None:
        trace = with_shared_prefix(trace, prefix_tokens)
    if output_scale is not None:
        note = f"answers {output_scale:g} times as long; prompts as they are"
        trace = replace(
            with_output_scale(trace, output_scale), notes=(*trace.notes, note)
        )
    if max_new_tokens is not None:
        trace = with_max_new_tokens(trace, max_new_tokens)
    return trace


def with_max_new_tokens(trace: Trace, limit: int) -> Trace:
    """Return the trace with one limit of all answers; 0: each answer's own length."""
    longer = trace.output_tokens > limit
    if limit and longer.any():
        raise InputError(
            f"{trace.source}: {int(longer.sum()):,} answers are longer than "
            f"max_new_tokens {limit}, the longest {int(trace.output_tokens.max())} "
            "tokens; expected at least that, or 0 for each answer's own length"
        )
    return replace(trace, max_new_tokens=np.full(len(trace), limit, np.int64))


def with_output_scale(trace: Trace, factor: float) -> Trace:
    """Return the trace with answers, and what is foreseen of them, so often as long.

    Those that reach their ``max_new_tokens`` end there.
    """
    columns = {}
    for name in ("output_tokens", "predicted_output_tokens"):
        tokens = getattr(trace, name)
        if tokens is not None:
            columns[name] = np.maximum(1, np.rint(tokens * factor)).astype(np.int64)
    limit = trace.max_new_tokens
    answers = columns["output_tokens"]
    columns["output_tokens"] = np.where(limit > 0, np.minimum(answers, limit), answers)
    return replace(trace, **columns)


def synthesise(text: str, rng: np.random.Generator) -> Trace:
    """Return the requests written as ``synthetic:prompt=1024,output=256``.

    Lengths (see ``parse_lengths``) are drawn independently; ``n`` is the number of
    requests (default 10,000); ``rate`` and ``arrivals`` (default Poisson) add times.

    Examples
    --------
    >>> trace = synthesise("synthetic:prompt=8,output=2,n=3", np.random.default_rng(0))
    >>> trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    ([8, 8, 8], [2, 2, 2])
    """
    given = _parameters(text)
    n = int(_number(text, "n", given.pop("n", str(DEFAULT_REQUESTS)), whole=True))
    if n > MOST_REQUESTS:
        raise InputError(f"{text!r}: n is {n:,}; expected at most {MOST_REQUESTS:,}")
    columns: dict[str, Any] = {
        f"{name}_tokens": parse_lengths(given.pop(name)).draw(n, rng)
        for name in ("prompt", "output")
    }
    trace = Trace(**columns, source=text)
    rate = given.pop("rate", None)
    process = given.pop("arrivals", "poisson")
    if rate is None:
        return trace
    rate_per_s = _number(text, "rate", rate, whole=False)
    if rate_per_s > MOST_RATE_PER_S:
        raise InputError(
            f"{text!r}: rate is {rate_per_s:g} requests/s; expected at most "
            f"{MOST_RATE_PER_S:g}"
        )
    return with_arrivals(trace, rate_per_s, process, rng)


def _parameters(text: str) -> dict[str, str]:
    if not text.startswith(_SYNTHETIC):
        raise InputError(f"{text!r} does not begin with {_SYNTHETIC}")
    given: dict[str, str] = {}
    for part in _OUTSIDE_BRACKETS.split(text.removeprefix(_SYNTHETIC)):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        known = ("prompt", "output", "n", "rate", "arrivals")
        if not equals or name not in known or name in given:
            raise InputError(
                f"{text!r}: {part!r} is not understood; expected each of "
                f"{', '.join(known)} once at most, as in "
                "synthetic:prompt=1024,output=256"
            )
        given[name] = value
    for name in ("prompt", "output"):
        if name not in given:
            raise InputError(f"{text!r}: no {name}; expected {name}=TOKENS")
    return given


def _number(text: str, name: str, value: str, *, whole: bool) -> float:
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        kind = "a whole number" if whole else "a number"
        raise InputError(f"{text!r}: {name} is {value!r}; expected {kind} above 0")
    return number
