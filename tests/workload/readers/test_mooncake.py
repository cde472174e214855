"""Mooncake's block hashes become prefix groups; its buckets are spread."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import TraceWarning
from capplan.workload.readers import read_trace
from capplan.workload.readers.prefix_paths import prefix_paths

# A prompt is a node of a tree: its blocks are named by the whole path to it.
TREES = st.lists(
    st.lists(st.integers(0, 2), max_size=5).map(
        lambda steps: [
            int("1" + "".join(map(str, steps[: i + 1])), 4) for i in range(len(steps))
        ]
    ),
    max_size=20,
)


def written(tmp_path, rows):
    path = tmp_path / "trace.jsonl"
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_conversation_follows_one_path_by_hand(tmp_path):
    path = written(
        tmp_path,
        [
            (0, 700, 5, [1, 2]),
            (5, 900, 5, [7, 8]),
            (10, 1500, 5, [1, 2, 3]),
            (20, 2000, 5, [1, 2, 3, 4]),
        ],
    )

    trace = read_trace(path)

    # The last block of a prompt that nobody shares is not of the group.
    assert trace.prefix_group.tolist() == [0, -1, 0, 0]
    assert trace.prefix_tokens.tolist() == [700, 0, 1500, 1536]
    assert trace.arrival_s.tolist() == [0, 0.005, 0.01, 0.02]
    assert "100.0 %" in trace.notes[0]


def test_a_fork_leaves_the_path_where_later_prompts_gain_more():
    # Everybody shares block 1; two conversations go on for three blocks each.
    prompts = [[1, 2, 3], [1, 12, 13], [1, 2, 3, 4], [1, 12, 13, 14], [1, 99]]

    paths = prefix_paths(prompts)

    assert paths.group.tolist() == [0, 1, 0, 1, 1]
    assert paths.shared_blocks.tolist() == [3, 3, 3, 3, 1]
    # In the tree they find 0 + 1 + 3 + 3 + 1; the fork gives up its 1.
    assert paths.kept == 7 / 8


@settings(deadline=None, max_examples=50)
@given(TREES)
def test_prompts_of_a_path_really_share_its_blocks(prompts):
    paths = prefix_paths(prompts)

    for group in set(paths.group.tolist()) - {-1}:
        rows = np.flatnonzero(paths.group == group)
        longest = max(rows, key=lambda row: paths.shared_blocks[row])
        stream = prompts[longest][: paths.shared_blocks[longest]]
        for row in rows:
            own = prompts[row][: paths.shared_blocks[row]]
            assert own == stream[: len(own)]


@settings(deadline=None, max_examples=50)
@given(TREES)
def test_a_path_never_finds_more_than_the_tree(prompts):
    paths = prefix_paths(prompts)

    assert 0 <= paths.kept <= 1
    lengths = np.array([len(blocks) for blocks in prompts], dtype=np.int64)
    assert (paths.shared_blocks <= lengths).all()
    assert ((paths.group < 0) == (paths.shared_blocks == 0)).all()


def test_buckets_of_three_seconds_are_spread_inside_and_told(tmp_path):
    stamps = np.repeat([0, 3000, 5999, 9000], 50)
    path = written(tmp_path, [(int(s), 10, 5, [i]) for i, s in enumerate(stamps)])

    with pytest.warns(TraceWarning, match="buckets of 3 s"):
        trace = read_trace(path)
    with pytest.warns(TraceWarning, match="seed 7"):
        other = read_trace(path, seed=7)

    assert (np.diff(trace.arrival_s) >= 0).all()
    within_s = trace.arrival_s - stamps / 1e3
    assert (within_s > -0.002).all()
    assert (within_s < 3).all()
    # Uniform in [0, 3): mean 1.5, standard error 3/sqrt(12 n).
    assert abs(within_s.mean() - 1.5) < 4 * 3 / np.sqrt(12 * len(stamps))
    assert not np.array_equal(trace.arrival_s, other.arrival_s)


def test_stamps_of_their_own_stay_as_they_are(tmp_path):
    path = written(tmp_path, [(100, 10, 5, []), (350, 10, 5, []), (350, 10, 5, [])])

    trace = read_trace(path)

    assert trace.arrival_s.tolist() == [0, 0.25, 0.25]
    assert trace.prefix_group.tolist() == [-1, -1, -1]
