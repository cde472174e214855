"""Trees of prompts and answers: who shares whose tokens, and who waits for whom.

A prompt begins with ``prefix_tokens`` of its parent's prompt and answer, or of a text
(``prefix_group``). Block k of a prompt, tokens kB to (k + 1)B - 1, is its parent's
where (k + 1)B <= ``prefix_tokens``, else its own.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from capplan.errors import InputError

if TYPE_CHECKING:
    from capplan.workload.trace import Trace

NONE = -1


class Forest(NamedTuple):
    """Trees of a trace in blocks. Nodes are its n rows, then its texts.

    ``first_block`` rises along every chain of parents, so blocks [``first_block``,
    ``end_block``) of a node are its own and those before are its ancestors'.
    """

    parent: np.ndarray  # nearest node that has blocks of the prefix, or -1
    first_block: np.ndarray  # first of its own blocks
    end_block: np.ndarray  # blocks full when it has been answered; a text's: all


class Followers(NamedTuple):
    """Which of n rows wait for the answer of each."""

    first: np.ndarray  # (n + 1,): where those of each row begin
    rows: np.ndarray  # in ``rows``, in their order
    pending: np.ndarray  # (n,): for how many answers each row waits


def forest(trace: "Trace", block_tokens: int) -> Forest:
    """Return the trees of a trace in blocks of so many tokens."""
    n = len(trace)
    groups, group = np.unique(trace.prefix_group, return_inverse=True)
    texts = groups >= 0
    length = np.zeros(len(groups), np.int64)
    prefix = np.minimum(trace.prefix_tokens, trace.prompt_tokens)
    np.maximum.at(length, group, prefix)
    text_node = np.where(texts, n + np.cumsum(texts) - 1, NONE)
    none = np.full(int(texts.sum()), NONE)
    parent = np.where(trace.parent >= 0, trace.parent, text_node[group])
    parent = np.concatenate([parent, none])
    first = np.concatenate([prefix // block_tokens, none * 0])
    first[parent < 0] = 0
    kv_tokens = trace.prompt_tokens + trace.output_tokens - 1  # the last has none
    end = np.concatenate([kv_tokens, length[texts]]) // block_tokens
    # A node that shares no more than its parent does shares it with the parent's
    # parent; each round follows parents that have moved, so rounds are few.
    rows = np.flatnonzero(parent >= 0)
    while len(rows := rows[first[rows] <= first[parent[rows]]]):
        parent[rows] = parent[parent[rows]]
        rows = rows[parent[rows] >= 0]
    first[parent < 0] = 0  # of those that share nothing with any
    return Forest(parent, first, end)


def longest_path(parent: np.ndarray) -> int:
    """Return how many nodes the longest path of parents has."""
    count, at = 0, np.arange(len(parent))
    while len(at):
        count, at = count + 1, parent[at]
        at = at[at >= 0]
    return count


def followers(trace: "Trace") -> Followers:
    """Return which rows of a trace wait for the answer of each."""
    n = len(trace)
    waits, waited = waiting(trace)
    order = np.argsort(waited, kind="stable")
    first = np.searchsorted(waited[order], np.arange(n + 1)).astype(np.int64)
    pending = np.bincount(waits, minlength=n).astype(np.int64)
    return Followers(first, waits[order], pending)


def waiting(trace: "Trace") -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that wait for answers, and for that of which row, (m,) each."""
    waits = np.flatnonzero(trace.after >= 0)
    return (
        np.concatenate([waits, trace.joins[:, 0]]),
        np.concatenate([trace.after[waits], trace.joins[:, 1]]),
    )


def session_of(trace: "Trace") -> np.ndarray:
    """Return the session of each row, from 0 in order of their first rows, (n,).

    Rows are of one session where one is the parent of the other or waits for it, or
    where they have the same ``session``.
    """
    n = len(trace)
    if not trace.has_turns and trace.is_default("session"):
        return np.arange(n)
    waits, waited = waiting(trace)
    child = np.flatnonzero(trace.parent >= 0)
    named = np.flatnonzero(trace.session >= 0)
    _, first, same = np.unique(
        trace.session[named], return_index=True, return_inverse=True
    )
    a = np.concatenate([waits, child, named])
    b = np.concatenate([waited, trace.parent[child], named[first[same]]])
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(a), np.int8), (a, b)), (n, n))
    _, label = connected_components(edges, directed=False)
    _, first, label = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[label])


def first_wrong(columns: Any) -> tuple[int, str, str] | None:
    """Return the first row whose turn cannot be, its column, and what is expected."""
    parent, after = columns.parent, columns.after
    n = len(parent)
    rows = np.arange(n)
    has_parent = parent >= 0
    own, prefix = columns.prompt_tokens, columns.prefix_tokens
    whole = (own + columns.output_tokens)[np.where(parent < n, parent, 0)]
    checks: list[tuple[np.ndarray, str, str]] = [
        (parent >= rows, "parent", "a request of a row before it"),
        (
            has_parent & (columns.prefix_group >= 0),
            "parent",
            "no prefix_group beside it",
        ),
        (
            has_parent & (prefix > np.minimum(whole, own)),
            "prefix_tokens",
            "at most {most}, the tokens of the prompt, and of its parent's prompt and "
            "answer",
        ),
        (after >= n, "after", f"a row before {n + 1}"),
    ]
    if columns.arrival_s is not None:
        both = (after >= 0) & np.isfinite(columns.arrival_s)
        checks.append((both, "arrival_s", "none beside after"))
        neither = (after < 0) & ~np.isfinite(columns.arrival_s)
        checks.append((neither, "arrival_s", "a time, or a row that it comes after"))
    wrong = [(int(np.argmax(at)), name, said) for at, name, said in checks if at.any()]
    if wrong:
        row, name, said = min(wrong, key=lambda found: found[0])
        return row, name, said.format(most=min(int(whole[row]), int(own[row])))
    if (at := _in_cycle(columns)) is None:
        return None
    return at, "after", "no request that waits for this one itself"


def _in_cycle(trace: Any) -> int | None:
    """Return the first row that waits for itself, if any."""
    waits, waited = waiting(trace)
    if (waited < waits).all():
        return None
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, alone = len(trace.parent), waits == waited
    edges = coo_array((np.ones(len(waits), np.int8), (waits, waited)), (n, n))
    _, label = connected_components(edges, connection="strong")
    size = np.bincount(label)[label]
    size[waits[alone]] = 2
    return int(np.argmax(size > 1)) if (size > 1).any() else None


def renumbered_rows(trace: "Trace", rows: np.ndarray | slice) -> dict[str, Any]:
    """Return ``parent``, ``after`` and ``joins`` of selected rows.

    Refuses rows that cut a session, and rows that are selected twice.
    """
    kept = np.arange(len(trace))[rows]
    session, is_kept = session_of(trace), np.zeros(len(trace), bool)
    is_kept[kept] = True
    has_row = np.zeros(int(session.max()) + 1, bool)
    has_row[session[kept]] = True
    cut = has_row[session] & ~is_kept
    if cut.any() or len(kept) > len(np.unique(kept)):
        row = int(np.argmax(cut))
        which = "is left out of its session" if cut.any() else "would be taken twice"
        raise InputError(
            f"{trace.source}: row {row + 1} {which}, of {cut.sum():,} such rows; "
            "expected whole sessions (capplan trace cut --sessions N keeps the first N)"
        )
    return rows_left(kept, trace.parent, trace.after, trace.joins)


def rows_left(
    kept: np.ndarray, parent: np.ndarray, after: np.ndarray, joins: np.ndarray
) -> dict[str, np.ndarray]:
    """Return ``parent``, ``after`` and ``joins`` of the rows that are left.

    What is left shares with and waits for none of the others.
    """
    to = np.full(len(parent) + 1, NONE)  # the last stands for none
    to[kept] = np.arange(len(kept))
    joins = to[joins]
    return {
        "parent": to[parent[kept]],
        "after": to[after[kept]],
        "joins": joins[joins.min(axis=1, initial=0) >= 0],
    }


def asked_s(trace: "Trace", at_s: np.ndarray, stay_s: np.ndarray) -> np.ndarray:
    """Return when each request is asked where those that wait for none are at a time.

    ``stay_s``: how long each takes to be answered. Shape (n,) each. [s]
    """
    think_s = np.zeros(len(trace)) if trace.think_s is None else trace.think_s
    waits, waited = waiting(trace)
    at_s = np.where(trace.after >= 0, -np.inf, at_s)
    changed = np.ones(len(trace), bool)
    while changed.any():  # as often as waits stand behind each other
        known = changed[waited] & np.isfinite(at_s[waited])
        later_s, rows, of = at_s.copy(), waits[known], waited[known]
        np.maximum.at(later_s, rows, at_s[of] + stay_s[of] + think_s[rows])
        changed = later_s != at_s
        at_s = later_s
    return at_s


def take(
    trace: "Trace", sessions: np.ndarray, begin_s: np.ndarray | None = None
) -> "Trace":
    """Return whole sessions of a trace, each as often as it is named.

    Parameters
    ----------
    sessions : np.ndarray
        Numbers as of :func:`session_of`, in the order of their first rows.
    begin_s : np.ndarray, optional
        When each begins: its first arrival; the others keep their distance. [s]

    Copies of a session share their texts and nothing else.
    """
    label = session_of(trace)
    draw, rows = _drawn(label, sessions)
    begin, place = np.searchsorted(draw, np.arange(len(sessions))), places(label)

    def moved(at: np.ndarray) -> np.ndarray:
        return np.where(at >= 0, begin[draw] + place[at], NONE)

    of, joins = _drawn(label[trace.joins[:, 0]], sessions)
    columns: dict[str, Any] = {
        "parent": moved(trace.parent[rows]),
        "after": moved(trace.after[rows]),
        "joins": place[trace.joins[joins]] + begin[of][:, None],
    }
    again = places(sessions) * (int(label.max()) + 1)  # a copy is another session
    timeless = trace.changed(arrival_s=None, users=0).rows_of(rows, **columns)
    taken = timeless.changed(session=(sessions + again)[draw])
    if trace.arrival_s is None:
        return taken
    arrival_s = trace.arrival_s[rows]
    if begin_s is not None:
        arrival_s = arrival_s + (begin_s - begins_s(trace, label)[sessions])[draw]
    return arriving(taken, arrival_s)


def _drawn(label: np.ndarray, sessions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the items with each drawn label: of which draw, and which, (m,) each."""
    by = np.argsort(label, kind="stable")
    low = np.searchsorted(label[by], sessions)
    counts = np.searchsorted(label[by], sessions, side="right") - low
    draw = np.repeat(np.arange(len(sessions)), counts)
    within = np.arange(len(draw)) - (np.cumsum(counts) - counts)[draw]
    return draw, by[low[draw] + within]


def places(label: np.ndarray) -> np.ndarray:
    """Return the place of each item among those with its label, from 0, (n,)."""
    order = np.argsort(label, kind="stable")
    starts = np.searchsorted(label[order], label[order])
    found = np.empty(len(label), np.int64)
    found[order] = np.arange(len(label)) - starts
    return found


def arriving(trace: "Trace", arrival_s: np.ndarray) -> "Trace":
    """Return requests without times with arrivals, in their order if all have one."""
    if trace.has_waits:
        return trace.changed(arrival_s=arrival_s)
    order = np.argsort(arrival_s, kind="stable")
    return trace.select(order).changed(arrival_s=arrival_s[order])


def begins_s(trace: "Trace", label: np.ndarray | None = None) -> np.ndarray:
    """Return the first arrival of each session, shape (sessions,). [s]

    ``label``: the session of each row, where it is known.
    """
    label = session_of(trace) if label is None else label
    first_s = np.full(int(label.max()) + 1, np.inf)
    assert trace.arrival_s is not None
    np.fmin.at(first_s, label, trace.arrival_s)
    return first_s


def begun(trace: "Trace", begin_s: np.ndarray) -> "Trace":
    """Return a trace whose sessions begin at other times, their waits unchanged. [s]

    Without times those that come after no answer arrive when their session begins.
    """
    label = session_of(trace)
    if trace.arrival_s is None:
        at_s = np.where(trace.after >= 0, np.nan, begin_s[label])
    else:
        at_s = trace.arrival_s + (begin_s - begins_s(trace, label))[label]
    return arriving(trace.changed(arrival_s=None), at_s)


def joined_rows(traces: "tuple[Trace, ...]") -> dict[str, Any]:
    """Return the columns of turns of traces one behind the other."""
    begin = np.cumsum([0, *map(len, traces[:-1])])
    shifted = {
        name: np.concatenate(
            [
                np.where((rows := getattr(each, name)) >= 0, rows + at, NONE)
                for each, at in zip(traces, begin, strict=True)
            ]
        )
        for name in ("parent", "after")
    }
    joins = [each.joins + at for each, at in zip(traces, begin, strict=True)]
    shifted["joins"] = np.concatenate(joins)
    for name in ("think_s", "recorded_s"):
        columns = [getattr(each, name) for each in traces]
        known = [column is not None for column in columns]
        if all(known):
            shifted[name] = np.concatenate(columns)
        elif any(known) and name == "think_s":
            none = [np.zeros(len(each)) for each in traces]
            shifted[name] = np.concatenate(
                [a if b is None else b for a, b in zip(none, columns, strict=True)]
            )
    return shifted


def joined_texts(traces: "tuple[Trace, ...]") -> dict[str, Any]:
    """Return ``prefix_group`` and ``text_names`` of traces whose texts have names."""
    number: dict[str, int] = {}
    groups = []
    for k, each in enumerate(traces):
        known = np.unique(each.prefix_group[each.prefix_group >= 0])
        names = each.text_names or {group: f"text {k}.{group}" for group in known}
        to = [number.setdefault(names[group], len(number)) for group in known.tolist()]
        at = np.searchsorted(known, each.prefix_group)
        groups.append(np.where(each.prefix_group >= 0, np.array([*to, 0])[at], NONE))
    return {"prefix_group": np.concatenate(groups), "text_names": tuple(number)}
