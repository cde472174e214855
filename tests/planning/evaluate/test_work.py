"""Replica time by class and replica: by hand with linear iteration times."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.evaluate.work import (
    answer_s,
    busiest_of_mean,
    parts_s,
    prompt_s,
    work_of,
)
from capplan.planning.settings.plan import SimulateSettings

# An iteration takes 8 ms, 2 us a prompt token, 1 ms a request, 1 us a token of context.
TABLES = linear_tables(8e-3, 2e-6, 0.0, 1e-3, 1e-6, max_batch=8, max_tokens=64)


def test_a_token_of_an_answer_takes_its_part_of_an_iteration_and_its_own_context():
    # At 4 requests 8 + 4 ms, a quarter of it each. Two tokens after the first, at
    # contexts of 101 and 102, or the half way between them twice.
    found = answer_s(TABLES, np.array([100]), np.array([3]), 4)

    assert found == pytest.approx([2 * 3e-3 + 1e-6 * (2 * 101.5)])


def test_an_answer_of_one_token_takes_nothing_more():
    assert answer_s(TABLES, np.array([100]), np.array([1]), 4) == [0]


def test_a_prompt_takes_the_time_by_which_it_lengthens_an_iteration():
    prompts, cached = np.array([30, 10]), np.array([10, 0])

    found = prompt_s(TABLES, prompts, cached, 4, 60)

    # 2 us a new token; the fixed time is that of the iteration anyway.
    assert found == pytest.approx([2e-6 * 20, 2e-6 * 10])


def run(**asked):
    settings = SimulateSettings(
        workload="mixed",
        rate=6,
        llm="Llama-3.1-8B",
        gpu="H100-SXM",
        tp=1,
        replicas=2,
        slo="tpot=50ms",
        **asked,
    )
    return simulate_deployment(settings)


@pytest.fixture(scope="module")
def mixed():
    return run()


def test_shares_of_classes_are_one_together_and_each_has_its_own(mixed):
    work = mixed.without_requests().work

    assert sum(work.class_shares.values()) == pytest.approx(1)
    assert len(work.class_shares) > 1
    assert all(0 < share < 1 for share in work.class_shares.values())


def test_a_class_without_requests_has_no_share(mixed):
    times = mixed.simulation.times
    alone = times.select(times.request_class == times.request_class[0])

    work = work_of(replace(mixed.simulation, times=alone), mixed.deployment)

    assert list(work.class_shares.values()) == [pytest.approx(1)]


def test_a_replica_that_does_all_has_twice_the_mean(mixed):
    times = replace(
        mixed.simulation.times,
        replica=np.zeros_like(mixed.simulation.times.replica),
    )

    work = work_of(replace(mixed.simulation, times=times), mixed.deployment)

    assert work.busiest_share_of_mean == pytest.approx(2)
    assert 1 <= mixed.without_requests().work.busiest_share_of_mean < 1.2


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=30))
def test_the_busiest_is_never_below_the_mean_and_at_most_all(work):
    assert 1 - 1e-9 <= busiest_of_mean(work) <= len(work) + 1e-9


@pytest.mark.thorough
def test_the_time_of_requests_is_about_the_time_replicas_were_busy():
    """The allocation is not of a made-up total: it is near the time simulated."""
    of = run(arrivals="poisson")

    prompts, answers = parts_s(of.simulation, of.simulation.times, of.deployment)

    total_s = prompts.sum() + answers.sum()
    assert total_s == pytest.approx(of.simulation.busy_s, rel=0.35)
    share = of.without_requests().work.prompt_share
    assert share == pytest.approx(prompts.sum() / total_s)
