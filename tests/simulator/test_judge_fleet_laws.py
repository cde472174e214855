"""Laws of the judge of fleets in motion, on random cases."""

from dataclasses import replace

import numpy as np
import pytest
from cases import EXAMPLES, TICK_S, cases
from fleet_cases import KINDS, draw, survey
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import ROUTERS, judge
from judge_fleet import judge_fleet
from judge_hand_off import HandOff
from judge_llumnix import Llumnix

from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.latency.contract import linear_tables
from capplan.simulator.laws.cases import draw as closed_case
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from capplan.workload.users import Users

SEEN = [f"llm-d:refresh={k * TICK_S}s,kv={k % 2}" for k in (0, 4, 16)]
SLO = RequestSlo(ttft_s=0.5, tpot_s=0.3, tbt_s=20 * TICK_S)


@pytest.mark.thorough
@settings(deadline=None, max_examples=12 * EXAMPLES)
@given(
    case=cases(replicas=4),
    router=st.sampled_from([*sorted(ROUTERS), *SEEN]),
    scheduler=st.sampled_from(["vllm-v1", "vllm-v1-priority"]),
)
def test_a_fleet_at_rest_is_judged_as_by_its_judge(case, router, scheduler):
    trace, tables, engine, count = case

    verdict = judge_fleet(
        trace, [(tables, engine, scheduler, count, router)], seed=5, slo=SLO
    )

    at_rest = judge(*case, router, seed=5, slo=SLO, scheduler=scheduler)
    assert [served.replica for served in verdict.requests] == at_rest.replica
    for served, request in zip(verdict.requests, at_rest.requests, strict=True):
        assert served.token_s == request.token_s
        assert served.scheduled_s == request.scheduled_s
        assert served.preemptions == request.preemptions
        assert served.cached_tokens == request.cached_tokens


def closed_loop(seed):
    """Return users and their fleet: no answer brings a request at its own instant.

    That would leave open which replicas are a step ahead.
    """
    rng = np.random.default_rng(seed)
    case = closed_case(parse_scheduler("vllm-v1"), seed)
    users = Users(int(rng.integers(1, 12)), float(rng.choice([1e-3, 0.05, 0.5])), True)
    trace = users.asking(replace(case.trace, arrival_s=None), rng)
    if seed % 2:  # whole ticks
        ticks = rng.integers(1, 6, len(trace))
        trace = replace(trace, think_s=TICK_S * ticks)
    if seed % 5 == 0:
        trace = replace(trace, asked_until_s=0.5 + trace.think_s[0])
    routers = [*sorted(ROUTERS), *SEEN]
    router = routers[seed % len(routers)]
    return trace, case.configuration, int(rng.integers(1, 4)), router


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:an iteration had")
@pytest.mark.parametrize("seed", range(12 * EXAMPLES))
def test_users_are_judged_as_they_are_simulated(seed):
    trace, configuration, count, router = closed_loop(seed)

    verdict = judge_fleet(
        trace,
        [(configuration.tables, configuration.engine, "vllm-v1", count, router)],
        slo=SLO,
    )

    fleet = Deployment.of(configuration, count, router)
    table = simulate(trace, fleet, slo=Slo(SLO), seed=0).table
    served = verdict.requests
    assert table.replica.tolist() == [each.replica for each in served]
    assert table.preemptions.tolist() == [each.preemptions for each in served]
    assert table.cached_tokens.tolist() == [each.cached_tokens for each in served]
    for name, times_s in [
        ("arrival_s", [each.arrival_s for each in served]),
        ("scheduled_s", [each.scheduled_s for each in served]),
        ("first_token_s", [each.token_s[0] for each in served]),
        ("finish_s", [each.token_s[-1] for each in served]),
    ]:
        np.testing.assert_allclose(getattr(table, name), times_s, rtol=0, atol=1e-9)


EXPECTED = {
    "events": ["held", "routed again", "preemptions"],
    "llumnix": [
        *(f"joined in stage {stage}" for stage in (1, 2, 3)),
        *(
            f"migration {reason}"
            for reason in ("blocks", "seat", "stages", "finished", "finishing")
        ),
        "migration preempted",
    ],
    "llumnix-events": [
        "migration joined",
        "migration source died",
        "migration target died",
        "target died after the request had left its source",
    ],
    "aladdin": ["placed together", "re-balanced", "preemptions"],
    "aladdin-events": ["placed together", "re-balanced", "held", "routed again"],
    "drafts-events": ["held", "routed again", "preemptions"],
    "drafts-llumnix": [
        *(f"joined in stage {stage}" for stage in (1, 2, 3)),
        "migration preempted",
    ],
    "drafts-llumnix-events": [
        "migration joined",
        "migration source died",
        "migration target died",
        "target died after the request had left its source",
    ],
    "drafts-aladdin-events": ["placed together", "re-balanced", "routed again"],
    "nixl": [
        "served by decode alone",
        "prefix hits not copied",
        "pulls that waited for blocks",
        "releases to a blocked prefill replica",
        "preemptions on decode replicas",
    ],
    "nixl-priority": [
        "prefix hits not copied",
        "pulls that waited for blocks",
        "releases to a blocked prefill replica",
        "preemptions on decode replicas",
    ],
    "distserve": [
        "handed over",
        "pulls that waited for blocks",
        "releases to a blocked prefill replica",
        "preemptions on decode replicas",
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_random_fleets_where_everything_happens(kind):
    counted = survey(range(200), [kind])[kind]

    assert not [name for name in EXPECTED[kind] if not counted[name]]


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_a_rebalancer_that_moves_nobody_changes_nothing(number):
    case = draw("llumnix", number)
    idle = Llumnix(theta=np.inf, period_s=(1 + number) * TICK_S)

    moving = judge_fleet(
        case.trace, case.pools, rebalancer=idle, seed=case.seed, slo=case.slo
    )

    still = judge_fleet(case.trace, case.pools, seed=case.seed, slo=case.slo)
    assert not moving.moves
    assert [repr(each) for each in moving.requests] == list(map(repr, still.requests))


def test_a_request_that_has_come_is_moved_on_after_an_iteration_at_the_earliest():
    # No freeness of one that has a request is enough. It joins at 15, at a tick, and
    # would be moved on at once, from replica to replica every 5.
    trace = Trace(np.array([4]), np.array([9]), np.zeros(1))
    tables = linear_tables(10.0, 0, 0, 0, 0, max_batch=8, max_tokens=64)
    engine = EngineSettings(64, 8, block_size=4, kv_blocks=101, async_scheduling=False)
    settings = Llumnix(theta=1000.0, period_s=5.0, block_s=5.0)

    verdict = judge_fleet(
        trace, [(tables, engine, "vllm-v1", 2, "jsq")], rebalancer=settings
    )

    (served,) = verdict.requests
    assert len(served.token_s) == 9
    assert 1 < served.migrations <= 8


@pytest.mark.parametrize("seed", range(4 * EXAMPLES))
def test_copies_that_take_no_time_make_two_queues_in_series(seed):
    # A token takes the same time in a prompt and as a decode, so that one that is
    # computed again costs as a prompt of one token.
    rng = np.random.default_rng(seed)
    n, token_s = int(rng.integers(1, 30)), float(rng.integers(0, 3))
    straight = linear_tables(
        float(rng.integers(1, 9)), token_s, 0, token_s, 0, max_batch=8, max_tokens=64
    )
    seats = int(rng.integers(1, 9))
    engine = EngineSettings(
        seats + int(rng.integers(0, 20)),
        seats,
        block_size=4,
        kv_blocks=10_000,
        async_scheduling=bool(rng.integers(0, 2)),
    )
    trace = Trace(
        rng.integers(1, 30, n), rng.integers(1, 9, n), np.cumsum(rng.integers(0, 9, n))
    )
    pool = straight, engine, "vllm-v1", 1, "jsq"

    verdict = judge_fleet(trace, [pool, pool], hand_off=HandOff(block_s=0.0))

    prompts = replace(trace, output_tokens=np.ones(n, int))
    first = judge(prompts, straight, engine, 1, "jsq")
    handed_s = [request.token_s[0] for request in first.requests]
    answers = Trace(np.ones(n, int), trace.output_tokens, np.array(handed_s))
    second = judge(answers, straight, engine, 1, "jsq")
    assert [served.handed_s for served in verdict.requests] == handed_s
    assert [served.token_s for served in verdict.requests] == [
        request.token_s for request in second.requests
    ]
