from hypothesis import given
from hypothesis import strategies as st

from capplan.report.page import merged


def test_warnings_that_say_the_same_of_several_are_one():
    texts = ["A, TP 1: no engine was measured", "B: old", "C: no engine was measured"]

    assert merged(texts) == ["A, TP 1; C: no engine was measured", "B: old"]


def test_of_warnings_that_differ_in_numbers_the_first_stands_for_all():
    texts = [
        f"L on {gpu}: a context of {n} tokens is beyond 8"
        for gpu, n in (("A", 17), ("B", 19), ("B", 21))
    ]

    assert merged(texts) == ["L on A: a context of 17 tokens is beyond 8; also L on B"]
    assert merged(["17 are late", "18 are late"]) == [
        "17 are late; and 1 more like this"
    ]


def test_a_warning_without_another_like_it_is_kept_word_for_word():
    texts = ["the price of H100, $3/h: it is old", "a: b: c", "x"]

    assert merged(texts) == texts


@given(st.lists(st.text(max_size=12), max_size=6))
def test_no_warning_is_lost_and_merging_twice_changes_nothing(texts):
    found = merged(texts)

    assert len(found) <= len(set(texts))
    assert bool(found) == bool(texts)
    assert merged(texts + texts) == found
