"""Sessions of a trace: what they are like, cut, mixed, without thoughts, as a CSV."""

from collections.abc import Sequence
from csv import writer
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.workload.forest import asked_s, begins_s, forest, session_of
from capplan.workload.stack_distance import HitCurve, hit_curve
from capplan.workload.synthesis import merged
from capplan.workload.trace import Trace

THINKING = ("kept", "dropped-at-user", "dropped-always")
"""What templates do with the thoughts of earlier answers."""

QUANTILES = (0.5, 0.9, 0.99)
SIZES = tuple(2.0**k for k in range(17, 30))
"""Caches of a hit curve. [tokens]"""

_HOUR_S = 3600.0
_TEMPLATE_TOKENS = 4
"""Of a prompt that the answer's template begins with, and its history does not."""


@dataclass(frozen=True)
class SessionFigures:
    """What the sessions of a trace are like."""

    session_count: int
    request_count: int
    agent_count: int  # besides the main ones
    quantiles: dict[str, np.ndarray]  # of each quantity, at QUANTILES
    means: dict[str, float]
    appends: int  # prompts that begin with all of their parent's prompt and answer
    cuts: int  # with part of them
    restarts: int  # with a text or nothing, but not the first of a session
    prefix_share: float  # of prompt tokens, that parents and texts have
    curve: HitCurve
    hours: np.ndarray  # sessions begun, requests and live sessions by hour, (h, 3)


def session_figures(
    trace: Trace, block_tokens: int, every_s: float = 60.0
) -> SessionFigures:
    """Return what the sessions of a trace are like.

    Sessions without times begin ``every_s`` one after the other.
    """
    session, at_s = session_of(trace), nominal_s(trace, every_s)
    order = np.argsort(at_s, kind="stable")
    trees = forest(trace, block_tokens)
    has, prefix = trace.parent >= 0, trace.prefix_tokens
    before = (trace.prompt_tokens + trace.output_tokens)[trace.parent]
    first = np.zeros(len(trace), bool)
    first[np.unique(session, return_index=True)[1]] = True
    of = {
        "turns": np.bincount(session),
        "prompt_tokens": trace.prompt_tokens,
        "new_tokens": trace.prompt_tokens - prefix,
        "output_tokens": trace.output_tokens,
    }
    agents = np.stack([session, trace.agent])[:, trace.agent != 0]
    if trace.has_waits and trace.think_s is not None:
        of["think_s"] = trace.think_s[trace.after >= 0]
    return SessionFigures(
        session_count=int(session.max()) + 1,
        request_count=len(trace),
        agent_count=len({*zip(*agents.tolist(), strict=True)}),
        quantiles={name: np.quantile(values, QUANTILES) for name, values in of.items()},
        means={name: float(values.mean()) for name, values in of.items()},
        appends=int((has & (prefix == before)).sum()),
        cuts=int((has & (prefix < before)).sum()),
        restarts=int((~has & ~first).sum()),
        prefix_share=float(prefix.sum() / trace.prompt_tokens.sum()),
        curve=hit_curve(trees, trace.prompt_tokens, order, block_tokens),
        hours=_hours(session, at_s),
    )


def nominal_s(trace: Trace, every_s: float) -> np.ndarray:
    """Return when requests came, or would if answers took no time, shape (n,). [s]"""
    session = session_of(trace)
    if trace.arrival_s is None:
        begin_s = 1.0 * every_s * np.arange(int(session.max()) + 1)
    else:
        begin_s = begins_s(trace, session)
    if trace.recorded_s is not None:
        first_s = np.full(len(begin_s), np.inf)
        np.minimum.at(first_s, session, trace.recorded_s)
        return trace.recorded_s + (begin_s - first_s)[session]
    at_s = begin_s[session] if trace.arrival_s is None else trace.arrival_s
    return asked_s(trace, at_s, np.zeros(len(trace)))


def _hours(session: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """Return sessions begun, requests, and live sessions by hour, shape (h, 3)."""
    hour = ((at_s - at_s.min()) // _HOUR_S).astype(np.int64)
    count, sessions = int(hour.max()) + 1, int(session.max()) + 1
    first, last = np.full(sessions, count), np.zeros(sessions, np.int64)
    np.minimum.at(first, session, hour)
    np.maximum.at(last, session, hour)
    begun = np.bincount(first, minlength=count + 1)[:count]
    ended = np.bincount(last + 1, minlength=count + 1)[:count]
    requests = np.bincount(hour, minlength=count)
    return np.stack([begun, requests, np.cumsum(begun - ended)], axis=1)


def cut(trace: Trace, count: int) -> Trace:
    """Return the first sessions of a trace, whole."""
    session = session_of(trace)
    note = f"the first {count:,} of {int(session.max()) + 1:,} sessions"
    return trace.select(np.flatnonzero(session < count)).changed(
        notes=(*trace.notes, note)
    )


def mixed(traces: Sequence[Trace]) -> Trace:
    """Return the sessions of traces together; texts of the same name are one."""
    names = tuple(dict.fromkeys(name for each in traces for name in each.class_names))
    parts, count = [], 0
    for each in traces:
        number = np.array([names.index(name) for name in each.class_names], np.int16)
        session = session_of(each)
        part = replace(
            each, class_names=names, request_class=number[each.request_class]
        )
        parts.append(part.changed(session=session + count))
        count += int(session.max()) + 1
    return merged(parts)


def with_thinking(trace: Trace, rule: str) -> Trace:
    """Return a trace whose prompts keep, or drop, the thoughts of earlier answers.

    Qwen3's template drops those before the last message of a user (``step`` 0), so a
    tool loop is computed again; others drop all. What goes on begins with the prompt
    before the first answer that lost thoughts, without the template's last tokens.
    """
    if rule not in THINKING:
        raise InputError(
            f"--thinking is {rule!r}; expected one of {', '.join(THINKING)}"
        )
    if rule == "kept":
        return trace
    thoughts = trace.reasoning_tokens
    if not thoughts.any():
        raise InputError(
            f"{trace.source}: no reasoning_tokens, so that --thinking has nothing to "
            "drop; expected the thoughts of each answer"
        )
    prompt, parent = trace.prompt_tokens.copy(), trace.parent.copy()
    whole, prefix = prompt + trace.output_tokens, trace.prefix_tokens.copy()
    inside = np.zeros(len(trace), np.int64)  # thoughts in the history of each prompt
    gone = inside.copy()  # of these, dropped
    for row in np.flatnonzero(parent >= 0):
        before, shared = int(trace.parent[row]), int(trace.prefix_tokens[row])
        while before >= 0 and shared < trace.prompt_tokens[before]:
            shared = min(shared, int(trace.prefix_tokens[before]))
            before = int(trace.parent[before])
        if before < 0:
            continue
        inside[row] = inside[before] + thoughts[before] * (shared >= whole[before])
        drops = rule == "dropped-always" or trace.step[row] == 0
        gone[row] = inside[row] if drops else gone[before]
        prompt[row] -= gone[row]
        prefix[row] -= gone[before]
        if gone[row] == gone[before]:
            continue
        while inside[before] > gone[before]:  # thoughts that its prompt still had
            before = int(trace.parent[before])
        parent[row] = before
        prefix[row] = min(prefix[row], max(0, prompt[before] - _TEMPLATE_TOKENS))
    note = f"thoughts in histories: {rule}, {gone.sum():,} tokens"
    changed = trace.changed(parent=parent, prefix_tokens=prefix)
    return replace(changed, prompt_tokens=prompt, notes=(*trace.notes, note))


def csv_text(trace: Trace) -> str:
    """Return a trace as a CSV that is read to the same conversations."""
    text = StringIO(newline="")
    rows = writer(text, lineterminator="\n")
    further = [k for k in ("step", "reasoning_tokens") if not trace.is_default(k)]
    further += ["class"] * (len(trace.class_names) > 1)
    header = (
        "id,arrival_s,prompt_tokens,output_tokens,parent,prefix_tokens,after,think_s"
    )
    rows.writerow([*header.split(","), "session", "turn", "agent", *further])
    groups = np.unique(trace.prefix_group[trace.prefix_group >= 0]).tolist()
    names: Any = trace.text_names or {group: f"text {group}" for group in groups}
    parents = [
        f"r{row}" if row >= 0 else names[text] if text >= 0 else ""
        for row, text in zip(
            trace.parent.tolist(), trace.prefix_group.tolist(), strict=True
        )
    ]
    afters = [f"r{row}" if row >= 0 else "" for row in trace.after.tolist()]
    for row, other in trace.joins.tolist():
        afters[row] += f";r{other}"
    waits = trace.after >= 0
    rows.writerows(
        zip(
            (f"r{row}" for row in range(len(trace))),
            _cells(trace.arrival_s, ~waits),
            trace.prompt_tokens.tolist(),
            trace.output_tokens.tolist(),
            parents,
            trace.prefix_tokens.tolist(),
            afters,
            _cells(trace.think_s, waits),
            session_of(trace).tolist(),
            trace.turn.tolist(),
            trace.agent.tolist(),
            *(
                [trace.class_names[k] for k in trace.request_class]
                if name == "class"
                else getattr(trace, name).tolist()
                for name in further
            ),
            strict=True,
        )
    )
    return text.getvalue()


def _cells(values: np.ndarray | None, rows: np.ndarray) -> list[Any]:
    """Return values at some rows, and empty cells."""
    if values is None:
        return [""] * len(rows)
    return [
        v if at else "" for v, at in zip(values.tolist(), rows.tolist(), strict=True)
    ]
