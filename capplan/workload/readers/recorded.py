"""Conversations of recordings: who continues whom, who waited for whom, how long.

A recording has times of its requests, a session and an agent of each, and perhaps the
hashes of its blocks. Its turns come after the answers that had come before them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from capplan.workload.forest import NONE, places
from capplan.workload.readers.ordering import Notes
from capplan.workload.readers.prefix_paths import prefix_paths

Blocks = Sequence[Sequence[int | str]]
"""Hashes of the blocks of each prompt."""

_LEAST_CUT_TOKENS, _LEAST_CUT, _CUT_SHARE = 32_000, 8_000, 0.25
"""A prompt that is so much shorter than a long one before it starts anew. [tokens]"""


@dataclass(frozen=True)
class Recording:
    """Requests in the order in which they began, columns of shape (n,)."""

    session: np.ndarray  # from 0
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    start_s: np.ndarray | None = None  # None without times
    end_s: np.ndarray | None = None  # None or NaN where it is not known
    agent: np.ndarray | None = None  # of the session, 0 the main one
    blocks: Blocks | None = None
    block_tokens: int = 0
    think_s: np.ndarray | None = None  # before each, NaN where times tell it
    slack_s: float = 0.0  # by which times are rounded
    text: tuple[Sequence[str], np.ndarray] | None = None  # that prompts without a
    # parent begin with: name of each row's, empty for none, and its tokens
    waits: "Waits | None" = None  # where they are recorded
    root_s: np.ndarray | None = None  # arrivals of those that wait for nobody, if told
    is_open: bool = False  # nobody waits: times are arrivals

    def columns(self, notes: Notes) -> dict[str, Any]:
        """Return the columns of turns of a trace."""
        start_s, end_s = self._times(notes)
        waits = self._waits(start_s, end_s)
        shared = self._by_blocks(notes, waits, start_s, end_s) or self._by_lengths(
            notes, waits.after
        )
        think_s = waits.think_s
        if self.think_s is not None:
            told = np.isfinite(self.think_s)
            if self.waits is None:  # it is that of the agent alone
                told[waits.joins[:, 0]] = False
            think_s = np.where(told, self.think_s, think_s)
        waiting = waits.after >= 0
        found: dict[str, Any] = shared | {
            "session": self.session,
            "after": waits.after,
            "joins": waits.joins,
            "think_s": np.where(waiting, think_s, 0.0),
            "agent": waits.agent,
            "turn": places(self.session),
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
        }
        if self.start_s is not None:
            found["recorded_s"] = self.start_s
        root_s = self.start_s if self.root_s is None else self.root_s
        if root_s is not None and np.isfinite(root_s[~waiting]).all():
            found["arrival_s"] = np.where(waiting, np.nan, root_s)
        return found

    def _times(self, notes: Notes) -> tuple[np.ndarray, np.ndarray]:
        """Return when requests began and ended, numbers in order without times. [s]"""
        n = len(self.session)
        start_s = np.arange(n) * 1.0 if self.start_s is None else self.start_s
        if self.end_s is None:
            is_told = self.think_s is not None or self.is_open
            if self.start_s is not None and not is_told:
                notes.add(
                    "no durations of requests: think times hold those of the answers"
                )
            return start_s, start_s
        return start_s, np.where(np.isfinite(self.end_s), self.end_s, start_s)

    def _waits(self, start_s: np.ndarray, end_s: np.ndarray) -> "Waits":
        agent = (
            np.zeros(len(self.session), np.int64) if self.agent is None else self.agent
        )
        if self.waits is not None:
            return self.waits._replace(agent=agent)
        if self.is_open:
            n = len(start_s)
            return Waits(np.full(n, NONE), NO_JOINS, np.zeros(n), agent)
        return waits(self.session, agent, start_s, end_s, self.slack_s)

    def _by_blocks(
        self, notes: Notes, waits: "Waits", start_s: np.ndarray, end_s: np.ndarray
    ) -> dict[str, Any]:
        """Return parents by the longest common blocks within sessions.

        One that shares all whole blocks of a prompt that had been answered has its
        answer too, where it is long enough.
        """
        if self.blocks is None:
            return {}
        parent, common = longest_common(self.session, self.blocks)
        size, prompt = self.block_tokens, self.prompt_tokens
        before = prompt[parent] + self.output_tokens[parent]
        appends = common >= np.maximum(1, prompt[parent] // size)
        if self.waits is None:
            appends &= end_s[parent] <= start_s + self.slack_s
        else:
            appends &= _answered_before(waits, parent)
        whole = np.where(prompt >= before, before, np.minimum(prompt, prompt[parent]))
        prefix = np.where(appends, whole, np.minimum(common * size, prompt))
        parent, prefix = np.where(common, parent, NONE), np.where(common, prefix, 0)
        roots = np.flatnonzero(parent < 0)
        return self._of_texts(notes, roots, parent, prefix)

    def _of_texts(
        self, notes: Notes, roots: np.ndarray, parent: np.ndarray, prefix: np.ndarray
    ) -> dict[str, Any]:
        """Return parents, and texts of the prompts that have none."""
        group = np.full(len(parent), NONE)
        names: tuple[str, ...] = ()
        if self.text is not None:
            named = [self.text[0][row] for row in roots]
            names = tuple(dict.fromkeys(filter(None, named)))
            number = {name: k for k, name in enumerate(names)}
            group[roots] = [number.get(name, NONE) for name in named]
            most = np.minimum(self.text[1], self.prompt_tokens)[roots]
            prefix[roots] = np.where(group[roots] >= 0, most, 0)
        elif self.blocks is not None and len(roots):
            paths = prefix_paths([self.blocks[row] for row in roots])
            group[roots] = paths.group
            most = np.minimum(
                paths.shared_blocks * self.block_tokens, self.prompt_tokens[roots]
            )
            prefix[roots] = np.where(paths.group >= 0, most, 0)
            names = tuple(f"path {k}" for k in range(int(group.max()) + 1))
            if names:
                notes.add(
                    f"texts keep {100 * paths.kept:.1f} % of what sessions share",
                    warn=False,
                )
        return {
            "parent": parent,
            "prefix_tokens": prefix,
            "prefix_group": group,
            "text_names": names,
        }

    def _by_lengths(self, notes: Notes, after: np.ndarray) -> dict[str, Any]:
        """Return the request before as the parent, all of which a prompt repeats."""
        prompt, before = self.prompt_tokens, self.prompt_tokens[after]
        whole = np.minimum(prompt, before + self.output_tokens[after])
        cut = (before >= _LEAST_CUT_TOKENS) & (before - prompt >= _LEAST_CUT)
        cut &= prompt <= (1 - _CUT_SHARE) * before
        has = (after >= 0) & ~cut
        if has.any():
            notes.add(
                "estimate: prompts begin with the prompt and the answer before them; "
                f"{int((cut & (after >= 0)).sum()):,} start anew",
                warn=False,
            )
        parent, prefix = np.where(has, after, NONE), np.where(has, whole, 0)
        return self._of_texts(notes, np.flatnonzero(~has), parent, prefix)


def _answered_before(waits: "Waits", rows: np.ndarray) -> np.ndarray:
    """Return whether each of some rows was answered before the row at its place."""
    before: list[list[int]] = [[at] * (at >= 0) for at in waits.after.tolist()]
    for row, other in waits.joins.tolist():
        before[row].append(other)
    found = np.zeros(len(rows), bool)
    for row, wanted in enumerate(rows.tolist()):
        seen, left = set[int](), [*before[row]] * (wanted >= 0)
        while left and wanted not in seen:
            at = left.pop()
            if at not in seen and at >= wanted:
                left += before[at]
            seen.add(at)
        found[row] = wanted in seen
    return found


NO_JOINS = np.zeros((0, 2), np.int64)


class Waits(NamedTuple):
    """For whose answers requests waited."""

    after: np.ndarray
    joins: np.ndarray
    think_s: np.ndarray
    agent: np.ndarray  # below 0 where nobody waited for it


def waits(
    session: np.ndarray,
    agent: np.ndarray,
    start_s: np.ndarray,
    end_s: np.ndarray,
    slack_s: float = 0.0,
) -> Waits:
    """Return for whose answers each request waited, in order of their begin.

    For the last of its own agent that had ended, and for the last of each other agent
    that ended since; the first of an agent for the last of the main one. An agent that
    the main one did not wait for, though it went on, is in the background.
    """
    n = len(session)
    after, think_s = np.full(n, NONE), np.zeros(n)
    joins: list[tuple[int, int]] = []
    last: dict[int, dict[int, list[int]]] = {}  # rows of each agent, by session
    waited: set[tuple[int, int, int]] = set()  # session, agent, row waited for
    for row in range(n):
        agents = last.setdefault(int(session[row]), {})
        own = int(agent[row])
        by = agents if own in agents or not agents else {0: agents.get(0, [])}
        found: list[int] = []
        for other, rows in by.items():
            ended = _last_ended(rows, end_s, start_s[row] + slack_s)
            key = (int(session[row]), own, ended)
            if ended != NONE and (
                other == own or own not in agents or key not in waited
            ):
                found.append(ended)
                waited.add(key)
        if found:
            latest = max(found, key=lambda at: (end_s[at], at))
            after[row] = latest
            think_s[row] = max(0.0, start_s[row] - end_s[latest])
            joins += [(row, at) for at in found if at != latest]
        agents.setdefault(own, []).append(row)
    return Waits(
        after,
        np.array(joins, np.int64).reshape(-1, 2),
        think_s,
        _in_background(session, agent, end_s, start_s, last, waited),
    )


def _last_ended(rows: list[int], end_s: np.ndarray, by_s: float) -> int:
    """Return the latest of an agent's rows that had ended, or -1."""
    return next((row for row in reversed(rows) if end_s[row] <= by_s), NONE)


def _in_background(
    session: np.ndarray,
    agent: np.ndarray,
    end_s: np.ndarray,
    start_s: np.ndarray,
    last: dict[int, dict[int, list[int]]],
    waited: set[tuple[int, int, int]],
) -> np.ndarray:
    """Return the agents, below 0 where the main one went on and never waited."""
    found = agent.copy()
    for number, agents in last.items():
        main = agents.get(0, [])
        for own, rows in agents.items():
            went_on = main and start_s[main[-1]] > start_s[rows[0]]
            if own and went_on and (number, 0, rows[-1]) not in waited:
                found[rows] = -own
    return found


def longest_common(
    session: np.ndarray, blocks: Blocks
) -> tuple[np.ndarray, np.ndarray]:
    """Return the earlier row of its session with which each shares most blocks.

    And how many; of several rows the latest, of none -1.
    """
    parent, common = np.full(len(session), NONE), np.zeros(len(session), np.int64)
    tries: dict[int, tuple[dict[tuple[int, int | str], int], list[int]]] = {}
    for row, own in enumerate(blocks):
        nodes, last = tries.setdefault(int(session[row]), ({}, []))
        node, deep = NONE, 0
        for block in own:
            at = nodes.setdefault((node, block), len(last))
            if at == len(last):
                last.append(row)
            else:
                deep += 1
                parent[row] = last[at]
                last[at] = row
            node = at
        common[row] = deep
    return parent, common


def chains(blocks: Blocks) -> np.ndarray:
    """Return the session of each prompt: that of the latest it goes on with, or new.

    A prompt goes on with another whose blocks are all its first ones but the last,
    which may be partial, and with which no other has gone on: a text that many begin
    with is no conversation.
    """
    nodes: dict[tuple[int, int | str], int] = {}
    ends: dict[int, int] = {}
    session = np.empty(len(blocks), np.int64)
    count = 0
    for row, own in enumerate(blocks):
        node, path = NONE, []
        for block in own:
            node = nodes.setdefault((node, block), len(nodes))
            path.append(node)
        before = next((ends.pop(at) for at in reversed(path) if at in ends), NONE)
        session[row] = count if before == NONE else session[before]
        count += before == NONE
        if len(path) > 1:
            ends[path[-2]] = row
    return session
