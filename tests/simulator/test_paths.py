"""Segments of paths are vLLM's queue of blocks, block by block, whatever is done."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from worked import engine

from capplan.latency.contract import linear_tables
from capplan.simulator.jit import from_python
from capplan.simulator.kv import paths
from capplan.simulator.simulate import simulate
from capplan.simulator.state import NONE, Lineage, Sizes, empty_state, with_paths
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.rest_slow import rest_slow


@dataclass(eq=False)
class Block:
    """A block with content: whose it is and which, and how many hold it."""

    key: tuple | None = None
    references: int = 0


@dataclass
class Judge:
    """Blocks one by one: a queue, and those that can be found, the oldest first."""

    parent: list[int]
    first: list[int]
    free: list[Block]
    found: dict[tuple, list[Block]] = field(default_factory=dict)
    held: dict[int, list[Block]] = field(default_factory=dict)
    hashed: dict[int, int] = field(default_factory=dict)

    def key(self, row: int, index: int) -> tuple:
        while index < self.first[row]:
            row = self.parent[row]
        return row, index

    def cached(self, row: int, most: int) -> list[Block]:
        blocks = []
        while len(blocks) < most and self.found.get(self.key(row, len(blocks))):
            blocks.append(self.found[self.key(row, len(blocks))][0])
        return blocks

    def adopt(self, row: int, blocks: list[Block]) -> None:
        for block in blocks:
            if block.references == 0:
                self.free.remove(block)
            block.references += 1
        self.held[row] = list(blocks)
        self.hashed[row] = len(blocks)

    def take(self, row: int, count: int) -> None:
        for _ in range(count):
            block = self.free.pop(0)
            if block.key:
                self.found[block.key].remove(block)
                block.key = None
            block.references = 1
            self.held[row].append(block)

    def extend(self, row: int, full: int) -> None:
        for index in range(self.hashed[row], full):
            block = self.held[row][index]
            block.key = self.key(row, index)
            self.found.setdefault(block.key, []).append(block)
        self.hashed[row] = max(full, self.hashed[row])

    def release(self, row: int) -> None:
        first, last = [], []
        for block in reversed(self.held.pop(row)):
            block.references -= 1
            if block.references == 0:
                (last if block.key else first).append(block)
        self.free = first + self.free + last


class Paths:
    """The same of the simulator's core, of one replica."""

    def __init__(self, parent: list[int], first: list[int], blocks: int) -> None:
        sizes = Sizes(1, 64, 1, 1, blocks, 2, 0, 0, 1, 1)
        state = empty_state(sizes, tuple(np.ones(2) for _ in range(5)))
        state.engine[0].kv_blocks = blocks
        lineage = np.zeros((len(parent), len(Lineage)), np.int64)
        lineage[:, Lineage.PARENT], lineage[:, Lineage.FIRST] = parent, first
        self.state = with_paths(state._replace(lineage=lineage))
        self.slots: dict[int, int] = {}
        _fill(self.state, 0, blocks)

    def find(self, row: int, most: int) -> tuple[int, int]:
        slot = self.slots.setdefault(row, len(self.slots) % 64)
        while [*self.slots.values()].count(slot) > 1:
            slot = self.slots[row] = (slot + 1) % 64
        self.state.requests[slot].row = row
        return _find(self.state, 0, slot, most)

    def free(self) -> list[tuple | None]:
        """Return what is free in the order in which it is taken: (row, index)."""
        replica, lineage = self.state.replicas[0], self.state.lineage
        queue: list[tuple | None] = [None] * int(replica.unhashed_blocks)
        label = replica.queue_head
        while label != NONE:
            segment = self.state.segments[0, label]
            of = segment
            if segment.row < 0:
                of = self.state.segments[0, segment.parent]
            for index in range(segment.end - 1, segment.start - 1, -1):
                node = of.row
                while index < lineage[node, Lineage.FIRST]:
                    node = lineage[node, Lineage.PARENT]
                queue.append((int(node), index))
            label = segment.next
        assert len(queue) == replica.free_blocks
        return queue


_fill, _find, _take, _give, _adopt, _extend, _release = map(
    from_python,
    (
        paths.fill_unhashed,
        paths.find_path,
        paths.take_of_paths,
        paths.give_unhashed,
        paths.adopt_path,
        paths.extend_path,
        paths.release_path,
    ),
)


def forest(rng: np.random.Generator, rows: int, answers: np.ndarray):
    """Return parents and first own blocks, rising along every chain, and lengths."""
    parent, first, length = [], [], []
    for row in range(rows):
        above = NONE
        if row and rng.random() < 0.8:
            oldest = max(0, row - int(rng.choice([1, 4, 30])))
            above = int(rng.integers(oldest, row))
        shared = 0
        if above != NONE:
            whole = length[above] + int(rng.choice([0, answers[above], answers[above]]))
            shared = int(rng.choice([whole, rng.integers(0, whole + 1)]))
        own = int(rng.choice([0, 0, 1, rng.integers(0, 6)])) + int(shared == 0)
        while above != NONE and shared <= first[above]:
            above = parent[above]
        parent.append(above)
        first.append(shared if above != NONE else 0)
        length.append(shared + own)
    return parent, first, length


def serve(seed: int) -> int:
    """Do random operations on both; return how many twins there were."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2, 40))
    answers = rng.integers(0, 4, rows)
    parent, first, length = forest(rng, rows, answers)
    total = max(length) + int(answers.max())
    total += int(rng.integers(1, rng.choice([10, 60, 300])))
    judge = Judge(parent, first, [Block() for _ in range(total)])
    ours = Paths(parent, first, total)
    goals: dict[int, int] = {}
    later = list(range(rows))
    again = [int(row) for row in rng.integers(0, rows, rows // 3)]
    twins = 0
    for _ in range(8 * rows):
        if later and (not goals or rng.random() < 0.5):
            row = later.pop(0) if rng.random() < 0.8 or not again else again.pop()
            if row in goals:
                continue
            most = max(0, length[row] - int(rng.integers(0, 2)))
            blocks = judge.cached(row, most)
            unheld = sum(block.references == 0 for block in blocks)
            assert ours.find(row, most) == (len(blocks), unheld)
            if length[row] - len(blocks) + unheld > len(judge.free):
                del ours.slots[row]
                continue
            judge.adopt(row, blocks)
            _adopt(ours.state, 0, ours.slots[row], len(blocks))
            goals[row] = length[row]
        elif goals:
            row = int(rng.choice(list(goals)))
            slot, held = ours.slots[row], len(judge.held[row])
            count = min(int(rng.integers(0, 4)), len(judge.free), goals[row] - held)
            if count > 0:
                judge.take(row, count)
                _take(ours.state, 0, count)
                full = min(held + count, length[row] + int(answers[row]))
                if rng.random() < 0.8:
                    twins += sum(
                        bool(judge.found.get(judge.key(row, k)))
                        for k in range(judge.hashed[row], full)
                    )
                    judge.extend(row, full)
                    _extend(ours.state, 0, slot, full)
            elif held == goals[row] == length[row] and rng.random() < 0.7:
                goals[row] += int(answers[row])
                if answers[row] == 0:
                    goals[row] += 1
            else:
                full = min(held - int(rng.integers(0, 2)), length[row] + answers[row])
                full = max(int(full), judge.hashed[row])
                judge.extend(row, full)
                judge.release(row)
                _give(ours.state, 0, held - full)
                _release(ours.state, 0, slot, full)
                del goals[row], ours.slots[row]
        assert ours.free() == [block.key for block in judge.free]
    return twins


@pytest.mark.parametrize("seeds", rest_slow(range(0, 1000, 50), lambda seed: seed == 0))
def test_segments_are_the_blocks_of_random_forests(seeds):
    twins = sum(serve(seed) for seed in range(seeds, seeds + 50))

    assert twins > 50


def _turns(rows: str, blocks: int, is_async: bool):
    """Serve rows of "prompt output [parent prefix] [@ms | +s parent]"."""
    names, prompts, outputs, parents, prefixes = [], [], [], [], []
    after, arrival_s, think_s, groups = [], [], [], []
    for row in rows.split(";"):
        name, prompt, output, *more = row.split()
        parent, prefix, at, think, follows, group = NONE, 0, np.nan, 0.0, NONE, NONE
        for word in more:
            if word.startswith("@"):
                at = float(word[1:]) / 1e3
            elif word.startswith("+"):
                think = float(word[1:])
            elif word.startswith("<"):
                of, prefix = word[1:].split(":")
                group = 0 if of == "s" else NONE
                parent = NONE if of == "s" else names.index(of)
        if np.isnan(at):
            follows = parent
        names.append(name)
        prompts.append(prompt)
        outputs.append(output)
        parents.append(parent)
        prefixes.append(prefix)
        after.append(follows)
        arrival_s.append(at)
        think_s.append(think)
        groups.append(group)
    waits = any(row != NONE for row in after)
    trace = Trace(
        np.array(prompts, int), np.array(outputs, int), np.array(arrival_s),
        parent=np.array(parents), prefix_tokens=np.array(prefixes, int),
        after=np.array(after), think_s=np.array(think_s) if waits else None,
        prefix_group=np.array(groups),
    )  # fmt: skip
    tables = linear_tables(10e-3, 1e-3, 0, 0, 0, max_batch=8, max_tokens=64)
    given = engine(blocks, prefix_caching=True, async_scheduling=is_async)
    times = simulate(trace, fleet_of(tables, given, 1)).times
    return {
        name: (
            int(times.cached_tokens[k]),
            round(float(times.first_token_s[k]) * 1e3),
            round(float(times.finish_s[k]) * 1e3),
        )
        for k, name in enumerate(names)
    }


WORKED = {
    "two turns": (
        "a 8 5 @0;b 16 2 <a:13 +1",
        100,
        {"a": (0, 18, 58), "b": (12, 1072, 1082)},
    ),
    "last token": ("a 8 4 @0;b 16 2 <a:12 +1", 100, {"b": (8, 1066, 1076)}),
    "same prompt": ("a 8 2 @0;b 8 2 <a:8 +1", 100, {"b": (4, 1042, 1052)}),
    "edit": ("a 8 5 @0;b 13 2 <a:6 +1", 100, {"b": (4, 1077, 1087)}),
    "thinking dropped": (
        "a 8 9 @0;b 13 2 <a:8 +1;c 20 2 <b:15 +1",
        100,
        {"b": (8, 1113, 1123), "c": (12, 2141, 2151)},
    ),
    "two sub-agents": (
        "a 8 5 @0;b 16 2 <a:13 +1;c 16 2 <a:13 +1",
        100,
        {"b": (12, 1076, 1086), "c": (12, 1076, 1086)},
    ),
    "system text": (
        "a 12 2 @0 <s:8;b 12 2 @0 <s:8;c 14 1 <a:14 @900",
        100,
        {"a": (0, 26, 36), "b": (8, 26, 36), "c": (12, 912, 912)},
    ),
    "preempted": (
        "a 6 9 @0;b 6 9 @1;c 16 1 <b:15 @900",
        6,
        {"a": (0, 16, 102), "b": (0, 32, 136), "c": (12, 914, 914)},
    ),
    "end first": (
        "a 11 2 @0;b 15 2 @100;c 14 2 <a:13 @300",
        6,
        {"c": (8, 316, 326)},
    ),
    "touch": (
        "a 7 2 @0;b 7 2 @100;a2 10 2 <a:9 @200;c 7 2 @300;a3 13 1 <a2:12 @400;"
        "b2 10 1 <b:9 @500",
        5,
        {"a2": (8, 212, 222), "a3": (8, 415, 415), "b2": (0, 520, 520)},
    ),
    "parent decodes": (
        "a 6 8 @0;b 12 1 <a:11 @20",
        100,
        {"a": (0, 16, 90), "b": (8, 40, 40)},
    ),
    "cut above the parent": (
        "a 12 5 @0;b 24 5 <a:17 +.1;c 20 1 <b:9 +.1",
        100,
        {"b": (16, 180, 220), "c": (8, 342, 342)},
    ),
    "cycle": (
        "a 19 2 @0;b 19 2 @100;a2 22 2 <a:21 @200;b2 22 2 <b:21 @300;"
        "a3 25 2 <a2:24 @400",
        10,
        {"a2": (20, 212, 222), "b2": (16, 316, 326), "a3": (16, 419, 429)},
    ),
    "cycle that fits": (
        "a 19 2 @0;b 19 2 @100;a2 22 2 <a:21 @200;b2 22 2 <b:21 @300;"
        "a3 25 2 <a2:24 @400",
        13,
        {"a2": (20, 212, 222), "b2": (20, 312, 322), "a3": (20, 415, 425)},
    ),
}


@pytest.mark.parametrize("case", WORKED)
def test_turns_worked_by_hand(case):
    rows, blocks, expected = WORKED[case]

    found = _turns(rows, blocks, is_async=False)

    assert {name: found[name] for name in expected} == expected


def test_a_child_finds_what_its_parent_knows_also_with_async():
    found = _turns("a 6 8 @0;b 12 1 <a:11 @20", 100, is_async=True)

    assert found["b"][:2] == (8, 50)
