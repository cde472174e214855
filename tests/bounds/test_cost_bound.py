"""Bounds on what a mix costs: by hand, and below random mixes that were simulated."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.bounds.asked import Asked
from capplan.bounds.cost_bound import Priced, cost_bound
from capplan.bounds.lower_bound import QUICK, proven_pricings
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment, Pool
from capplan.deployment.split import SizeBand, Split
from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.split_run import split_simulation
from capplan.simulator.simulate import simulate
from capplan.workload.slo import parse_slo
from capplan.workload.trace import MAX_TOKENS, Trace

ENGINE = EngineSettings(max_num_batched_tokens=256, max_num_seqs=64, kv_blocks=500)


def tables_of(prefill_s, fixed_s=0.0, decode_s=5e-4):
    return linear_tables(
        fixed_s, prefill_s, 0.0, decode_s, 0.0, max_batch=64, max_tokens=256
    )


def columns_of(prompt, *, output=1, arrival_s=None, ttft_s=1.0, tpot_s=np.inf):
    n = len(prompt)
    return {
        "arrival_s": np.zeros(n) if arrival_s is None else np.asarray(arrival_s),
        "prompt_tokens": np.asarray(prompt),
        "output_tokens": np.broadcast_to(output, n),
        "cached_tokens": np.zeros(n),
        "ttft_s": np.full(n, ttft_s),
        "tpot_s": np.full(n, tpot_s),
        "e2e_s": np.full(n, np.inf),
        "group": np.zeros(n, int),
    }


def priced(name, usd_per_h, tables, columns, engine=ENGINE):
    requests = Asked.of(columns, 1.0, tables.request_s).requests
    proven = next(proven_pricings(requests, tables, engine, QUICK, 1))
    return Priced(name, usd_per_h, tables, engine, proven)


def test_each_request_costs_what_it_costs_where_it_is_cheapest():
    # 100 prompts of 200 tokens in 1 s: 2 replicas at 0.1 ms a token, 4 at 0.2 ms.
    columns = columns_of(np.full(100, 200))
    fast = priced("fast", 3.0, tables_of(1e-4), columns)
    slow = priced("slow", 1.0, tables_of(2e-4), columns)

    found = cost_bound(columns, [1.0], [fast, slow])

    assert found.usd_per_h == pytest.approx(4.0, rel=0.05)
    assert found.usd_per_h <= 4.0
    assert found.cheapest == (("slow", 100),)
    alone = cost_bound(columns, [1.0], [fast])
    assert alone.usd_per_h == pytest.approx(6.0, rel=0.05)


def test_what_a_kind_cannot_serve_in_time_costs_what_the_other_asks():
    # A prompt of 200 takes 0.4 s on the slow kind, above the 0.3 s that are asked.
    columns = columns_of(np.full(30, 200), ttft_s=0.3)
    fast = priced("fast", 10.0, tables_of(1e-4), columns)
    slow = priced("slow", 1.0, tables_of(2e-3), columns)

    found = cost_bound(columns, [1.0], [fast, slow])

    assert found.usd_per_h == pytest.approx(20.0, rel=0.05)  # 0.6 s in 0.3 s


def test_too_many_that_none_serves_are_out_of_reach():
    columns = columns_of(np.full(10, 200), ttft_s=0.01)
    slow = priced("slow", 1.0, tables_of(2e-3), columns)

    assert cost_bound(columns, [0.5], [slow]).usd_per_h == np.inf


def test_those_that_none_serves_may_be_the_ones_that_miss():
    prompt = np.full(40, 20)
    prompt[0] = 250
    columns = columns_of(prompt, ttft_s=0.02)
    fast = priced("fast", 1.0, tables_of(1e-4), columns)

    found = cost_bound(columns, [0.975], [fast])

    assert 0 < found.usd_per_h < 10


@st.composite
def mixes(draw):
    """Return requests, two kinds of replicas with prices, and a split of the ones."""
    n = draw(st.integers(3, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    arrival_s = np.cumsum(rng.exponential(draw(st.sampled_from([0.01, 0.1])), n))
    trace = Trace(rng.integers(1, 200, n), rng.integers(1, 20, n), arrival_s)
    kinds = [
        Configuration(
            replace(ENGINE, max_num_seqs=draw(st.sampled_from([2, 8, 64]))),
            tables_of(
                draw(st.sampled_from([1e-4, 1e-3])),
                draw(st.sampled_from([0.0, 5e-3])),
                draw(st.sampled_from([1e-4, 2e-3])),
            ),
        )
        for _ in range(2)
    ]
    edge = draw(st.integers(1, 199))
    bands = (SizeBand("", (1, edge)), SizeBand("", (edge + 1, MAX_TOKENS)))
    part = st.sampled_from([(1, 0), (0, 1), (1, 1), (1, 3)])
    split = Split(bands, (draw(part), draw(part)))
    counts = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    pools = tuple(map(Pool, kinds, counts))
    usd = draw(st.tuples(*(2 * [st.sampled_from([0.5, 1.0, 3.0])])))
    limits = draw(st.sampled_from(["ttft=50ms", "ttft=200ms,tpot=8ms", "e2e=300ms"]))
    return trace, Deployment(pools, split=split), usd, parse_slo(limits)


def judged(case):
    """Return the bound of a mix at what it attains itself, and what it costs."""
    trace, fleet, usd_per_h, slo = case
    times = split_simulation(simulate)(trace, fleet, slo=slo, seed=0).table
    limits_s = slo.columns(times.request_class, trace.class_names)
    met = np.logical_and.reduce(times.met(limits_s))
    if not met.any():
        return 0.0, 1.0
    ttft_s, tpot_s, _, e2e_s = limits_s
    columns = columns_of(
        trace.prompt_tokens,
        output=trace.output_tokens,
        arrival_s=trace.arrival_s,
    ) | {"ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": e2e_s}
    kinds = [
        priced(
            str(index),
            usd,
            pool.configuration.tables,
            columns,
            pool.configuration.engine,
        )
        for index, (pool, usd) in enumerate(zip(fleet.pools, usd_per_h, strict=True))
    ]
    cost = sum(
        usd * pool.replica_count
        for usd, pool in zip(usd_per_h, fleet.pools, strict=True)
    )
    return cost_bound(columns, [float(met.mean())], kinds).usd_per_h, cost


@given(mixes())
@settings(deadline=None, max_examples=30)
def test_no_simulated_mix_costs_less_than_its_bound(case):
    bound_usd, cost_usd = judged(case)

    assert bound_usd <= cost_usd


@pytest.mark.slow
@given(mixes())
@settings(deadline=None, max_examples=2000)
def test_no_simulated_mix_of_many_costs_less_than_its_bound(case):
    bound_usd, cost_usd = judged(case)

    assert bound_usd <= cost_usd
