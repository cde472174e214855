"""Production-stack's prefix-aware routing, worked by hand: 32 tokens a chunk."""

import pytest
from asking import Asked


def knowing():
    """Return a router whose first replica has two chunks, and the second one."""
    asked = Asked("prefix-aware:match=1000000")  # so that the engine without queries
    assert asked.ask(64, 64) == 0
    assert asked.ask(32, 32) == 1
    return asked


@pytest.mark.parametrize(("draw", "chosen"), [(0.0, 0), (0.49, 0), (0.5, 1), (0.99, 1)])
def test_an_unknown_prompt_goes_anywhere(draw, chosen):
    assert Asked("prefix-aware").ask(75, 75, draw=draw) == chosen


def test_the_longest_match_wins_whatever_the_load():
    asked = knowing()
    asked.set("match", 0)

    assert asked.ask(75, 75, loads=(1000, 0), draw=0.99) == 0


def test_a_match_below_the_least_goes_by_queries():
    asked = Asked("prefix-aware:match=256")
    assert asked.ask(32, 32) == 0  # none had a query

    assert asked.ask(75, 75) == 1  # 128 characters are known, and 1 had no query
    assert asked.ask(75, 75, draw=0.99) == 1  # 75 tokens, of which 300 are


def test_equal_prompts_share_their_last_chunk_which_counts_whole():
    # 33 tokens are two chunks, of which the second has one; one of 34 is another.
    asked = Asked("prefix-aware:match=256")
    first = asked.ask(33, 33)

    assert [asked.ask(34, 34), asked.ask(33, 33)] == [1 - first, first]


def test_queries_older_than_the_window_do_not_count():
    asked = Asked("prefix-aware:match=1000000")
    early = [asked.ask(9, at_s=at_s) for at_s in (0.0, 0.0, 1.0)]

    later = [asked.ask(9, at_s=at_s) for at_s in (60.0, 60.5, 60.6)]

    # 0, 1, 0; at 60 s all count: 1. At 60.5 s those of 0 s do not: one each, 0; then 1.
    assert early == [0, 1, 0]
    assert later == [1, 0, 1]
