"""Every planned iteration fits the engine; what does not is said."""

from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.profiling.plan import (
    DENSITIES,
    batch_sizes,
    density,
    plan_profile,
    steps,
)
from capplan.profiling.scenes import Ladder, Prompts

engine = st.fixed_dictionaries(
    {
        "max_model_len": st.integers(256, 200_000),
        "max_num_batched_tokens": st.sampled_from([256, 512, 2048, 8192, 16384]),
        "max_num_seqs": st.sampled_from([1, 7, 128, 256, 1024]),
        "block_size": st.sampled_from([16, 32, 128]),
        "kv_blocks": st.integers(40, 30_000),
    }
)


@pytest.mark.parametrize("name", DENSITIES)
@settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(given_limits=engine)
def test_every_point_fits_budget_requests_context_and_cache(
    engine_facts, name, given_limits
):
    facts = engine_facts(**given_limits)
    if facts.kv_capacity_tokens < 512:
        return

    plan = plan_profile(facts, density(name))

    for point in plan.points:
        chunk = point.new_tokens - (point.batch if point.phase != "prefill" else 0)
        assert point.new_tokens <= facts.max_num_batched_tokens
        assert point.batch + (point.phase == "mixed") <= facts.max_num_seqs
        assert point.context <= facts.max_model_len
        each = point.context + (point.phase == "prefill") * chunk // point.batch
        blocks = point.batch * ceil(each / facts.block_size)
        blocks += (point.phase == "mixed") * ceil(chunk / facts.block_size)
        assert blocks < facts.kv_blocks
    for scene in plan.scenes:
        if isinstance(scene, Ladder):
            assert scene.context + scene.iterations <= facts.max_model_len
        else:
            assert scene.prompt_tokens < facts.max_model_len


def test_a_profile_covers_all_phases_and_the_limits(engine_facts):
    plan = plan_profile(engine_facts(), density("default"))

    phases = {point.phase for point in plan.points}
    assert phases == {"prefill", "decode", "mixed"}
    assert max(point.batch for point in plan.points) == 256
    assert max(point.new_tokens for point in plan.points) == 2048
    assert max(point.context for point in plan.points) > 8192 * 0.9
    assert any(p.phase == "prefill" and p.batch > 1 for p in plan.points)


def test_a_denser_profile_has_more_points(engine_facts):
    counts = [
        len(plan_profile(engine_facts(), density(name)).points)
        for name in ("coarse", "default", "fine")
    ]

    assert counts[0] < counts[1] < counts[2]


def test_decode_is_measured_at_graph_sizes_and_just_above():
    sizes = batch_sizes(64, (1, 2, 4, 8, 16, 24, 32), density("default"))

    assert {8, 9, 16, 17, 32, 33} <= set(sizes)
    assert 65 not in sizes
    assert sizes == sorted(sizes, reverse=True)


def test_batches_that_the_cache_cannot_hold_are_left_out_and_said(engine_facts):
    plan = plan_profile(engine_facts(kv_blocks=257), density("default"))

    most = max(p.batch * p.context for p in plan.points if p.phase == "decode")
    assert most <= 256 * 16
    assert any("4096 tokens of KV cache" in each.reason for each in plan.skipped)


def test_prompts_longer_than_a_density_measures_are_said(engine_facts):
    facts = engine_facts(max_model_len=131_072, kv_blocks=30_000)

    plan = plan_profile(facts, density("coarse"))

    longest = max(s.prompt_tokens for s in plan.scenes if isinstance(s, Prompts))
    assert longest == 16_384
    assert any("longer than 16384" in each.what for each in plan.skipped)


def test_a_cache_without_room_for_one_request_is_refused(engine_facts):
    facts = engine_facts(kv_blocks=5, max_model_len=64)

    with pytest.raises(InputError, match="no decode iteration fits"):
        plan_profile(facts, density("default"))


def test_an_unknown_density_names_the_known_ones():
    with pytest.raises(InputError, match="coarse, default, fine"):
        density("dense")


def test_each_point_belongs_to_one_scene(engine_facts):
    plan = plan_profile(engine_facts(), density("default"))

    for point, owner in plan.owners().items():
        assert point in owner.points(plan.budget_tokens)


@given(most=st.integers(1, 5000), half_steps=st.booleans())
def test_steps_rise_to_the_most(most, half_steps):
    sizes = steps(most, half_steps)

    assert sizes[0] == 1
    assert sizes[-1] == most
    assert sizes == sorted(set(sizes))
