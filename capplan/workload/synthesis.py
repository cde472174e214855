"""Make requests: resampled, drawn from lengths, or with a shared prefix."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.workload.arrivals import ArrivalProcess, parse_arrivals, with_arrivals
from capplan.workload.lengths import parse_lengths
from capplan.workload.trace import MAX_TOKENS, Trace

DEFAULT_REQUESTS = 10_000
_SYNTHETIC = "synthetic:"
_OUTSIDE_BRACKETS = re.compile(r",(?![^(]*\))")


def resample(trace: Trace, n: int, rng: np.random.Generator) -> Trace:
    """Return ``n`` requests drawn from a trace with replacement, without times.

    A request is drawn whole (prompt, answer, class, prefix), so that what its
    columns have to do with one another is kept; what successive requests have
    to do with one another is not. Each pass over ``len(trace)`` draws gets
    prefix groups of its own, or a longer trace would find more in a prefix
    cache than the source did; a group that holds every request stays one.

    Parameters
    ----------
    trace
        The requests to draw from.
    n
        How many to draw.
    rng
        Source of the draws.

    Raises
    ------
    InputError
        When ``n`` is not positive.
    """
    if n < 1:
        raise InputError(f"{n} requests asked for; expected at least 1")
    rows = rng.integers(len(trace), size=n)
    group = trace.prefix_group[rows]
    lowest, highest = int(trace.prefix_group.min()), int(trace.prefix_group.max())
    if highest >= 0 and lowest != highest:
        draw_pass = np.arange(n) // len(trace)
        group = np.where(group >= 0, group + draw_pass * (highest + 1), group)
    drawn = replace(trace, arrival_s=None).select(rows)
    note = f"{n:,} requests drawn with replacement from {len(trace):,}"
    return replace(drawn, prefix_group=group, notes=(*trace.notes, note))


def extend(
    trace: Trace,
    n: int,
    rng: np.random.Generator,
    process: ArrivalProcess | str | None = None,
    rate_per_s: float | None = None,
) -> Trace:
    """Return a trace of ``n`` requests that begins with the given one.

    The requests added are drawn as ``resample`` draws them. Their arrivals go
    on with ``process`` at ``rate_per_s``; without a process the gaps of
    the trace are replayed from its start, as often as it takes, so that its
    bursts come again.

    Parameters
    ----------
    trace
        The requests to begin with; returned as they are when they are enough.
    n
        How many there shall be.
    rng
        Source of the draws.
    process
        How the arrivals were drawn; None when they are the source's own.
    rate_per_s
        Rate at which they were drawn; None takes the mean of the trace.
        [requests/s]
    """
    missing = n - len(trace)
    if missing <= 0:
        return trace
    added = resample(trace, missing, rng)
    highest = int(trace.prefix_group.max())
    if highest >= 0 and highest != int(trace.prefix_group.min()):
        group = added.prefix_group
        group = np.where(group >= 0, group + highest + 1, group)
        added = replace(added, prefix_group=group)
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(trace, name), getattr(added, name)])
        for name in (
            "prompt_tokens",
            "output_tokens",
            "request_class",
            "prefix_group",
            "prefix_tokens",
        )
    }
    arrival_s = None
    if trace.arrival_s is not None:
        arrival_s = np.concatenate(
            [
                trace.arrival_s,
                _later_arrivals_s(trace, missing, rng, process, rate_per_s),
            ]
        )
    predicted = None
    if trace.predicted_output_tokens is not None:
        predicted = np.concatenate(
            [trace.predicted_output_tokens, added.predicted_output_tokens]
        )
    note = f"extended from {len(trace):,} to {n:,} requests by drawing from them again"
    return replace(
        trace,
        **joined,
        arrival_s=arrival_s,
        predicted_output_tokens=predicted,
        notes=(*trace.notes, note),
    )


def with_shared_prefix(trace: Trace, prefix_tokens: int) -> Trace:
    """Return the trace with every prompt beginning with the same tokens.

    Prompts keep their lengths: one that is shorter than the prefix is all
    prefix. Groups that the trace had are replaced.

    Raises
    ------
    InputError
        When the count is negative or absurd.
    """
    if not 0 <= prefix_tokens <= MAX_TOKENS:
        raise InputError(
            f"--shared-prefix is {prefix_tokens} tokens; expected 0 to {MAX_TOKENS}"
        )
    note = f"every prompt begins with the same {prefix_tokens:,} tokens"
    return replace(
        trace,
        prefix_group=np.full(len(trace), 0 if prefix_tokens else -1, np.int64),
        prefix_tokens=np.minimum(prefix_tokens, trace.prompt_tokens),
        notes=(*trace.notes, note),
    )


def synthesise(text: str, rng: np.random.Generator) -> Trace:
    """Return the requests written as ``synthetic:prompt=1024,output=256``.

    Prompt and output are lengths as ``parse_lengths`` reads them, drawn
    independently; ``n`` says how many requests (10,000 by default), and ``rate``
    with ``arrivals`` gives them times.

    Examples
    --------
    >>> trace = synthesise("synthetic:prompt=8,output=2,n=3", np.random.default_rng(0))
    >>> trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    ([8, 8, 8], [2, 2, 2])
    """
    given = _parameters(text)
    n = int(_number(text, "n", given.pop("n", str(DEFAULT_REQUESTS)), whole=True))
    columns: dict[str, Any] = {
        f"{what}_tokens": parse_lengths(given.pop(what)).draw(n, rng)
        for what in ("prompt", "output")
    }
    trace = Trace(**columns, source=text)
    rate = given.pop("rate", None)
    process = given.pop("arrivals", "poisson")
    if rate is None:
        return trace
    rate_per_s = _number(text, "rate", rate, whole=False)
    return with_arrivals(trace, rate_per_s, process, rng)


def _later_arrivals_s(
    trace: Trace,
    n: int,
    rng: np.random.Generator,
    process: ArrivalProcess | str | None,
    rate_per_s: float | None,
) -> np.ndarray:
    assert trace.arrival_s is not None
    if not trace.duration_s > 0 and (process is None or rate_per_s is None):
        raise InputError(
            f"{trace.source}: all requests arrive at once, which is no rate to "
            "extend them with; expected times that differ, or --rate"
        )
    last_s = trace.arrival_s[-1]
    rate_per_s = rate_per_s or trace.rate_per_s
    if process is not None:
        if isinstance(process, str):
            process = parse_arrivals(process)
        later_s = process.arrivals_s(n + 1, rate_per_s, rng)
        return last_s + (later_s[1:] - later_s[0])
    gaps_s = np.diff(trace.arrival_s, prepend=trace.arrival_s[0] - 1 / trace.rate_per_s)
    return last_s + np.cumsum(np.resize(gaps_s, n))


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
    for what in ("prompt", "output"):
        if what not in given:
            raise InputError(f"{text!r}: no {what}; expected {what}=TOKENS")
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
