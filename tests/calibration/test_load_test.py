"""A load test at a fixed concurrency or at a rate, simulated."""

from dataclasses import replace

import numpy as np
import pytest

import capplan.calibration.load_test
from capplan.calibration.load_test import SweepPoint, load_test, replica_tested
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ENGINE = EngineSettings(max_num_batched_tokens=512, async_scheduling=False)
AT_A_RATE = replace(ENGINE, max_num_seqs=64)


def tables_of(fixed_s=5e-3, prefill_s=2e-5, decode_s=1e-4, context_s=1e-8):
    return linear_tables(
        fixed_s, prefill_s, 0.0, decode_s, context_s, max_batch=64, max_tokens=512
    )


def test_one_user_waits_for_one_prompt_and_then_for_single_iterations():
    tables = tables_of(context_s=0.0)

    loop = load_test(tables, ENGINE, SweepPoint(100, 11, 1))

    assert loop.ttft_s == pytest.approx(5e-3 + 100 * 2e-5)
    assert loop.tpot_s == pytest.approx(5e-3 + 1e-4)
    e2e_s = loop.ttft_s + 10 * loop.tpot_s
    assert loop.output_tokens_per_s == pytest.approx(11 / e2e_s)


def test_the_front_end_adds_to_the_ttft_alone():
    point = SweepPoint(100, 11, 4)
    plain = load_test(tables_of(), ENGINE, point)

    later = load_test(tables_of()._replace(request_s=0.02), ENGINE, point)

    assert later.ttft_s == pytest.approx(plain.ttft_s + 0.02)
    assert later.tpot_s == plain.tpot_s


@pytest.mark.parametrize("users", [1, 3, 8])
def test_it_is_the_loop_in_which_each_user_asks_when_answered(users):
    """The slow judge: users' questions arrive at the finish that freed their seat."""
    draw = np.random.default_rng(users)
    prompt, output = draw.integers(20, 200, 60), draw.integers(2, 40, 60)
    tables = tables_of()
    engine = EngineSettings(
        max_num_batched_tokens=512, max_num_seqs=users, async_scheduling=False
    )
    all_at_once = simulate(
        Trace(prompt, output, np.zeros(60), source=""), fleet_of(tables, engine, 1)
    ).table
    arrival_s = np.zeros(60)
    for _ in range(60):  # each round fixes the arrivals of one more round of answers
        finish_s = np.sort(
            simulate(
                Trace(prompt, output, arrival_s, source=""), fleet_of(tables, engine, 1)
            ).table.finish_s
        )
        arrival_s = np.concatenate([np.zeros(users), finish_s])[:60]

    judged = simulate(
        Trace(prompt, output, arrival_s, source=""), fleet_of(tables, engine, 1)
    )

    assert np.allclose(judged.table.finish_s, all_at_once.finish_s)
    freed_s = np.concatenate([np.zeros(users), np.sort(all_at_once.finish_s)])[:60]
    ttft_s = np.sort(all_at_once.first_token_s) - freed_s
    assert judged.table.ttft_s.mean() == pytest.approx(ttft_s.mean())


def test_littles_law_holds():
    point = SweepPoint(200, 400, 16, least_share=0.8)

    loop = load_test(tables_of(), ENGINE, point)

    e2e_s = loop.ttft_s + loop.tpot_s * (point.mean_osl - 1)
    inside = loop.output_tokens_per_s / point.mean_osl * e2e_s
    assert inside == pytest.approx(16, rel=0.1)  # the end of a test is not full


def test_a_test_of_many_users_is_simulated_with_three_requests_of_each(monkeypatch):
    asked = []
    loop = capplan.calibration.load_test
    monkeypatch.setattr(
        loop, "simulate", lambda *of: asked.append(len(of[0])) or simulate(*of)
    )

    for users, requests in ((64, None), (64, 90_000), (8192, None)):
        point = SweepPoint(9, 3, users, requests=requests)
        load_test(tables_of(), replace(ENGINE, max_num_seqs=64), point)

    assert asked == [640, loop.MOST_REQUESTS, 3 * 8192]


def test_more_users_wait_longer_for_each_token():
    tpots = [
        load_test(tables_of(), ENGINE, SweepPoint(200, 100, users)).tpot_s
        for users in (1, 2, 4, 8, 16)
    ]

    assert tpots == sorted(tpots)


def test_a_request_beyond_the_kv_cache_is_refused():
    engine = EngineSettings(max_num_batched_tokens=512, kv_blocks=10)

    with pytest.raises(InputError, match="200 \\+ 100 tokens do not fit the KV cache"):
        load_test(tables_of(), engine, SweepPoint(200, 100, 2))


def test_requests_at_a_rate_are_the_simulation_of_their_arrivals():
    """The judge simulates evenly spaced requests itself."""
    point = SweepPoint(100, 11, None, rate_per_s=50.0, burstiness=np.inf, requests=1000)
    arrival_s = (np.arange(1000) + 1) / 50
    lengths = np.full(1000, 100), np.full(1000, 11)
    judged = simulate(
        Trace(*lengths, arrival_s, source=""), fleet_of(tables_of(), AT_A_RATE, 1)
    ).table

    seen = load_test(tables_of(), AT_A_RATE, point._replace(least_share=1.0))

    assert seen.ttft_s == pytest.approx(judged.ttft_s.mean())
    assert seen.tpot_s == pytest.approx(judged.tpot_s.mean())


@pytest.mark.parametrize("cap", [1, 3, 8])
def test_a_cap_holds_requests_back_until_one_is_answered(cap):
    """The slow judge: a request is sent at its arrival or when one was answered."""
    point = SweepPoint(120, 30, cap, rate_per_s=20.0, requests=60)
    draw = np.random.default_rng(0)
    prompt, output = draw.integers(120, 121, 60), draw.integers(30, 31, 60)
    gaps = draw.gamma(1.0, 1.0, 60)
    asked_s = arrival_s = np.cumsum(gaps) * (60 / gaps.sum() / 20)
    for _ in range(60):  # each round fixes one more request
        trace = Trace(prompt, output, asked_s, source="")
        judged = simulate(trace, fleet_of(tables_of(), AT_A_RATE, 1)).table
        freed_s = np.concatenate([np.zeros(cap), np.sort(judged.finish_s)])[:60]
        asked_s = np.maximum(arrival_s, freed_s)

    seen = replica_tested(Configuration(AT_A_RATE, tables_of()), point, drawn=60)

    assert seen.ttft_s == pytest.approx(judged.ttft_s.mean())
    assert seen.tpot_s == pytest.approx(judged.tpot_s.mean())


def test_a_cap_that_is_never_reached_changes_nothing():
    free = SweepPoint(100, 20, None, rate_per_s=5.0, requests=500)

    capped = load_test(tables_of(), AT_A_RATE, free._replace(concurrency=64))

    assert capped == pytest.approx(load_test(tables_of(), AT_A_RATE, free))


def test_bursty_arrivals_wait_longer_than_even_ones():
    ttfts = [
        load_test(
            tables_of(),
            AT_A_RATE,
            SweepPoint(200, 40, None, rate_per_s=40.0, burstiness=shape),
        ).ttft_s
        for shape in (np.inf, 1.0, 0.2)
    ]

    assert ttfts == sorted(ttfts)
    assert ttfts[-1] > 1.2 * ttfts[0]
