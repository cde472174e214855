"""Scenes know, before they run, which iteration measures what."""

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from capplan.profiling.scenes import (
    Ladder,
    Point,
    Prompts,
    Rung,
    scene_from_json,
)

rungs = st.builds(
    Rung, st.integers(1, 512), st.lists(st.integers(1, 9999), max_size=3).map(tuple)
)
ladders = st.builds(
    Ladder,
    st.integers(2, 100_000),
    st.lists(rungs, min_size=1, max_size=6).map(tuple),
    st.integers(1, 9),
)
prompts = st.builds(
    Prompts, st.integers(1, 64), st.integers(1, 20_000), st.integers(1, 5)
)


def test_a_prompt_beyond_the_budget_is_prefilled_in_chunks():
    points = Prompts(1, 5000, repeats=1).points(budget_tokens=2048)

    assert points == (
        Point("prefill", 1, 2048, 0),
        Point("prefill", 1, 2048, 2048),
        Point("prefill", 1, 904, 4096),
    )


def test_prompts_that_arrive_together_are_one_iteration():
    assert Prompts(4, 100, 1).points(2048) == (Point("prefill", 4, 400, 0),)


def test_a_ladder_names_each_iteration_by_hand_worked_contexts():
    # Iterations 0-2 settle, 3 and 4 measure decode, then per chunk: one decode,
    # the chunk, one decode. The second rung starts at 11.
    ladder = Ladder(100, (Rung(8, (64, 256)), Rung(2)), repeats=2)

    assert ladder.iterations == 16
    assert ladder.chunk_starts() == {6: 64, 9: 256}
    assert ladder.schedule() == {
        3: Point("decode", 8, 8, 104),
        4: Point("decode", 8, 8, 104),
        6: Point("mixed", 8, 72, 106),
        9: Point("mixed", 8, 264, 109),
        14: Point("decode", 2, 2, 115),
        15: Point("decode", 2, 2, 115),
    }


@given(ladders)
def test_a_mixed_point_is_named_by_the_context_of_its_own_iteration(ladder):
    for number, point in ladder.schedule().items():
        if point.phase == "mixed":
            assert point.context == ladder.context + number


@given(st.one_of(ladders, prompts))
def test_a_scene_survives_the_way_to_the_measuring_process(scene):
    assert scene_from_json(asdict(scene)) == scene
