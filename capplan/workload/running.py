"""Sessions that run: so many at once, or begun at a rate, found in the middle."""

from dataclasses import dataclass, replace

import numpy as np

from capplan.errors import InputError
from capplan.workload.forest import (
    NONE,
    arriving,
    asked_s,
    begun,
    rows_left,
    session_of,
    take,
    waiting,
)
from capplan.workload.midway import midway
from capplan.workload.slo import FIRST, TURN
from capplan.workload.trace import Trace

MOST_LANES = 1_000_000
"""Sessions that may run at once."""

_SUMMARY_TOKENS = 3000
"""Behind its text, with which a compacted session goes on."""
_SPARE = 6.0
"""Standard deviations by which more sessions are drawn than a sample should need."""


@dataclass(frozen=True)
class Sessions:
    """How many sessions run at once, or at which rate they begin, and since when.

    A lane runs one session after the other. One of both is given.
    """

    lanes: int | None = None
    rate_per_s: float | None = None  # begun, a Poisson process [sessions/s]
    # Share of its time in which a session is found that runs when a sample begins,
    # from and to; None: as sessions are found at any moment, long ones more often
    snapshot: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.lanes is None:
            return f"sessions begun at {self.rate_per_s:.4g}/s"
        return f"{self.lanes:,} session{'s' * (self.lanes != 1)} at once"

    def running(self, mean_s: float) -> float:
        """Return how many run in the mean, of sessions that last so long. [s]"""
        return self.lanes or (self.rate_per_s or 0.0) * mean_s

    def drawn(
        self, mix: "Mix", rng: np.random.Generator, until_s: float = np.inf
    ) -> Trace:
        """Return whole sessions drawn with replacement, begun until a time. [s]

        Those that run at the begin are found at a moment of theirs: the turn before it
        of each agent asks for one token, so that its KV is there, and the others wait
        for the rest of their time. Copies of a session share their texts alone.
        """
        first = self._found(mix, rng)
        later, begin_s = self._later(mix, rng, until_s)
        low, high = self.snapshot or (0.0, 1.0)
        at_s = rng.uniform(low, high, len(first)) * mix.lasts_s[first]
        numbers = np.concatenate([first, later])
        trace = take(mix.trace, numbers).changed(asked_until_s=until_s)
        trace = midway(trace, mix.drawn_start_s(numbers), at_s)
        if self.lanes is not None:
            return trace.changed(users=self.lanes)
        begin_s = np.concatenate([np.zeros(len(first)), begin_s])
        wait_s = np.zeros(len(trace)) if trace.think_s is None else trace.think_s
        arrival_s = np.where(
            trace.after >= 0, np.nan, begin_s[session_of(trace)] + wait_s
        )
        return trace.changed(arrival_s=arrival_s)

    def _found(self, mix: "Mix", rng: np.random.Generator) -> np.ndarray:
        count = self.lanes
        if count is None:
            mean_s = float(mix.lasts_s.mean())
            count = int(rng.poisson(self.running(mean_s)))
        share = None
        if self.snapshot is None:
            share = mix.lasts_s / mix.lasts_s.sum()
        return rng.choice(len(mix.lasts_s), count, p=share)

    def _later(
        self, mix: "Mix", rng: np.random.Generator, until_s: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the sessions that begin later, and when where that is known. [s]"""
        if not np.isfinite(until_s):
            raise InputError("sessions run for ever; expected a time until which")
        if self.lanes is None:
            count = int(rng.poisson((self.rate_per_s or 0.0) * until_s))
            begin_s = np.sort(rng.uniform(0.0, until_s, count))
        else:
            # Renewals of each lane (Cox, "Renewal Theory", 1962, section 4.1), if
            # answers take as long as alone: others begin later.
            mean_s, sd_s = float(mix.lasts_s.mean()), float(mix.lasts_s.std())
            each, varies = until_s / mean_s, (sd_s / mean_s) ** 2
            spread = _SPARE * np.sqrt(self.lanes * (varies * each + 1))
            count = int(self.lanes * (each + varies + 1) + spread)
            begin_s = np.zeros(0)
        return rng.integers(len(mix.lasts_s), size=count), begin_s


ONE_SESSION = Sessions(1)
"""One session after the other."""


class Mix:
    """Sessions to draw from, and how they would run if each request ran alone."""

    def __init__(self, trace: Trace, stay_s: np.ndarray) -> None:
        """Take sessions without times; ``stay_s`` of each request, shape (n,). [s]"""
        self.trace = trace
        label = session_of(trace)
        self._rows = np.argsort(label, kind="stable")
        self._ends = np.cumsum(np.bincount(label))
        # from the begin of its session [s]
        self.start_s = asked_s(trace, np.zeros(len(trace)), stay_s)
        self.lasts_s = np.zeros(len(self._ends))  # each session [s]
        np.maximum.at(self.lasts_s, label, self.start_s + stay_s)
        self.turns = np.bincount(label)  # of each session
        context = trace.prompt_tokens + trace.output_tokens
        # KV tokens of a session in the mean over its time [tokens]
        self.context_tokens = _held(label, self.start_s, self.lasts_s, context)
        # of tokens of contexts, that are no text which other sessions share
        self.own_share = 1 - float(_text_tokens(trace).sum() / context.sum())

    def drawn_start_s(self, sessions: np.ndarray) -> np.ndarray:
        """Return when rows begin of sessions, as ``forest.take`` has them. [s]"""
        first = self._ends - self.turns
        rows = [self._rows[first[k] : self._ends[k]] for k in sessions.tolist()]
        return np.concatenate([self.start_s[each] for each in rows])


def _held(
    label: np.ndarray, start_s: np.ndarray, lasts_s: np.ndarray, context: np.ndarray
) -> float:
    """Return the tokens of a running session in the mean over all its time.

    From the begin of a turn to that of the next its KV is that turn's.
    """
    order = np.lexsort((start_s, label))
    same = label[order][1:] == label[order][:-1]
    until_s = lasts_s[label[order]]
    until_s[:-1][same] = start_s[order][1:][same]
    width_s = until_s - start_s[order]
    return float((context[order] * width_s).sum() / max(width_s.sum(), 1e-9))


def _text_tokens(trace: Trace) -> np.ndarray:
    """Return the tokens of a text that each prompt begins with, shape (n,)."""
    texts = (trace.prefix_group >= 0).tolist()
    shared, found = trace.prefix_tokens.tolist(), [0] * len(trace)
    for row, before in enumerate(trace.parent.tolist()):
        if before >= 0:
            found[row] = min(found[before], shared[row])
        elif texts[row]:
            found[row] = shared[row]
    return np.array(found)


def capped(trace: Trace, most_s: float) -> Trace:
    """Return a trace of which no wait for a user or a tool is longer. [s]"""
    if trace.think_s is None or not (long := trace.think_s > most_s).any():
        return trace
    note = f"{int(long.sum()):,} waits cut at {most_s:g} s"
    think_s = np.minimum(trace.think_s, most_s)
    return trace.changed(think_s=think_s, notes=(*trace.notes, note))


def within(trace: Trace, most_tokens: int, rule: str) -> Trace:
    """Return sessions of which no turn is longer than an LLM takes. [tokens]

    They ``end`` before such a turn, or are ``compact``: the turn begins with the text
    and a summary, and what follows is shorter by as much. One that is too long even
    then ends.
    """
    long = trace.prompt_tokens + trace.output_tokens > most_tokens
    if not long.any():
        return trace
    return _compacted(trace, most_tokens) if rule == "compact" else _ended(trace, long)


def _ended(trace: Trace, long: np.ndarray) -> Trace:
    gone = long.copy()
    waits, waited = waiting(trace)
    child = np.flatnonzero(trace.parent >= 0)
    left = np.concatenate([waits, child])
    right = np.concatenate([waited, trace.parent[child]])
    before = -1
    while before != (before := int(gone.sum())):
        gone[left[gone[right]]] = True
    if gone.all():
        raise InputError(
            f"{trace.source}: no session has a turn that the LLM takes; expected "
            "shorter prompts, or --at-limit compact"
        )
    ended = len(np.unique(session_of(trace)[long]))
    note = f"{ended:,} sessions end at the LLM's length, {int(gone.sum()):,} turns less"
    rows = np.flatnonzero(~gone)
    left_over = rows_left(rows, trace.parent, trace.after, trace.joins)
    return trace.rows_of(rows, **left_over).changed(notes=(*trace.notes, note))


def _compacted(trace: Trace, most_tokens: int) -> Trace:
    prompt, prefix = trace.prompt_tokens.copy(), trace.prefix_tokens.copy()
    parent, group = trace.parent.copy(), trace.prefix_group.copy()
    shorter, text = np.zeros(len(trace), np.int64), _text_tokens(trace)
    count = 0
    for row in range(len(trace)):
        before = int(trace.parent[row])
        if before >= 0:
            group[row] = group[before]
            shorter[row] = shorter[before]
        new = int(prompt[row] - prefix[row])
        prompt[row] = max(prompt[row] - shorter[row], new)
        prefix[row] = max(prefix[row] - shorter[row], 0)
        if before >= 0 and prompt[row] + trace.output_tokens[row] > most_tokens:
            compact = int(text[row]) + _SUMMARY_TOKENS + new
            shorter[row] += prompt[row] - compact
            prompt[row], prefix[row], parent[row] = compact, text[row], NONE
            count += 1
    group[parent >= 0] = NONE
    note = f"{count:,} turns compacted at the LLM's length"
    notes = (*trace.notes, note)
    changed = replace(
        trace,
        prompt_tokens=prompt,
        parent=parent,
        prefix_group=group,
        prefix_tokens=prefix,
        notes=notes,
    )
    long = changed.prompt_tokens + changed.output_tokens > most_tokens
    return _ended(changed, long) if long.any() else changed


def with_first(trace: Trace) -> Trace:
    """Return conversations whose first turns are a class of their own."""
    of, names = trace.request_class.copy(), trace.class_names
    of[np.unique(session_of(trace), return_index=True)[1]] = len(names)
    names = (TURN,) if names == ("all",) else names
    return replace(trace, class_names=(*names, FIRST), request_class=of)


def replayed(trace: Trace) -> Trace:
    """Return turns that arrive when they were recorded, whatever becomes of answers."""
    at_s = trace.recorded_s
    if at_s is None or not trace.has_waits:
        raise InputError(
            f"{trace.source}: no recorded times of turns that come after answers; "
            "expected a recording, or no --replay open"
        )
    alone = trace.changed(
        after=np.full(len(trace), NONE),
        joins=np.zeros((0, 2), np.int64),
        arrival_s=None,
        think_s=None,
    )
    return arriving(alone, at_s - at_s.min())


def timeless(trace: Trace) -> Trace:
    """Return conversations without the times at which they began."""
    if trace.arrival_s is None:
        return trace
    zero = begun(trace, np.zeros(int(session_of(trace).max()) + 1))
    think_s = np.zeros(len(trace)) if zero.think_s is None else zero.think_s
    arrival_s = zero.arrival_s
    assert arrival_s is not None
    think_s = np.where(zero.after >= 0, think_s, arrival_s)
    return zero.changed(arrival_s=None, think_s=think_s)
