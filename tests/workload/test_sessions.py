"""Sessions: figures, whole cuts and mixes, thoughts, and a CSV that is read again."""

import numpy as np
import pytest
from hypothesis import given

from capplan.errors import InputError
from capplan.workload.forest import session_of
from capplan.workload.readers import read_trace
from capplan.workload.sessions import (
    csv_text,
    cut,
    mixed,
    nominal_s,
    session_figures,
    with_thinking,
)
from capplan.workload.trace import Trace
from tests.workload.test_forest import NAN, chat, shapes, traces


def test_figures_of_sessions_by_hand():
    trace = mixed([chat(), chat(arrival_s=[7200, NAN, NAN])])

    figures = session_figures(trace, 4)

    assert (figures.session_count, figures.request_count) == (2, 6)
    assert (figures.appends, figures.cuts, figures.restarts) == (2, 2, 0)
    assert figures.prefix_share == 52 / 112
    assert figures.means["think_s"] == 0.1
    assert figures.quantiles["turns"].tolist() == [3, 3, 3]
    # b has 4 blocks of a, c 2: each after its parent, with nothing else between
    assert figures.curve.share(np.inf) == 2 * 6 * 4 / 112
    assert figures.hours.tolist() == [[1, 3, 1], [0, 0, 0], [1, 3, 1]]


def test_a_join_comes_after_the_last_of_its_answers():
    after, joins, think_s = [-1, 0, 0, 1], np.array([(3, 2)]), [0, 8, 20, 5]
    trace = Trace(
        [8] * 4, [2] * 4, [1, NAN, NAN, NAN], after=after, joins=joins, think_s=think_s
    )

    assert nominal_s(trace, 60).tolist() == [1, 9, 21, 26]
    assert nominal_s(trace.changed(arrival_s=None), 60).tolist() == [0, 8, 20, 25]


def test_sub_agents_are_counted_once_a_session():
    trace = chat(agent=[0, 1, -2])

    assert session_figures(mixed([trace, trace]), 4).agent_count == 4


@given(traces())
def test_cut_sessions_are_the_first_whole_ones(trace):
    count = int(session_of(trace).max()) + 1

    assert shapes(cut(trace, 1)) == shapes(trace)[:1]
    assert shapes(cut(trace, count)) == shapes(trace)


def test_classes_of_mixed_traces_are_those_of_their_names():
    one = chat(class_names=("a", "b"), request_class=[1, 1, 0])
    two = chat(class_names=("b",))

    both = mixed([one, two])

    assert both.class_names == ("a", "b")
    assert both.request_class.tolist() == [1, 1, 0, 1, 1, 1]
    assert both.parent.tolist() == [-1, 0, 1, -1, 3, 4]


LOOP = Trace(  # user, tool, tool, user: each goes on with all before it
    [100, 150, 190, 260],
    [40, 30, 20, 10],
    [0, NAN, NAN, NAN],
    parent=[-1, 0, 1, 2],
    prefix_tokens=[0, 140, 180, 210],
    after=[-1, 0, 1, 2],
    step=[0, 1, 2, 0],
    reasoning_tokens=[0, 25, 5, 0],
)


def test_a_user_message_drops_the_thoughts_of_the_tool_loop_before_it():
    trace = with_thinking(LOOP, "dropped-at-user")

    assert trace.prompt_tokens.tolist() == [100, 150, 190, 230]
    assert trace.parent.tolist() == [-1, 0, 1, 1]  # before the first thoughts
    assert trace.prefix_tokens.tolist() == [0, 140, 180, 146]


def test_templates_that_drop_all_thoughts_drop_them_in_the_loop_too():
    trace = with_thinking(LOOP, "dropped-always")

    assert trace.prompt_tokens.tolist() == [100, 150, 165, 230]
    assert trace.parent.tolist() == [-1, 0, 1, 2]
    assert trace.prefix_tokens.tolist() == [0, 140, 146, 161]


def test_thoughts_are_kept_or_must_be_known():
    assert with_thinking(LOOP, "kept") is LOOP
    with pytest.raises(InputError, match="no reasoning_tokens"):
        with_thinking(chat(), "dropped-always")
    with pytest.raises(InputError, match="--thinking is 'x'; expected one of kept"):
        with_thinking(chat(), "x")


@pytest.mark.filterwarnings("ignore")
@given(traces(waits=True))
def test_a_written_trace_is_read_to_the_same_sessions(tmp_path_factory, trace):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    if not trace.has_waits:
        return
    trace = trace.changed(session=session_of(trace))
    path.write_text(csv_text(trace))

    read = read_trace(path)

    names = np.array([*trace.text_names, ""])[trace.prefix_group]
    assert (
        np.array([*read.text_names, ""])[read.prefix_group].tolist() == names.tolist()
    )
    for name in ("arrival_s", "parent", "prefix_tokens", "after", "joins", "think_s"):
        np.testing.assert_array_equal(getattr(read, name), getattr(trace, name))
