"""Beyond the peak: what the fleet attains, and where a gateway is to refuse."""

from collections import Counter

import numpy as np
import pytest

from capplan.planning.configure.configuration import only_configuration
from capplan.planning.configure.deployments import one_pool
from capplan.planning.plan.beyond_peak import TIMES
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.plan import plan_page
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.pages import facts

ASKED = {
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "tune": False,
    "latency_ms": "9,0.04,0,0.08,0.00005",
    "kv_blocks": 3000,
}


@pytest.fixture(scope="module")
def replica():
    settings = PlanSettings(
        workload="synthetic:prompt=300,output=60,n=4000", slo="ttft=1s", **ASKED
    )
    return one_pool(settings, only_configuration(settings), 1)


@pytest.fixture(scope="module")
def classed(tmp_path_factory):
    """A plan of two classes, 60 requests a second."""
    rng = np.random.default_rng(4)
    at_s = np.cumsum(rng.exponential(1 / 60, 6000))
    rows = [
        f"{at:.6f},{rng.integers(50, 400)},{rng.integers(20, 200)},"
        f"{'vip' if rng.random() < 0.2 else 'chat'}"
        for at in at_s
    ]
    path = tmp_path_factory.mktemp("classes") / "trace.csv"
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,class", *rows]))
    settings = PlanSettings(
        trace=path, slo=("chat:ttft=1s,tpot=40ms", "vip:ttft=300ms,tpot=30ms"), **ASKED
    )
    return plan(settings, with_load=True)


def test_users_in_turn_are_arrivals_of_which_those_at_the_limit_are_refused(replica):
    rng = np.random.default_rng(3)
    count, limit = 400, 7
    gaps_s = rng.exponential(1 / 60, count)
    trace = Trace(
        rng.integers(50, 400, count),
        rng.integers(1, 60, count),
        users=limit,
        think_s=gaps_s,
        in_turn=True,
    )

    times = simulate(trace, replica).table

    freed_s = np.concatenate([np.zeros(limit), np.sort(times.finish_s)])
    expected_s = 0.0
    for arrival_s, free_s, gap_s in zip(
        times.arrival_s, freed_s[:count], gaps_s, strict=True
    ):
        expected_s = max(expected_s, free_s) + gap_s
        assert arrival_s == pytest.approx(expected_s, abs=1e-9)


def refused_beyond(limits, deployment, base, rate_per_s, offered, seed):
    """Return the admitted requests of a Poisson process, each arrival asked in turn.

    ``limits`` are those of each class of requests in flight on the one replica.
    """
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(1 / rate_per_s, offered))
    rows = rng.integers(len(base), size=offered)
    admitted, arrivals, finish_s = [], [], np.zeros(0)
    for at, row in zip(at_s, rows, strict=True):
        in_flight = Counter(base.request_class[np.array(admitted, int)[finish_s > at]])
        name = base.request_class[row]
        if in_flight[name] >= limits[base.class_names[name]]:
            continue
        admitted.append(row)
        arrivals.append(at)
        trace = base_at(base, admitted, arrivals)
        finish_s = simulate(trace, deployment).table.finish_s
    return simulate(base_at(base, admitted, arrivals), deployment).table


def base_at(base, rows, arrivals):
    return Trace(
        base.prompt_tokens[rows],
        base.output_tokens[rows],
        arrival_s=np.array(arrivals),
        request_class=base.request_class[rows],
        class_names=base.class_names,
    )


@pytest.mark.thorough
def test_requests_refused_above_the_limit_leave_the_rest_within_the_slo(classed):
    limits = classed.beyond_peak.gateway.in_flight_by_class
    run, settings = classed.best.run, PlanSettings(**classed.settings)
    slo = settings.objective()
    rng = np.random.default_rng(11)
    base = Trace(
        rng.integers(50, 400, 2000),
        rng.integers(20, 200, 2000),
        request_class=(rng.random(2000) < 0.2).astype(int),
        class_names=("chat", "vip"),
    )
    per_replica = 1.3 * classed.rate_per_s / run.replica_count
    sustained = classed.replica_load.rate_per_s

    times = refused_beyond(
        limits,
        run.deployment.with_replicas(1),
        base,
        max(per_replica, 1.3 * sustained),
        1500,
        5,
    )

    met = np.logical_and.reduce(
        times.met(slo.columns(times.request_class, base.class_names))
    )
    assert len(met) < 1500  # some were refused
    for index in range(2):
        assert met[times.request_class == index].mean() >= 0.99


def test_the_plan_says_what_is_attained_beyond_the_peak_and_where_to_refuse(classed):
    beyond = classed.beyond_peak
    told = facts(plan_page(classed), "The busiest time")

    assert beyond.rate_per_s >= TIMES * classed.rate_per_s * (1 - 1e-9)
    assert f"at {TIMES:g} times the peak" in told["beyond peak"]
    gateway = beyond.gateway
    assert set(gateway.in_flight_by_class) == {"chat", "vip"}
    assert sum(gateway.in_flight_by_class.values()) <= gateway.in_flight
    assert f"has {gateway.in_flight:,} in flight (chat " in told["gateway"]


def test_a_limit_is_one_that_fewer_replicas_would_need_as_well(classed):
    """What a replica takes does not depend on how many there are."""
    gateway, load = classed.beyond_peak.gateway, classed.replica_load

    # At the edge of the SLO about as many are in flight as a gateway may let in.
    assert 0.5 * load.in_flight <= gateway.in_flight <= 2.5 * load.in_flight
