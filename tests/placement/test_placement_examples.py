"""The examples of placement run and print what they promise."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from capplan.placement.heuristics.blind import route_jsq
from capplan.placement.replica import affine_replica
from capplan.workload.trace import Trace

EXAMPLES = Path(__file__).parents[2] / "examples" / "studies"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "promised"),
    [
        (
            "aladdin_figures.py",
            ["--rates", "2,3", "--seconds", "5"],
            "peak KV 7 tokens",
        ),
        ("placement_quality.py", [], "88.234"),
    ],
)
def test_an_example_prints_what_it_promises(
    name, arguments, promised, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", [name, *arguments])

    runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    assert promised in capsys.readouterr().out


@pytest.fixture(scope="module")
def figures():
    return runpy.run_path(str(EXAMPLES / "aladdin_figures.py"))


def test_aladdins_groups_need_five_workers_each_for_ten_percent(figures):
    # Appendix A: "if we want the extra worker ... is 10 %, then each scheduling group
    # should have at least five workers".
    group_requests = figures["group_requests"]

    assert group_requests(100, 20, 0.1, 25) == (4, 5, True)
    assert group_requests(100, 19, 0.1, 25) == (4, 4, False)


def test_one_scheduler_that_is_fast_enough_needs_no_groups(figures):
    assert figures["group_requests"](10, 2, 0.1, 25) == (1, 2, True)


def test_rate_within_a_limit_follows_n_log_n(figures):
    rates = np.array([25.0, 250, 2500])
    seconds = 1e-6 * rates * np.log2(rates + 1)

    limit = figures["rate_within"](rates, seconds, 1e-6 * 700 * np.log2(701))

    assert limit == pytest.approx(700)


TEMPLATE = affine_replica(
    2000,
    fixed_s=0.01,
    request_s=0.001,
    context_s=1e-5,
    max_batch=32,
    prefill_fixed_s=0.02,
    prefill_s_per_token=1e-4,
)


def fleet_of(figures, prompt, output, arrival_s, ttft_s=4.0, tpot_s=0.05, **how):
    trace = Trace(np.array(prompt), np.array(output), np.array(arrival_s))
    setting = figures["Setting"]("", 1, ttft_s, tpot_s)
    return figures["Fleet"](TEMPLATE, trace, setting, heartbeat_s=1.0, **how)


def test_every_request_ends_on_a_fixed_fleet_too(figures):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 200, 60), rng.integers(1, 120, 60)
    arrival_s = np.cumsum(rng.exponential(0.1, 60))

    fleet = fleet_of(figures, *sizes, arrival_s, route=route_jsq, replicas=2)

    assert np.isfinite(fleet.end_s).all()
    assert fleet.peak_replicas == 2


def test_a_replica_with_too_little_kv_is_counted_as_overflowing(figures):
    # A router looks at no constraint: five requests of 500 tokens on 2000 of KV.
    five = [500] * 5, [10] * 5, [0.0] * 5

    crowded = fleet_of(figures, *five, route=route_jsq, replicas=1)
    spread = fleet_of(figures, *five, route=route_jsq, replicas=2)

    assert crowded.kv_overflows > 0
    assert spread.kv_overflows == 0


def test_a_request_that_waits_too_long_for_the_heartbeat_misses_its_ttft(figures):
    # 1 s of heartbeat and 30 ms of prefill against a TTFT of 1.02 s, or none.
    one = [100], [4], [0.0]
    how = dict(ttft_s=1.02, route=route_jsq, replicas=1)

    assert fleet_of(figures, *one, **how).attainment == 0
    assert fleet_of(figures, *one, **how, decode_only=True).attainment == 1


def test_a_one_token_output_has_no_tpot_to_miss(figures):
    fleet = fleet_of(figures, [100], [1], [0.0], route=route_jsq, replicas=1)

    assert fleet.attainment == 1


def test_a_decode_pool_places_requests_as_if_they_had_their_first_token(figures):
    fleet = fleet_of(figures, [30] * 3, [1, 2, 3], [0.0] * 3, decode_only=True)

    assert fleet.first_s.tolist() == [1.0] * 3
    generated, predicted = fleet.lengths(np.arange(3))
    assert generated.min() >= 1
    assert (predicted > generated).all()
