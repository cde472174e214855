"""No schedule with preemption, recomputation and prefix hits refutes the theorem."""

from dataclasses import asdict

import numpy as np
import pytest
from adversary import attained_limits, random_case, random_policy, random_schedule
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.bounds import bound_check
from capplan.bounds.bound_check import COLUMNS, Inputs, check_bound, inputs_digest
from capplan.bounds.lower_bound import lower_bound
from capplan.bounds.prices import (
    IterationPrices,
    engine_bounds,
    fit_prices,
    prove_prefill_price,
)
from capplan.bounds.work import Requests, request_work
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables

MIXES = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.0, 0.5)]
SEEDS = st.integers(0, 2**32 - 1)


def random_witness(generator):
    """Return a case, requests whose limits a schedule just meets, and its length."""
    case = random_case(generator)
    policy = random_policy(generator, case.engine)
    schedule = random_schedule(generator, case, policy)
    return case, attained_limits(generator, case, schedule), schedule.busy_s


def random_pricing(generator, case):
    """Return proven prices with their mix and context cap."""
    limits = engine_bounds(case.engine)
    slope_s = float(case.tables.fused_s[-1]) / limits.tokens
    fitted = fit_prices(
        case.tables,
        limits,
        int(generator.integers(1, limits.batch + 1)),
        float(generator.integers(2, 12)),
        slope_s * generator.choice([0.5, 0.85, 1.0, generator.random()]),
    )
    mix = MIXES[generator.integers(len(MIXES))]
    if generator.random() < 0.3:
        mix = tuple(generator.dirichlet([1, 1, 1]))
    cap = float(generator.choice([2, 5, 100]))
    return prove_prefill_price(case.tables, limits, fitted, mix[0], cap), mix, cap


def check_work(seed):
    """Check that requests cost no more than a schedule of them is busy."""
    generator = np.random.default_rng(seed)
    case, requests, busy_s = random_witness(generator)
    prices, mix, cap = random_pricing(generator, case)

    work = request_work(requests, prices, case.engine, mix, cap)

    assert work.possible.all()
    assert work.work_s.sum() <= busy_s * (1 + 1e-6)
    assert (work.base_s <= work.work_s).all()


def check_bound_and_certificate(seed):
    """Check that the bound is 1 and that the certificate's theorem agrees."""
    generator = np.random.default_rng(seed)
    case, requests, _ = random_witness(generator)
    group = generator.integers(0, 2, len(requests.release_s))
    columns = dict(zip(COLUMNS, (*requests[:-1], group), strict=True))

    bound = lower_bound(columns, [1.0, 1.0], case.tables, case.engine)

    inputs = Inputs(columns, case.tables._asdict(), case.engine.document())
    block = {
        "group_targets": [1.0, 1.0],
        "bound": asdict(bound),
        "inputs_digest": inputs_digest(inputs),
    }
    assert bound.reachable
    assert bound.replica_count == 1
    assert check_bound(block, inputs) == []


@settings(max_examples=150)
@given(seed=SEEDS)
def test_the_work_of_requests_is_at_most_the_busy_time_of_any_schedule(seed):
    check_work(seed)


@settings(max_examples=25)
@given(seed=SEEDS)
def test_the_bound_is_one_replica_where_a_schedule_of_one_meets_the_limits(seed):
    check_bound_and_certificate(seed)


@settings(max_examples=150)
@given(seed=SEEDS)
def test_prices_are_found_too_high_as_by_every_iteration(seed):
    """Spans of tokens, looked at by a line below their times, hide no iteration."""
    generator = np.random.default_rng(seed)
    case = random_case(generator)
    prices, mix, cap = random_pricing(generator, case)
    # At the price, or a trifle above it or below.
    factor = 1 + generator.choice([0.0, 1e-6, 1e-3, 0.1]) * generator.normal(size=5)
    bound = {
        "prices": (np.array(prices) * factor).tolist(),
        "mix": mix,
        "context_cap": cap,
    }
    inputs = Inputs({}, case.tables._asdict(), case.engine.document())
    span = int(generator.integers(2, 9))

    with pytest.MonkeyPatch.context() as patch:
        verdicts = []
        for tokens in (1, span):
            patch.setattr(bound_check, "_SPAN", tokens)
            verdicts.append(bound_check._check_prices(bound, inputs))

    assert bool(verdicts[0]) is bool(verdicts[1])


def bound_of_one_replica(output, e2e_s, tables, engine):
    """Return the bound for prompts of one token that arrive at time 0."""
    n, none = len(output), np.full(len(output), np.inf)
    limit_s = np.full(n, e2e_s)
    columns = {
        "arrival_s": np.zeros(n),
        "prompt_tokens": np.ones(n),
        "output_tokens": output,
        "ttft_s": none,
        "tpot_s": none,
        "e2e_s": limit_s,
    }
    return lower_bound(columns, 1.0, tables, engine)


def test_recomputing_instead_of_decoding_serves_ten_requests_with_one_replica():
    # A prompt token takes 1 ms, a decode step 3 ms. Prefill (1 ms) and recomputation of
    # prompt and first token (2 ms) serve a request in 3 ms, ten in 30 ms.
    engine = EngineSettings(max_num_batched_tokens=8, max_num_seqs=1)
    tables = linear_tables(0, 1e-3, 0, 3e-3, 0, max_batch=1, max_tokens=8)

    bound = bound_of_one_replica(np.full(10, 2), 0.03, tables, engine)
    tighter = bound_of_one_replica(np.full(10, 2), 0.029, tables, engine)

    assert bound.replica_count == 1
    assert bound.work_s == pytest.approx(0.03, rel=1e-3)
    assert tighter.replica_count == 2


def test_a_hit_of_all_but_one_token_costs_half_a_token_of_attention_less():
    # Prefill takes 1 ms a pair of attention, a decode step 1 s a token of context. With
    # a hit of c - 1 tokens, context c has c - 1/2 pairs: 1/2, 3/2 and 5/2 ms.
    engine = EngineSettings(prefix_caching=True)
    prices = IterationPrices(0.0, 0.0, 1.0, 0.0, attention_s=1e-3)
    columns = ([0.0], [1.0], [3.0], [0.0], [np.inf], [np.inf], [4.5e-3])
    requests = Requests(*(np.array(column) for column in columns))

    work = request_work(requests, prices, engine, (1.0, 0.0, 0.0), 10.0)

    assert work.possible.all()
    assert 4.2e-3 <= work.work_s[0] <= 4.5e-3
