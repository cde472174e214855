"""Sessions that run: found in the middle, capped, ended, and when they begin."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.workload.forest import asked_s, session_of
from capplan.workload.midway import midway
from capplan.workload.running import (
    Mix,
    Sessions,
    capped,
    replayed,
    timeless,
    with_first,
    within,
)
from capplan.workload.session_fits import drawn
from capplan.workload.trace import Trace


def conversation(**columns):
    """Return three turns: 100 + 10, 150 + 20 and 230 + 5 tokens, 60 s between."""
    of = {
        "parent": np.array([-1, 0, 1]),
        "prefix_tokens": np.array([0, 110, 170]),
        "after": np.array([-1, 0, 1]),
        "think_s": np.array([0.0, 60.0, 60.0]),
        **columns,
    }
    return Trace(np.array([100, 150, 230]), np.array([10, 20, 5]), **of)


def test_turns_begin_when_answers_have_been_read():
    starts_s = asked_s(
        conversation(), np.zeros(len(conversation())), np.array([1.0, 2.0, 3.0])
    )

    assert starts_s.tolist() == [0.0, 61.0, 123.0]


def test_one_who_waits_for_two_begins_after_the_later():
    trace = Trace(
        np.full(3, 10),
        np.full(3, 5),
        np.array([0.0, 0.0, np.nan]),
        after=np.array([-1, -1, 0]),
        joins=np.array([[2, 1]]),
        think_s=np.array([0.0, 0.0, 5.0]),
        session=np.zeros(3, np.int64),
    )

    assert asked_s(trace, np.zeros(len(trace)), np.array([1.0, 7.0, 1.0])).tolist() == [
        0,
        0,
        12,
    ]


def test_a_session_is_found_behind_its_second_turn():
    """At 100 s of it: the turn of 61 s gives one token, the last waits 23 s more."""
    trace = midway(conversation(), np.array([0.0, 61.0, 123.0]), np.array([100.0]))

    assert trace.prompt_tokens.tolist() == [150, 230]
    assert trace.output_tokens.tolist() == [1, 5]
    assert trace.parent.tolist() == [-1, 0]
    assert trace.prefix_tokens.tolist() == [0, 151]  # of 170: the answer is not there
    assert trace.after.tolist() == [-1, 0]
    assert trace.think_s.tolist() == [0.0, 23.0]


def test_a_session_is_found_with_the_text_that_it_began_with():
    of = {"prefix_group": np.array([0, -1, -1]), "prefix_tokens": [80, 110, 90]}
    trace = conversation(**{**of, "prefix_tokens": np.array(of["prefix_tokens"])})

    found = midway(trace, np.array([0.0, 61.0, 123.0]), np.array([100.0]))

    assert found.prefix_group.tolist() == [0, -1]
    assert found.prefix_tokens.tolist() == [80, 90]


def test_agents_that_run_are_each_found_behind_a_turn():
    """A sub-agent that the main one waits for: both have a turn before 15 s."""
    trace = Trace(
        np.array([100, 40, 60, 200]),
        np.array([10, 10, 10, 10]),
        parent=np.array([-1, -1, 1, 0]),
        prefix_tokens=np.array([0, 0, 50, 110]),
        after=np.array([-1, 0, 1, 2]),
        think_s=np.array([0.0, 1.0, 10.0, 4.0]),
        agent=np.array([0, 1, 1, 0], np.int32),
        session=np.zeros(4, np.int64),
    )
    starts_s = asked_s(trace, np.zeros(len(trace)), np.full(4, 1.0))
    assert starts_s.tolist() == [0, 2, 13, 18]

    found = midway(trace, starts_s, np.array([10.0]))

    assert found.output_tokens.tolist() == [1, 1, 10, 10]
    assert found.after.tolist() == [-1, -1, 1, 2]
    assert found.think_s.tolist() == [0.0, 0.0, 3.0, 4.0]
    assert found.parent.tolist() == [-1, -1, 1, 0]
    assert found.prefix_tokens.tolist() == [0, 0, 41, 101]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), lanes=st.integers(1, 12))
def test_what_is_found_shares_what_whole_sessions_do_at_most(seed, lanes):
    rng = np.random.default_rng(seed)
    base = drawn(("agents-coding:n=6", "chat-turns:n=20")[seed % 2], rng)
    mix = Mix(base, rng.exponential(5.0, len(base)))

    trace = Sessions(lanes).drawn(mix, rng, 600.0)

    assert trace.users == lanes
    label = session_of(trace)
    assert int(label.max()) + 1 >= lanes
    has = trace.parent >= 0
    assert (label[has] == label[trace.parent[has]]).all()
    whole = (trace.prompt_tokens + trace.output_tokens)[trace.parent[has]]
    shared = trace.prefix_tokens[has]
    assert (shared <= np.minimum(whole, trace.prompt_tokens[has])).all()
    waits = trace.after >= 0
    assert (label[waits] == label[trace.after[waits]]).all()
    first = label < lanes
    assert (trace.output_tokens[first & ~waits] >= 1).all()


def test_sessions_are_found_as_often_as_they_last_long():
    """Of a short and a nine times longer session: nine of ten that run are long."""
    short = conversation(think_s=np.array([0.0, 50.0, 50.0]))
    columns = {
        name: np.tile(getattr(short, name), 2)
        for name in ("prompt_tokens", "output_tokens", "prefix_tokens")
    }
    base = Trace(
        **columns,
        parent=np.array([-1, 0, 1, -1, 3, 4]),
        after=np.array([-1, 0, 1, -1, 3, 4]),
        think_s=np.array([0.0, 50, 50, 0, 450, 450]),
        session=np.repeat([0, 1], 3),
    )
    mix = Mix(base, np.zeros(6))
    assert mix.lasts_s.tolist() == [100, 900]

    trace = Sessions(4000).drawn(mix, np.random.default_rng(0), 1.0)

    of_first = trace.think_s[trace.after >= 0][: 4000 // 2]
    assert abs((of_first > 50).mean() - 0.9) < 0.15
    uniform = Sessions(4000, snapshot=(0.5, 0.5))
    half = uniform.drawn(mix, np.random.default_rng(0), 1.0)
    first = session_of(half) < 4000
    assert set(half.think_s[first & (half.after >= 0)].tolist()) <= {0.0, 50.0, 450.0}


def test_sessions_begin_at_their_rate_beside_those_that_run():
    mix = Mix(conversation(), np.zeros(3))  # of 120 s
    trace = Sessions(rate_per_s=0.5).drawn(mix, np.random.default_rng(0), 4000.0)

    begin_s = trace.arrival_s[trace.after < 0]
    assert trace.users == 0
    assert abs((begin_s == 0).sum() - 60) < 25  # by Little's law
    assert abs((begin_s > 0).sum() - 2000) < 180
    assert Sessions(rate_per_s=0.5).running(120.0) == 60.0


def test_the_mean_context_is_over_time():
    mix = Mix(conversation(), np.array([1.0, 2.0, 3.0]))

    held = 61 * 110 + 62 * 170 + 3 * 235
    assert mix.context_tokens == pytest.approx(held / 126)
    assert mix.own_share == 1


def test_texts_that_all_share_are_no_contexts_of_their_own():
    """A text of 80 tokens, of which the last turn keeps 60."""
    of = {
        "prefix_group": np.array([0, -1, -1]),
        "prefix_tokens": np.array([80, 90, 60]),
    }

    mix = Mix(conversation(**of), np.zeros(3))

    assert mix.own_share == pytest.approx(1 - (80 + 80 + 60) / (110 + 170 + 235))


def test_waits_are_capped_and_counted():
    trace = capped(conversation(), 10.0)

    assert trace.think_s.tolist() == [0, 10, 10]
    assert trace.notes[-1] == "2 waits cut at 10 s"


def test_a_session_ends_before_a_turn_that_is_too_long():
    trace = within(conversation(), 200, "end")

    assert trace.prompt_tokens.tolist() == [100, 150]
    assert trace.notes[-1] == "1 sessions end at the LLM's length, 1 turns less"
    assert within(conversation(), 235, "end").prompt_tokens.tolist() == [100, 150, 230]
    with pytest.raises(InputError, match="no session has a turn that the LLM takes"):
        within(conversation(), 50, "end")


def test_a_session_goes_on_with_a_summary():
    """Turns grow by 1,000 tokens; of 5,000 the LLM takes no more than 4,500."""
    n = 6
    trace = Trace(
        1000 * np.arange(1, n + 1),
        np.full(n, 10),
        parent=np.arange(-1, n - 1),
        prefix_tokens=np.maximum(1000 * np.arange(n) + 10 * (np.arange(n) > 0), 0),
        after=np.arange(-1, n - 1),
        think_s=np.zeros(n),
    )

    compact = within(trace, 4500, "compact")

    assert compact.prompt_tokens.tolist() == [1000, 2000, 3000, 4000, 3990, 3990]
    assert compact.parent.tolist() == [-1, 0, 1, 2, -1, -1]
    assert compact.after.tolist() == trace.after.tolist()


def test_first_turns_are_a_class_where_they_have_limits():
    trace = with_first(conversation())

    assert trace.class_names == ("turn", "first")
    assert trace.request_class.tolist() == [1, 0, 0]


@pytest.mark.parametrize("arrival_s", [None, np.array([7.0, np.nan, np.nan])])
def test_a_recording_is_replayed_at_its_times(arrival_s):
    recorded_s = np.array([7.0, 30.0, 99.0])

    trace = replayed(conversation(recorded_s=recorded_s, arrival_s=arrival_s))

    assert trace.arrival_s.tolist() == [0, 23, 92]
    assert not trace.has_waits
    assert trace.parent.tolist() == [-1, 0, 1]
    with pytest.raises(InputError, match="no recorded times"):
        replayed(conversation())


def test_sessions_without_times_keep_what_is_between_their_first_requests():
    trace = conversation(arrival_s=np.array([100.0, np.nan, np.nan]))

    assert timeless(trace).arrival_s is None
    assert timeless(trace).think_s.tolist() == [0, 60, 60]
