"""Trees of prompts: identities, whole sessions, and what cannot be."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.planning.load import traffic
from capplan.planning.settings.traffic import RequestSettings
from capplan.workload.arrivals import rescale, with_arrivals
from capplan.workload.forest import begins_s, followers, forest, session_of, take
from capplan.workload.scale import scaled_traffic
from capplan.workload.synthesis import extend, joined, resample
from capplan.workload.trace import Trace

NAN = np.nan


def chat(**changed):
    """Return S-12 of the design: b repeats a, c cuts into what b has of a."""
    columns = {
        "prompt_tokens": [12, 24, 20],
        "output_tokens": [5, 5, 1],
        "arrival_s": [0, NAN, NAN],
        "parent": [-1, 0, 1],
        "prefix_tokens": [0, 17, 9],
        "after": [-1, 0, 1],
        "think_s": [0, 0.1, 0.1],
    }
    return Trace(**columns | changed)


def test_a_prefix_is_of_a_parent_or_a_text_and_ends_with_the_prompt():
    trace = Trace(
        [14, 18, 4],
        [6, 9, 9],
        [0, 1, 2],
        parent=[-1, 0, -1],
        prefix_group=[-1, -1, 5],
        prefix_tokens=[14, 11, 9],  # the first of nothing, the last of a text
    )

    tree = forest(trace, 1)

    assert tree.parent.tolist() == [-1, 0, 3, -1]
    assert tree.first_block.tolist() == [0, 11, 4, 0]


@st.composite
def traces(draw, waits=None):
    """Return random conversations: texts, forks, edits, repeats, joins."""
    n = draw(st.integers(1, 12))
    whole = st.integers(1, 40)
    prompt = np.array([draw(whole) for _ in range(n)])
    output = np.array([draw(whole) for _ in range(n)])
    parent, group, prefix, after, joins = [], [], [], [], []
    for row in range(n):
        of = draw(st.integers(-1, row - 1))
        text = draw(st.integers(-1, 1)) if of < 0 else -1
        most = min(prompt[row], prompt[of] + output[of]) if of >= 0 else prompt[row]
        parent.append(of)
        group.append(text)
        prefix.append(draw(st.integers(0, int(most))) if max(of, text) >= 0 else 0)
        after.append(of if draw(st.booleans()) else -1)
        if of >= 0 and after[-1] >= 0 and draw(st.booleans()):
            joins.append((row, draw(st.integers(0, row - 1))))
    closed = draw(st.booleans()) if waits is None else waits
    after = np.array(after) if closed else np.full(n, -1)
    arrival_s = np.where(after >= 0, NAN, np.arange(n) * 1.5)
    return Trace(
        prompt,
        output,
        arrival_s,
        parent=np.array(parent),
        prefix_group=np.array(group),
        prefix_tokens=np.array(prefix),
        after=after,
        joins=np.array(joins, np.int64).reshape(-1, 2) if closed else None,
        text_names=("s", "t"),
    )


def owner(trace, row, block, block_tokens):
    """Return whose block it is by the plain rule: a row, or a text."""
    while (block + 1) * block_tokens <= trace.prefix_tokens[row]:
        if trace.parent[row] < 0:
            return "text", int(trace.prefix_group[row])
        row = int(trace.parent[row])
    return "row", row


def normal_owner(trees, trace, row, block):
    """Return whose block it is in normalised trees."""
    while block < trees.first_block[row]:
        row = int(trees.parent[row])
    if row < len(trace):
        return "row", row
    return "text", int(
        np.unique(trace.prefix_group[trace.prefix_group >= 0])[row - len(trace)]
    )


@given(traces(), st.integers(1, 9))
def test_normalised_trees_have_the_identities_of_the_plain_walk(trace, size):
    trees = forest(trace, size)

    for row in range(len(trace)):
        for block in range(
            int(trace.prompt_tokens[row] + trace.output_tokens[row]) // size
        ):
            expected = owner(trace, row, block, size)
            assert normal_owner(trees, trace, row, block) == expected
    has = trees.parent >= 0
    assert (trees.first_block[has] > trees.first_block[trees.parent[has]]).all()
    assert not trees.first_block[~has].any()


def test_an_edit_that_cuts_into_the_grandparent_has_its_blocks():
    trees = forest(chat(), 4)

    assert trees.parent.tolist() == [-1, 0, 0]
    assert trees.first_block.tolist() == [0, 4, 2]
    assert trees.end_block.tolist() == [4, 7, 5]


def test_long_chains_of_the_same_prompt_take_few_rounds():
    n = 200_000
    rows = np.arange(n)
    trace = Trace(
        np.full(n, 9),
        np.full(n, 1),
        rows * 1.0,
        parent=rows - 1,
        prefix_tokens=np.where(rows, 8, 0),
    )

    trees = forest(trace, 4)

    assert trees.parent[0] == -1
    assert set(trees.parent[1:].tolist()) == {0}


def test_a_text_is_as_long_as_the_longest_prefix_asked_of_it():
    trace = Trace([12, 12], [2, 2], [0, 0], prefix_group=[7, 7], prefix_tokens=[8, 4])

    trees = forest(trace, 4)

    assert trees.parent.tolist() == [2, 2, -1]
    assert trees.end_block.tolist() == [3, 3, 2]


def test_a_join_waits_for_all_its_answers():
    after, joins = [-1, 0, 0, 0], [(3, 1), (3, 2)]
    trace = Trace(
        [8] * 4, [2] * 4, [0, NAN, NAN, NAN], after=after, joins=np.array(joins)
    )

    waiting = followers(trace)

    assert waiting.pending.tolist() == [0, 1, 1, 3]
    assert waiting.rows[: waiting.first[1]].tolist() == [1, 2, 3]
    assert waiting.rows[waiting.first[1] :].tolist() == [3, 3]


def shape(trace, session):
    """Return what a session is, apart from where its rows stand."""
    rows = np.flatnonzero(session_of(trace) == session)
    place = {int(row): k for k, row in enumerate(rows)} | {-1: -1}
    names = "prompt_tokens", "output_tokens", "prefix_tokens", "prefix_group", "think_s"
    columns = [v[rows].tolist() for k in names if (v := getattr(trace, k)) is not None]
    turns = [
        [place[int(at)] for at in getattr(trace, k)[rows]] for k in ("parent", "after")
    ]
    joins = sorted(
        (place[int(a)], place[int(b)]) for a, b in trace.joins if int(a) in place
    )
    return repr((columns, turns, joins))


def shapes(trace):
    return [shape(trace, k) for k in range(int(session_of(trace).max()) + 1)]


@pytest.mark.thorough
@given(traces(), st.data())
def test_taken_sessions_are_whole_and_apart(trace, data):
    count = int(session_of(trace).max()) + 1
    drawn = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=6))
    given = shapes(trace)

    taken = take(trace, np.array(drawn), np.arange(len(drawn)) * 100.0)

    assert sorted(shapes(taken)) == sorted(given[k] for k in drawn)
    assert len(np.unique(taken.session)) == len(drawn)
    assert begins_s(taken).tolist() == [100.0 * k for k in range(len(drawn))]


@pytest.mark.thorough
@given(traces(), traces())
def test_joined_traces_have_the_sessions_of_both(one, other):
    if one.has_waits != other.has_waits:
        return
    behind = other.changed(arrival_s=other.arrival_s + 100)

    both = joined(one, behind)

    assert shapes(both) == shapes(one) + shapes(other)


@pytest.mark.thorough
@given(traces(), st.sampled_from([0.5, 1.5, 2, 3]))
def test_scaled_traffic_has_whole_sessions(trace, scale):
    if not trace.has_turns:
        return
    given = shapes(trace)
    scaled = None
    with suppress(InputError):  # a small scale may leave nothing
        scaled = scaled_traffic(trace, scale, 3)

    found = shapes(scaled) if scaled else []
    assert found or scale < 1
    assert set(found) <= set(given)
    for each in given:
        least = int(scale) * given.count(each)
        assert least <= found.count(each) <= least + given.count(each)


@pytest.mark.thorough
@given(traces(), st.integers(1, 30))
def test_resampled_and_extended_traces_have_whole_sessions(trace, n):
    if not trace.has_turns or len(set(begins_s(trace))) < 2:
        return
    rng = np.random.default_rng(0)
    given = set(shapes(trace))

    drawn, longer = resample(trace, n, rng), extend(trace, len(trace) + n, rng)

    assert len(drawn) >= n
    assert set(shapes(drawn)) <= given
    assert len(longer) >= len(trace) + n
    assert set(shapes(longer)) <= given
    timed = with_arrivals(drawn, 2.0, "poisson", rng)
    assert set(shapes(timed)) <= given


def test_another_rate_is_that_of_sessions():
    trace = take(chat(), np.array([0, 0, 0]), np.array([0.0, 10, 20]))

    faster = rescale(trace, 1.0)

    assert trace.rate_per_s == 0.1
    assert begins_s(faster).tolist() == [0, 1, 2]
    assert faster.think_s.tolist() == trace.think_s.tolist()


def test_texts_of_the_same_name_are_one():
    one = Trace([9], [1], [0], prefix_group=[0], prefix_tokens=[4], text_names=("s",))
    two = Trace(
        [9, 9],
        [1, 1],
        [1, 1],
        prefix_group=[0, 1],
        prefix_tokens=[4, 4],
        text_names=("t", "s"),
    )

    both = joined(one, two)

    assert both.text_names == ("s", "t")
    assert both.prefix_group.tolist() == [0, 1, 0]


def test_copies_of_conversations_share_their_texts():
    trace = chat(prefix_group=[0, -1, -1], prefix_tokens=[8, 17, 9])
    two = take(trace, np.array([0, 0]), np.array([0.0, 50.0]))

    assert scaled_traffic(two, 2, 0).prefix_group.tolist() == [0, -1, -1] * 4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"parent": [-1, 2, 1]},
            "row 2: parent is 2; expected a request of a row before",
        ),
        (
            {"prefix_tokens": [0, 18, 9]},
            "row 2: prefix_tokens is 18; expected at most 17",
        ),
        (
            {"prefix_tokens": [0, 17, 21]},
            "row 3: prefix_tokens is 21; expected at most 20",
        ),
        ({"after": [-1, 2, 1]}, "row 2: after is 2; expected no request that waits"),
        ({"after": [-1, 1, 1]}, "row 2: after is 1; expected no request that waits"),
        ({"after": [-1, 0, 3]}, "row 3: after is 3; expected a row before 4"),
        ({"think_s": [0, -1, 0]}, "row 2: think_s is -1; expected 0"),
        ({"arrival_s": [0, 1, NAN]}, "row 2: arrival_s is 1.0; expected none beside"),
        ({"after": [-1, -1, 1]}, "row 2: arrival_s is nan; expected"),
        ({"prefix_group": [-1, 3, -1]}, "row 2: parent is 0; expected no prefix_group"),
    ],
)
def test_turns_that_cannot_be_are_refused_with_their_row(changed, said):
    with pytest.raises(InputError, match=said):
        chat(**changed)


@pytest.mark.parametrize("rows", [[0, 1], [1, 2], slice(2), [0, 1, 1, 2]])
def test_rows_that_cut_a_session_are_refused(rows):
    with pytest.raises(InputError, match="expected whole sessions"):
        chat().select(rows if isinstance(rows, slice) else np.array(rows))


def test_commands_refuse_conversations_that_they_do_not_serve(monkeypatch):
    monkeypatch.setattr(traffic, "_named", lambda settings: chat())

    with pytest.raises(InputError, match="come after answers, which capplan plan"):
        traffic.read_requests(RequestSettings())
