"""LoRA adapters: as worked by hand, as their judge, and by their laws."""

from dataclasses import replace

import numpy as np
import pytest
from cases import EXAMPLES, TICK_S, Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_v1 import judge_v1
from test_against_judge import assert_same

from capplan.deployment.adapters import Adapters
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.simulator.worked import TABLES, engine, ms

A, B, ALONE = 0, 1, -1


def trace_of(requests) -> Trace:
    """Return requests: arrival [ms], prompt and output [tokens], adapter."""
    arrival_ms, prompts, outputs, adapter = np.array(requests).T
    return Trace(prompts, outputs, arrival_ms / 1e3, adapter=adapter)


def ttft_ms(requests, given: EngineSettings | None = None, **adapters) -> np.ndarray:
    held = replace(given or engine(), adapters=Adapters(**adapters))
    return 1e3 * simulate(trace_of(requests), fleet_of(TABLES, held, 1)).table.ttft_s


# T prompt tokens and b decodes take 10 + T + b ms together.
A_B_A = [(0, 4, 2, A), (0, 4, 1, B), (0, 4, 1, A)]


def test_one_slot_lets_others_of_its_adapter_pass():
    # Both of A end at 29 ms: 10 + 8, 10 + 1. B follows, 10 + 4.
    assert ttft_ms(A_B_A, max_loras=1) == pytest.approx([18, 43, 18], abs=1e-3)


def test_two_slots_take_both_adapters_at_once():
    given = {"max_loras": 2, "max_cpu_loras": 2}

    assert ttft_ms(A_B_A, **given) == pytest.approx([22, 22, 22], abs=1e-3)


def test_the_llm_itself_needs_no_slot():
    requests = [(0, 4, 2, A), (0, 4, 1, B), (0, 4, 1, ALONE)]

    assert ttft_ms(requests, max_loras=1) == pytest.approx([18, 43, 18], abs=1e-3)


def test_an_iteration_waits_until_an_adapter_is_loaded():
    # 100 MB at 24 GB/s: 4.167 ms; B then takes the slot of A.
    load_s = 100e6 / 24e9

    found = ttft_ms(A_B_A, max_loras=1, load_s=load_s)

    assert found == pytest.approx([22.1667, 51.3333, 22.1667], abs=1e-3)


def test_an_iteration_with_an_adapter_is_longer():
    held = replace(engine(), adapters=Adapters(slowdown=0.5, read_s=1e-3))

    def ends(adapter):
        trace = trace_of([(0, 4, 3, adapter)])
        return simulate(trace, fleet_of(TABLES, held, 1)).table.finish_s

    # 14, then 11 twice; with an adapter each half as long again and 1 ms.
    assert ms(ends(A)) == 22 + 2 * 17.5
    assert ms(ends(ALONE)) == 14 + 2 * 11


@pytest.mark.parametrize(
    ("host", "waits"), [(1, [7, 7, 7, 7]), (2, [7, 7, 2, 7]), (3, [7, 7, 2, 7])]
)
def test_host_memory_drops_what_was_used_least_recently(host, waits):
    # Read in 5 ms, loaded in 2: A, B, A again, then C.
    requests = [(0, 4, 1, A), (1e3, 4, 1, B), (2e3, 4, 1, A), (3e3, 4, 1, 2)]

    found = ttft_ms(
        requests, max_loras=1, max_cpu_loras=host, load_s=2e-3, fetch_s=5e-3
    )

    assert found == pytest.approx(14 + np.array(waits), abs=1e-3)


def test_requests_of_different_adapters_share_no_prefix():
    held = engine(prefix_caching=True)
    adapters = Adapters(max_loras=2, max_cpu_loras=2)
    trace = Trace(
        [9, 9, 9],
        [1, 1, 1],
        np.array([0.0, 1.0, 2.0]),
        prefix_group=np.zeros(3, int),
        prefix_tokens=np.full(3, 8),
        adapter=np.array([A, B, A]),
    )

    times = simulate(trace, fleet_of(TABLES, replace(held, adapters=adapters), 1))

    assert times.table.cached_tokens.tolist() == [0, 0, 8]


@st.composite
def adapter_cases(draw, free: bool = False):
    """Draw a case with few adapters and slots; ``free``: enough, at no cost."""
    case = draw(cases(replicas=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    adapter = rng.integers(-1, draw(st.integers(1, 5)), len(case.trace))
    slots = 5 if free else int(rng.integers(1, 4))
    costs = {
        "slowdown": float(rng.choice([0.0, 0.5, 1.0])),
        "read_s": float(rng.integers(0, 3) * TICK_S),
        "load_s": float(rng.integers(0, 4) * TICK_S),
        "fetch_s": float(rng.integers(0, 4) * TICK_S),
    }
    adapters = Adapters(
        max_loras=slots,
        max_cpu_loras=slots + int(rng.integers(0, 4)),
        **({} if free else costs),
    )
    return case._replace(
        trace=replace(case.trace, adapter=adapter),
        engine=replace(case.engine, adapters=adapters),
    )


@pytest.mark.thorough
@settings(deadline=None, max_examples=8 * EXAMPLES)
@given(case=adapter_cases())
def test_every_request_gets_the_times_of_the_step_by_step_judge(case):
    simulation = case.simulated("jsq")

    assert_same(simulation, judge_v1(*case))


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=adapter_cases(free=True))
def test_slots_for_all_at_no_cost_are_as_no_adapters(case):
    trace = replace(case.trace, prefix_group=np.full(len(case.trace), -1))
    without = Case(
        replace(trace, adapter=np.full(len(trace), -1)),
        case.tables,
        replace(case.engine, adapters=None),
        case.replica_count,
    )

    with_slots = case._replace(trace=trace).simulated("jsq").table
    alone = without.simulated("jsq").table

    np.testing.assert_array_equal(with_slots.finish_s, alone.finish_s)
    np.testing.assert_array_equal(with_slots.ttft_s, alone.ttft_s)


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=adapter_cases(), jump=st.integers(1, 4))
def test_the_length_of_a_jump_changes_nothing(case, jump):
    whole = case.simulated("jsq").table
    cut = case.simulated("jsq", longest_jump=jump).table

    np.testing.assert_allclose(cut.finish_s, whole.finish_s, rtol=1e-9)


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=adapter_cases())
def test_no_iteration_has_more_adapters_than_slots(case):
    steps = case.simulated("jsq", record_iterations=True).iterations

    begin = 0
    for step in steps.steps:
        rows = steps.entries["row"][begin : step["entries_end"]]
        begin = step["entries_end"]
        adapters = set(case.trace.adapter[rows].tolist()) - {-1}
        assert len(adapters) <= case.engine.adapters.max_loras


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"max_lora_rank": 24}, "max_lora_rank is 24; expected one of 1, 8, 16, .* 32"),
        ({"max_lora_rank": 999}, "max_lora_rank is 999; expected one of .* as 512"),
        ({"lora_rank": 32}, r"lora_rank is 32; expected 1 to max_lora_rank \(16\)"),
        ({"max_loras": 0}, "max_loras is 0; expected 1 to"),
        (
            {"max_loras": 4, "max_cpu_loras": 2},
            r"max_cpu_loras is 2; expected max_loras \(4\)",
        ),
        ({"load_s": -1.0}, "load_s is -1.0; expected >= 0"),
    ],
)
def test_slots_that_vllm_refuses_are_refused(given, reason):
    with pytest.raises(InputError, match=reason):
        Adapters(**given)


def test_adapters_of_an_engine_without_slots_are_refused():
    with pytest.raises(InputError, match="2 requests ask for an adapter; expected --e"):
        simulate(
            trace_of([(0, 4, 1, A), (0, 4, 1, B), (0, 4, 1, ALONE)]),
            fleet_of(TABLES, engine(), 1),
        )


def test_other_schedulers_with_adapters_are_refused():
    held = replace(engine(), adapters=Adapters())

    with pytest.raises(InputError, match="scheduler orca is not modelled"):
        simulate(
            trace_of([(0, 4, 1, A)]),
            fleet_of(TABLES, held, 1, scheduler="orca:max_len=8"),
        )
