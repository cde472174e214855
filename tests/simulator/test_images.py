"""Images: as worked by hand, as their judge, and by their laws."""

from dataclasses import replace

import numpy as np
import pytest
from cases import EXAMPLES, TICK_S, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_v1 import judge_v1
from test_against_judge import assert_same

from capplan.deployment.engine import EngineSettings
from capplan.deployment.images import Images
from capplan.errors import InputError
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.simulator.worked import TABLES, engine


def trace_of(requests, **columns) -> Trace:
    """Return requests: arrival [ms], prompt, output, image tokens, images, offset."""
    arrival_ms, prompts, outputs, tokens, images, offset = np.array(requests).T
    return Trace(
        prompts,
        outputs,
        arrival_ms / 1e3,
        image_tokens=tokens,
        images=images,
        image_offset=offset,
        **columns,
    )


def images(size: int = 64, **given) -> Images:
    return Images(encoder_cache_size=size, max_image_tokens=min(size, 64), **given)


def served(trace: Trace, held: Images, engine_: EngineSettings | None = None):
    held_engine = replace(engine_ or engine(), images=held)
    return simulate(trace, fleet_of(TABLES, held_engine, 1)).table


def ttft_ms(trace: Trace, held: Images, engine_: EngineSettings | None = None):
    return 1e3 * served(trace, held, engine_).ttft_s


# T prompt tokens and b decodes take 10 + T + b ms together.


def test_an_image_is_encoded_before_its_iteration():
    trace = trace_of([(0, 21, 1, 20, 1, 1), (0, 21, 1, 0, 0, 0)])

    found = ttft_ms(trace, images(image_s=5e-3, token_s=1e-3))

    # 10 + 42, and 5 + 20 for the image, which the other waits for too.
    assert found == pytest.approx([77, 77], abs=1e-3)


def test_an_iteration_that_encodes_takes_a_time_of_its_own():
    trace = trace_of([(0, 41, 1, 40, 2, 0)])

    found = ttft_ms(trace, images(call_s=3e-3, image_s=5e-3))

    assert found == pytest.approx([51 + 3 + 10], abs=1e-3)


def test_an_iteration_that_encodes_takes_at_least_the_launches():
    trace = trace_of([(0, 41, 1, 40, 2, 0)])

    few = ttft_ms(trace, images(least_s=14e-3, call_s=3e-3, image_s=5e-3))
    many = ttft_ms(trace, images(least_s=12e-3, call_s=3e-3, image_s=5e-3))

    assert few == pytest.approx([51 + 14], abs=1e-3)
    assert many == pytest.approx([51 + 3 + 10], abs=1e-3)


def test_a_second_image_over_the_budget_waits_an_iteration():
    # Two images of 20 tokens behind 2 of text, 32 may be encoded at once.
    trace = trace_of([(0, 44, 1, 40, 2, 2)])

    found = ttft_ms(trace, images(32, image_s=5e-3))

    # 22 tokens and an image: 37 ms; the rest: 10 + 22 + 5.
    assert found == pytest.approx([74], abs=1e-3)


def test_requests_behind_one_whose_image_waits_go_on():
    trace = trace_of([(0, 44, 1, 40, 2, 2), (0, 6, 1, 0, 0, 0)])

    found = ttft_ms(trace, images(32, image_s=5e-3))

    # 22 + 6 tokens and an image: 43 ms.
    assert found == pytest.approx([80, 43], abs=1e-3)


def test_a_prompt_before_a_decode_may_take_its_budget():
    # 40 tokens an iteration. The second answers in the first iteration; the rest of the
    # first's prompt, 41 tokens, then takes the whole budget of the second iteration.
    trace = trace_of([(0, 43, 1, 40, 2, 2), (0, 6, 2, 0, 0, 0)])
    small = engine(max_num_batched_tokens=40)

    table = served(trace, images(20), small)

    # 22 + 6 tokens: 38; 20 of the second image and the last, and a decode: 32.
    assert 1e3 * table.ttft_s == pytest.approx([70, 38], abs=1e-3)

    longer = trace_of([(0, 83, 1, 40, 2, 2), (0, 6, 2, 0, 0, 0)])
    table = served(longer, images(20), engine(max_num_batched_tokens=40))

    # Iteration 2 has 40 tokens of the first, and no decode: 50; then 21 and the decode.
    assert 1e3 * table.finish_s == pytest.approx([38 + 50 + 32, 120], abs=1e-3)


def test_a_shared_image_is_encoded_once_while_it_is_cached():
    shared = {"prefix_group": np.zeros(2, int), "prefix_tokens": np.full(2, 20)}
    trace = trace_of([(0, 21, 1, 20, 1, 0), (1e3, 21, 1, 20, 1, 0)], **shared)

    found = ttft_ms(trace, images(image_s=5e-3))

    assert found == pytest.approx([36, 31], abs=1e-3)


def test_a_prefix_that_is_cached_needs_no_image():
    shared = {"prefix_group": np.zeros(2, int), "prefix_tokens": np.full(2, 20)}
    requests = [(0, 21, 1, 20, 1, 0), (1e3, 41, 1, 40, 2, 0), (2e3, 21, 1, 20, 1, 0)]
    shared = {"prefix_group": np.array([0, -1, 0]), "prefix_tokens": np.full(3, 20)}
    trace = trace_of(requests, **shared)

    # The images between evict the first one, but not its KV.
    found = ttft_ms(
        trace, images(40, image_s=5e-3), engine(prefix_caching=True, kv_blocks=65)
    )

    assert found == pytest.approx([36, 61, 16 - 5], abs=1e-3)


def test_a_chunk_does_not_end_in_an_image_where_that_is_asked_for():
    trace = trace_of([(0, 62, 1, 30, 1, 20)])
    small = engine(max_num_batched_tokens=40)

    parted = ttft_ms(trace, images(40, image_s=5e-3), small)
    whole = ttft_ms(
        trace, images(40, image_s=5e-3, disable_chunked_mm_input=True), small
    )

    assert parted == pytest.approx([55 + 32], abs=1e-3)
    assert whole == pytest.approx([30 + 55 + 12], abs=1e-3)


def test_encoders_that_share_the_images_are_bounded_by_the_longest():
    trace = trace_of([(0, 41, 1, 40, 4, 0)])

    def took_ms(encoders):
        return ttft_ms(trace, images(image_s=6e-3, encoders=encoders))[0] - 51

    assert [took_ms(n) for n in (1, 2, 8)] == pytest.approx([24, 12, 6], abs=1e-3)


@st.composite
def image_cases(draw, free: bool = False):
    """Draw a case with images, many of the size of the cache; ``free``: at no cost."""
    case = draw(cases(replicas=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    prompts, n = case.trace.prompt_tokens, len(case.trace)
    size = int(rng.integers(24, 40)) if free else int(rng.integers(2, 30))
    offset = rng.integers(0, prompts)
    # Requests of a prefix group have equal images, as equal tokens say.
    group = case.trace.prefix_group
    by_group = rng.integers(0, 6, 2), rng.integers(1, 1 + min(size, 8), 2)
    each = rng.integers(1, 1 + min(size, 12), n)
    offset = np.where(group >= 0, by_group[0][group], offset)
    each = np.where(group >= 0, by_group[1][group], each)
    count = np.minimum(rng.integers(0, 5, n), np.maximum(prompts - offset, 0) // each)
    alike = np.array([count[group == g].min(initial=5) for g in range(2)])
    count = np.where(group >= 0, alike[group], count)
    shown = count > 0
    trace = replace(
        case.trace,
        image_offset=np.where(shown, offset, 0),
        image_tokens=count * each
        + shown
        * np.minimum(
            rng.integers(0, 2, n) * (count - 1), prompts - offset - count * each
        ).clip(0),
        images=count,
    )
    costs = {
        "least_s": float(rng.integers(0, 4) * TICK_S),
        "call_s": float(rng.integers(0, 2) * TICK_S),
        "image_s": float(rng.integers(0, 3) * TICK_S),
        "token_s": float(rng.integers(0, 2) * TICK_S),
        "encoders": 1 if case.tables.attention_s == 0 else int(rng.integers(1, 4)),
    }
    largest = int((trace.image_tokens // np.maximum(count, 1)).max(initial=1))
    whole = largest <= case.engine.max_num_batched_tokens and rng.random() < 0.3
    held = Images(
        encoder_cache_size=size,
        max_image_tokens=largest,
        disable_chunked_mm_input=bool(whole),
        **({} if free else costs),
    )
    return case._replace(trace=trace, engine=replace(case.engine, images=held))


@pytest.mark.thorough
@settings(deadline=None, max_examples=8 * EXAMPLES)
@given(case=image_cases())
def test_every_request_gets_the_times_of_the_step_by_step_judge(case):
    simulation = case.simulated("jsq")

    assert_same(simulation, judge_v1(*case))


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=cases(replicas=3))
def test_an_engine_without_images_is_as_one_that_has_no_encoder(case):
    encoder = case._replace(engine=replace(case.engine, images=images()))

    with_encoder = encoder.simulated("jsq").table
    alone = case.simulated("jsq").table

    np.testing.assert_array_equal(with_encoder.finish_s, alone.finish_s)
    np.testing.assert_array_equal(with_encoder.ttft_s, alone.ttft_s)
    np.testing.assert_array_equal(with_encoder.longest_gap_s, alone.longest_gap_s)


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=image_cases(), jump=st.integers(1, 4))
def test_the_length_of_a_jump_changes_nothing(case, jump):
    whole = case.simulated("jsq").table
    cut = case.simulated("jsq", longest_jump=jump).table

    np.testing.assert_allclose(cut.finish_s, whole.finish_s, rtol=1e-9)


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=image_cases())
def test_every_iteration_stays_within_its_tokens_and_seats(case):
    simulation = case.simulated("jsq", record_iterations=True)

    limits = case.engine.max_num_batched_tokens, case.engine.max_num_seqs
    begin = 0
    for step in simulation.iterations.steps:
        entries = simulation.iterations.entries[begin : step["entries_end"]]
        begin = step["entries_end"]
        assert entries["scheduled"].sum() <= limits[0]
        assert len(entries) <= limits[1]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"limit_per_prompt": 0}, "limit_per_prompt is 0; expected >= 1"),
        (
            {"encoder_cache_size": 32, "max_image_tokens": 64},
            r"encoder_cache_size is 32; expected at least max_image_tokens \(64\)",
        ),
        ({"image_s": -1.0}, "image_s is -1.0; expected >= 0"),
    ],
)
def test_an_encoder_that_vllm_does_not_start_is_refused(given, reason):
    with pytest.raises(InputError, match=reason):
        Images(**given)


@pytest.mark.parametrize(
    ("request_", "held", "reason"),
    [
        ((0, 60, 1, 40, 2, 0), None, "1 requests have images; expected --limit-mm"),
        (
            (0, 60, 1, 40, 2, 0),
            images(limit_per_prompt=1),
            "row 1 has 2 images; expected at most limit_mm_per_prompt, 1",
        ),
        (
            (0, 60, 1, 40, 1, 0),
            images(32),
            "row 1 has 40 tokens of an image; expected at most 32, to which vLLM",
        ),
        (
            (0, 60, 1, 40, 40, 0),
            images(8192),
            "row 1 has 1 tokens of an image; expected at least 2",
        ),
    ],
)
def test_images_that_the_engine_does_not_take_are_refused(request_, held, reason):
    given_engine = replace(engine(), images=held)

    with pytest.raises(InputError, match=reason):
        simulate(trace_of([request_]), fleet_of(TABLES, given_engine, 1))


@pytest.mark.parametrize("other", [(0, 60, 1, 20, 1, 5), (0, 60, 1, 0, 0, 0)])
def test_other_images_in_a_shared_prefix_are_refused(other):
    shared = {"prefix_group": np.zeros(2, int), "prefix_tokens": np.full(2, 20)}
    trace = trace_of([(0, 60, 1, 20, 1, 0), other], **shared)

    with pytest.raises(InputError, match="row 2 has other images in its prefix"):
        served(trace, images())


def test_other_schedulers_with_images_are_refused():
    held = replace(engine(), images=images())

    with pytest.raises(InputError, match="images with scheduler orca is not modelled"):
        simulate(
            trace_of([(0, 4, 1, 2, 1, 0)]),
            fleet_of(TABLES, held, 1, scheduler="orca:max_len=8"),
        )


def test_a_budget_below_the_largest_whole_image_is_refused():
    whole = images(disable_chunked_mm_input=True)
    held = engine(max_num_batched_tokens=60, images=whole)

    with pytest.raises(InputError, match="60; expected at least 64, the tokens of"):
        simulate(trace_of([(0, 4, 1, 2, 1, 0)]), fleet_of(TABLES, held, 1))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ((0, 20, 1, 30, 1, 0), "image_tokens is 30; expected at most the prompt, 20"),
        ((0, 20, 1, 18, 1, 4), "image_tokens is 18 behind 4 others; expected at most"),
        ((0, 20, 1, 0, 2, 0), "image_tokens is 0 and images 2; expected a token or"),
        ((0, 20, 1, 4, 0, 0), "image_tokens is 4 and images 0; expected a token or"),
    ],
)
def test_images_that_no_prompt_has_are_refused(request_, reason):
    with pytest.raises(InputError, match=f"row 1: {reason}"):
        trace_of([request_])
