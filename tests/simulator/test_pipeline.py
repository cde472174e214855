"""Pipeline parallelism: as worked by hand, as its judge, and by its laws."""

from dataclasses import replace

import numpy as np
import pytest
from cases import EXAMPLES, TICK_S, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import judge
from test_against_judge import assert_same

from capplan.deployment.adapters import Adapters
from capplan.deployment.engine import EngineSettings
from capplan.deployment.images import Images
from capplan.deployment.pipeline import Pipeline
from capplan.deployment.speculation import Speculation
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

US = 1e-6
# b decodes take 10,000 + 100 b us; so do b prompt tokens.
TABLES = linear_tables(
    10_000 * US, 100 * US, 0, 100 * US, 0, max_batch=64, max_tokens=400
)


def engine(stages: int = 2, **settings) -> EngineSettings:
    return EngineSettings(
        **{
            "max_num_batched_tokens": 400,
            "max_num_seqs": 64,
            "block_size": 16,
            "kv_blocks": 10_000,
            "pipeline": Pipeline(stages),
            **settings,
        }
    )


def served(requests, given: EngineSettings, tables=TABLES, **options):
    """Serve requests: arrival [us], prompt and output [tokens]."""
    arrival_us, prompts, outputs = np.array(requests).T
    trace = Trace(prompts, outputs, arrival_us * US)
    return simulate(trace, fleet_of(tables, given, 1), **options).table


@pytest.mark.parametrize(
    ("first", "second", "cycle_us"),
    [(40, 0, 14_000), (20, 20, 12_000), (30, 10, 13_000)],
)
def test_the_slowest_micro_batch_sets_the_cycle(first, second, cycle_us):
    # Prompts of the first fill step 1; those of the second come in step 2.
    given = engine(max_num_batched_tokens=10 * first)

    def ends_s(tokens):
        return served([(0, 10, tokens)] * (first + second), given).finish_s

    cycles_us = (ends_s(3_000) - ends_s(2_000)) / 1_000 / US
    assert cycles_us == pytest.approx(cycle_us, abs=1e-3)


def test_a_prompt_of_four_chunks_passes_the_stages_one_behind_the_other():
    # 100 tokens are one chunk: (10,000 + 100 * 100 - 10,000) / 2 = 5,000 us a stage.
    tables = linear_tables(0, 100 * US, 0, 100 * US, 0, max_batch=64, max_tokens=400)
    given = engine(max_num_batched_tokens=100)

    times = served([(0, 400, 1)], given, tables)

    assert times.finish_s[0] / US == pytest.approx(25_000, abs=1)


def test_a_hop_lengthens_every_stage():
    # One decode: 10,100 / 2 + 10 + 1 us; a token is two stages.
    pipeline = Pipeline(2, hop_s=10 * US, hop_token_s=1 * US)

    times = served([(0, 100, 11)], engine(pipeline=pipeline))

    # 100 tokens: (10,000 + 10,000) / 2 + 10 + 100.
    assert times.first_token_s[0] / US == pytest.approx(2 * 10_110, abs=1e-3)
    tpot_us = (times.finish_s - times.first_token_s)[0] / 10 / US
    assert tpot_us == pytest.approx(2 * 5_061, abs=1e-3)


def test_adapters_lengthen_what_a_stage_computes_and_not_the_hop():
    # One decode: 1.5 * 10,100 / 2 + 50 / 2, its adapter's bytes, + 10 + 1 us.
    pipeline = Pipeline(2, hop_s=10 * US, hop_token_s=1 * US)
    adapters = Adapters(1, slowdown=0.5, read_s=50 * US, load_s=300 * US)
    given = engine(pipeline=pipeline, adapters=adapters)
    trace = Trace([100], [1_001], np.zeros(1), adapter=np.zeros(1, int))

    times = simulate(trace, fleet_of(TABLES, given, 1)).table

    # 100 tokens: 1.5 * (10,000 + 10,000) / 2 + 50 / 2 + 10 + 100, loaded before.
    assert times.first_token_s[0] / US == pytest.approx(300 + 2 * 15_135, abs=1e-3)
    tpot_us = (times.finish_s - times.first_token_s)[0] / 1_000 / US
    assert tpot_us == pytest.approx(2 * 7_611, abs=1e-3)


def test_the_draft_is_whole_on_the_last_stage_and_all_take_as_long():
    # One decode verifies two tokens in (10,100 + 100) / 2 + 10 + 2 * 1 us; the draft's
    # pass takes 0.1 * (10,100 + 100) us.
    pipeline = Pipeline(2, hop_s=10 * US, hop_token_s=1 * US)
    drafts = Speculation("mtp", (1.0,), draft_share=0.1)

    times = served([(0, 100, 11)], engine(pipeline=pipeline, speculation=drafts))

    # Ten tokens in five iterations, each of which passes two stages.
    iteration_us = (times.finish_s - times.first_token_s)[0] / 5 / US
    assert iteration_us == pytest.approx(2 * (5_112 + 1_020), abs=1e-3)


def test_the_first_stage_encodes_images_before_a_step():
    # 100 tokens: 10,000 us on each stage, behind 3,000 us for the image.
    images = Images(max_image_tokens=50, image_s=3_000 * US)
    trace = Trace(
        [100], [1], np.zeros(1), image_tokens=np.full(1, 50), images=np.ones(1, int)
    )

    times = simulate(trace, fleet_of(TABLES, engine(images=images), 1)).table

    assert times.finish_s[0] / US == pytest.approx(3_000 + 2 * 10_000, abs=1e-3)


def test_a_step_with_more_adapters_than_slots_is_refused():
    # Of two adapters one has a slot: the first prompt goes on beside the second's.
    given = engine(adapters=Adapters(1), max_num_batched_tokens=100)
    trace = Trace([90, 950], [90, 9], np.array([0.0, 1e-3]), adapter=np.arange(2))

    with pytest.raises(InputError, match="a step had more adapters than max_loras, "):
        simulate(trace, fleet_of(TABLES, given, 1))


@st.composite
def pipeline_cases(draw, replicas: int = 3):
    """Draw a case with two to five stages, uneven ones among them, and hops."""
    case = draw(cases(replicas=replicas))
    exact = case.tables.attention_s == 0 and draw(st.booleans())
    stages = draw(st.sampled_from([2, 4] if exact else [2, 3, 4, 5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    share = None if exact or rng.random() < 0.5 else rng.uniform(1 / stages, 1)
    hops = {
        "hop_s": float(rng.integers(0, 3) * TICK_S),
        "hop_token_s": float(rng.integers(0, 2) * TICK_S / 4),
    }
    pipeline = Pipeline(stages, share, **hops)
    longer = rng.integers(1, 40, len(case.trace)) * rng.integers(0, 2)
    outputs = case.trace.output_tokens + longer
    trace = replace(case.trace, output_tokens=outputs, predicted_output_tokens=outputs)
    held = case.trace.prompt_tokens + outputs - 1
    largest = int(np.max(case.engine.request_blocks(held)))
    blocks = max(case.engine.kv_blocks, largest + 1)
    given = replace(
        case.engine, async_scheduling=True, pipeline=pipeline, kv_blocks=blocks
    )
    return case._replace(trace=trace, engine=given)


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=cases(replicas=3))
def test_one_stage_is_no_pipeline(case):
    alone = replace(case.engine, async_scheduling=True)
    staged = replace(alone, pipeline=Pipeline(1))

    one = case._replace(engine=staged).simulated("jsq").table
    none = case._replace(engine=alone).simulated("jsq").table

    np.testing.assert_allclose(one.finish_s, none.finish_s, rtol=1e-9)
    np.testing.assert_allclose(one.first_token_s, none.first_token_s, rtol=1e-9)


ROUTERS = ["jsq", "round-robin", "power-of-two", "least-tokens", "inst-assign"]


@pytest.mark.thorough
@settings(deadline=None, max_examples=8 * EXAMPLES)
@given(case=pipeline_cases(), router=st.sampled_from(ROUTERS), tbt=st.integers(1, 60))
def test_every_request_gets_the_times_of_the_step_by_step_judge(case, router, tbt):
    slo = RequestSlo(ttft_s=1.0, tbt_s=(tbt + 0.1234) * TICK_S)

    simulation = case.simulated(router, seed=5, slo=Slo(slo))

    verdict = judge(*case, router, seed=5, slo=slo)
    assert_same(simulation, verdict)


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=pipeline_cases(), jump=st.integers(1, 12))
def test_the_length_of_a_jump_changes_nothing(case, jump):
    whole = case.simulated("jsq").table
    cut = case.simulated("jsq", longest_jump=jump).table

    np.testing.assert_allclose(cut.finish_s, whole.finish_s, rtol=1e-9)
    np.testing.assert_allclose(cut.first_token_s, whole.first_token_s, rtol=1e-9)


@pytest.mark.parametrize("seed", range(EXAMPLES // 5))
def test_long_answers_end_as_step_by_step(seed):
    # Many jumps: micro-batches of several sizes, of which others become the slowest.
    rng = np.random.default_rng(seed)
    n = 60
    trace = Trace(
        rng.integers(1, 200, n),
        rng.integers(1, 1_500, n),
        np.cumsum(rng.exponential(0.3, n)),
    )
    tables = linear_tables(
        5e-3, 20e-6, 0, 100e-6, rng.choice([1e-7, 4e-6]), max_batch=64, max_tokens=400
    )
    pipeline = Pipeline(int(rng.integers(2, 6)), hop_s=1e-4, hop_token_s=1e-6)
    given = engine(
        pipeline=pipeline,
        max_num_seqs=int(rng.choice([8, 64])),
        kv_blocks=int(rng.choice([150, 2_000])),
        prefix_caching=bool(rng.integers(0, 2)),
    )
    deployment = fleet_of(tables, given, 1)

    jumping = simulate(trace, deployment).table
    stepping = simulate(trace, deployment, longest_jump=1).table

    np.testing.assert_allclose(jumping.finish_s, stepping.finish_s, rtol=1e-9)
    gaps = jumping.longest_gap_s, stepping.longest_gap_s
    np.testing.assert_allclose(*gaps, rtol=1e-6)
    assert jumping.preemptions.tolist() == stepping.preemptions.tolist()


@pytest.mark.thorough
@settings(deadline=None, max_examples=EXAMPLES)
@given(case=pipeline_cases(), users=st.integers(1, 5), jump=st.integers(1, 12))
def test_users_who_wait_are_answered_as_step_by_step(case, users, jump):
    think_s = np.full(len(case.trace), 2 * TICK_S)
    trace = replace(case.trace, arrival_s=None, users=users, think_s=think_s)
    case = case._replace(trace=trace)

    whole = case.simulated("jsq").table
    cut = case.simulated("jsq", longest_jump=jump).table

    np.testing.assert_allclose(cut.finish_s, whole.finish_s, rtol=1e-9)


def test_an_event_of_a_fleet_that_moves_is_refused():
    still = fleet_of(TABLES, engine(), 2)

    with pytest.raises(InputError, match="pipeline_parallel_size 2 with rebalancer"):
        replace(still, rebalancer="llumnix")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"async_scheduling": False}, "--no-async-scheduling"),
        ({"decode_context_parallel_size": 2}, "decode_context_parallel_size 2"),
        ({"data_parallel_size": 2}, "data_parallel_size 2"),
    ],
)
def test_what_is_not_modelled_with_stages_is_refused(given, reason):
    with pytest.raises(InputError, match=f"size 2 with {reason} is not modelled"):
        served([(0, 4, 1)], engine(**given))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"stages": 0}, "pipeline_parallel_size is 0; expected 1 to 64"),
        ({"stages": 2, "layer_share": 0.4}, "layer_share is 0.4; expected 1/2 to 1"),
        ({"hop_s": -1.0}, "hop_s is -1.0; expected >= 0"),
    ],
)
def test_stages_that_are_none_are_refused(given, reason):
    with pytest.raises(InputError, match=reason):
        Pipeline(**given)
