"""One judgement of a simulation, against cases worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.planning.evaluate.judgement import LEVELS, Judge
from capplan.planning.evaluate.steadiness import Steadiness
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.sample import sample_of
from capplan.simulator.results.times import PoolUse, Series, Simulation, totals
from capplan.workload.slo import RequestSlo, Slo


def simulation_of(
    arrival_s, first_token_s, finish_s, output_tokens, classes=None
) -> Simulation:
    n = len(arrival_s)
    none = np.zeros(n)
    times = RequestTimes(
        arrival_s=np.array(arrival_s, float),
        scheduled_s=np.array(arrival_s, float),
        first_token_s=np.array(first_token_s, float),
        finish_s=np.array(finish_s, float),
        longest_gap_s=none,
        late_gaps=np.zeros(n, np.int64),
        prompt_tokens=np.ones(n, np.int64),
        output_tokens=np.array(output_tokens),
        replica=np.zeros(n, np.int64),
        preemptions=np.zeros(n, np.int64),
        cached_tokens=np.zeros(n, np.int64),
        request_class=np.array(classes or [0] * n),
        swaps=np.zeros(n, np.int64),
        paused_s=none,
        migrations=np.zeros(n, np.int64),
        handed_s=none,
        tier_tokens=np.zeros(n, np.int64),
    )
    series = Series(*(np.zeros(1) for _ in range(6)))
    return Simulation(
        times=times,
        totals=totals(times),
        pools=(PoolUse(1, 1, 1.0, series),),
        class_names=("chat", "batch") if classes else ("all",),
        arrived_count=n,
        completed=n,
    )


def judge(simulation, slo, warmup_s=0.0, **metrics):
    """Judge one simulation, which is one sample."""
    sample = sample_of(simulation, slo, warmup_s, **metrics)
    return Judge(slo, simulation.class_names).judgement([sample], warmup_s)


def test_attainment_of_a_case_worked_by_hand():
    # TTFT 0.5, 1.5, 0.5, 0.5 s; TPOT 0.1, 0.1, 0.3 s and none; e2e 1.5 2.5 3.5 0.5 s
    simulation = simulation_of(
        [0.0, 1.0, 2.0, 3.0],
        [0.5, 2.5, 2.5, 3.5],
        [1.5, 3.5, 5.5, 3.5],
        [11, 11, 11, 1],
        classes=[0, 0, 1, 1],
    )

    judgement = judge(simulation, Slo(RequestSlo(ttft_s=1.0, tpot_s=0.2)))

    attainment = judgement.attainment
    assert attainment.share == 0.5
    assert attainment.request_count == 2
    assert attainment.by_limit == {"ttft": 0.75, "tpot": 0.75, "tbt": 1.0, "e2e": 1.0}
    assert attainment.by_class == {"chat": 0.5, "batch": 0.5}
    assert judgement.counted_request_count == 4
    assert not judgement.meets


def test_each_class_is_held_to_its_own_limits():
    simulation = simulation_of([0, 0], [2, 2], [2, 2], [1, 1], classes=[0, 1])
    slo = Slo(RequestSlo(ttft_s=1.0), by_class={"batch": RequestSlo(ttft_s=3.0)})

    judgement = judge(simulation, slo)

    assert judgement.attainment.by_class == {"chat": 0.0, "batch": 1.0}


def test_every_gap_must_be_within_the_tbt():
    simulation = simulation_of([0, 0, 0], [1, 1, 1], [2, 2, 1], [11, 11, 1])
    times = replace(simulation.times, longest_gap_s=np.array([0.5, 0.2, 0.0]))

    judgement = judge(replace(simulation, times=times), Slo(RequestSlo(tbt_s=0.2)))

    assert judgement.attainment.by_limit["tbt"] == pytest.approx(2 / 3)
    assert judgement.attainment.share == pytest.approx(2 / 3)


def test_limits_of_requests_are_judged_and_reported_by_class():
    simulation = simulation_of([0] * 4, [2] * 4, [2] * 4, [1] * 4, classes=[0, 1, 2, 2])
    names = ("chat/ttft=1.0s", "chat", "code/ttft=3.0s")
    slo = Slo(RequestSlo(ttft_s=2.0), by_class={"chat": RequestSlo(ttft_s=2.5)})

    judgement = judge(replace(simulation, class_names=names), slo)

    assert judgement.attainment.by_class == {"chat": 0.5, "code": 1.0}
    assert judgement.missing == ("chat",)


def test_a_class_without_an_slo_is_named():
    simulation = simulation_of([0, 0], [2, 2], [2, 2], [1, 1], classes=[0, 1])
    slo = Slo(None, by_class={"chat": RequestSlo(ttft_s=1.0)})

    with pytest.raises(InputError, match="class 'batch' of the trace has no SLO"):
        judge(simulation, slo)


def test_requests_of_the_warm_up_do_not_count():
    simulation = simulation_of([0, 1, 2], [5, 1, 2], [5, 1, 2], [1, 1, 1])

    judgement = judge(simulation, Slo(RequestSlo(ttft_s=1.0)), warmup_s=0.5)

    assert judgement.attainment.share == 1.0
    assert judgement.counted_request_count == 2
    assert judgement.warmup_s == 0.5
    assert judgement.percentiles["e2e_s"][0] == 0.0


def test_a_request_that_arrives_as_the_warm_up_ends_counts():
    simulation = simulation_of([0, 1, 2], [5, 1, 2], [5, 1, 2], [1, 1, 1])

    judgement = judge(simulation, None, warmup_s=1.0)

    assert judgement.counted_request_count == 2


def test_a_limit_met_exactly_is_met():
    simulation = simulation_of([0.0], [1.0], [2.0], [11])

    judgement = judge(simulation, Slo(RequestSlo(ttft_s=1.0, tpot_s=0.1)))

    assert judgement.attainment.share == 1.0
    assert judgement.meets


def test_one_token_outputs_have_no_tpot_and_meet_any():
    simulation = simulation_of([0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1, 1])

    judgement = judge(simulation, Slo(RequestSlo(tpot_s=1e-9)))

    assert judgement.attainment.share == 1.0
    assert np.isnan(judgement.percentiles["tpot_s"]).all()
    assert np.isnan(judgement.quantiles_s["tpot_s"]).all()


def test_percentiles_interpolate_between_requests():
    # TTFT 0, 1, .. 100 s: the level itself in percent.
    seconds = np.arange(101.0)
    simulation = simulation_of(np.zeros(101), seconds, seconds, np.ones(101, int))

    judgement = judge(simulation, None)

    assert judgement.attainment is None
    assert not judgement.meets
    assert judgement.percentiles["ttft_s"] == pytest.approx((50, 50, 90, 95, 99, 99.9))
    assert judgement.p99_s("ttft_s") == pytest.approx(99.0)
    assert judgement.quantiles_s["ttft_s"] == pytest.approx(100 * LEVELS)


def test_only_the_latencies_asked_for_are_reported():
    simulation = simulation_of([0.0], [1.0], [2.0], [11])

    judgement = judge(simulation, None, metrics=("e2e_s",))

    assert set(judgement.percentiles) == set(judgement.quantiles_s) == {"e2e_s"}


def served(n, seed, load, duration_s=100.0):
    """Waits of one server of 1/n-th of the time, as a sample of ``duration_s``."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.random(n) * duration_s)
    start_s = np.empty(n)
    free_s = 0.0
    for row, moment_s in enumerate(arrival_s):
        start_s[row] = max(moment_s, free_s)
        free_s = start_s[row] + load * duration_s / n
    simulation = simulation_of(
        arrival_s, start_s + 0.01, start_s + 0.01, np.ones(n, int)
    )
    times = replace(simulation.times, scheduled_s=start_s)
    return replace(simulation, times=times)


@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_a_server_below_its_capacity_is_stable(load):
    assert judge(served(5000, 0, load), None).stable


@pytest.mark.parametrize("load", [1.05, 1.3, 2.0])
def test_a_server_above_its_capacity_is_not_stable(load):
    assert not judge(served(5000, 0, load), None).stable


def test_a_rate_that_rises_within_capacity_is_no_backlog():
    # Arrivals rise from nothing to ten a second; each is served at once for 5 s.
    arrival_s = np.sqrt(np.arange(1, 5001) / 5.0)
    simulation = simulation_of(arrival_s, arrival_s, arrival_s + 5, np.ones(5000, int))

    assert judge(simulation, None).stable


def test_a_queue_that_fills_and_drains_is_stable():
    # All of a second's work arrives at once, at the start.
    arrival_s = np.concatenate([np.zeros(100), np.linspace(1, 100, 500)])
    wait_s = np.concatenate([np.linspace(0, 30, 100), np.zeros(500)])
    simulation = simulation_of(
        arrival_s, arrival_s + wait_s, arrival_s + wait_s, np.ones(600, int)
    )
    times = replace(simulation.times, scheduled_s=arrival_s + wait_s)

    assert judge(replace(simulation, times=times), None).stable


HELD = Steadiness(drawn=True, utilisation=0.8, binds=True, settled=True)


def judge_misses(missing, steadiness, target=0.9):
    """Judge samples of 1,000 requests, of which so many miss the SLO."""
    slo = Slo(RequestSlo(ttft_s=1.0), attainment=target)

    def sample(late):
        first_s = np.where(np.arange(1000) < late, 2.0, 0.5)
        return sample_of(
            simulation_of(np.zeros(1000), first_s, first_s, np.ones(1000, int)), slo
        )

    each = [sample(late) for late in missing]
    return Judge(slo, ("all",), steadiness).judgement(each)


def test_samples_that_agree_decide_and_those_that_do_not_are_too_close():
    verdicts = [
        judge_misses(missing, HELD).meets
        for missing in (
            (10, 12, 11, 9, 10),
            (300, 310, 290, 305, 300),
            (60, 140, 90, 115, 95),
        )
    ]

    assert verdicts == [True, False, None]


@pytest.mark.parametrize(("missing", "roomy"), [(24, True), (26, False)])
def test_room_is_a_quarter_of_what_may_miss(missing, roomy):
    slo = Slo(RequestSlo(ttft_s=1.0), attainment=0.9)
    first_s = np.where(np.arange(1000) < missing, 2.0, 0.5)
    served = simulation_of(np.zeros(1000), first_s, first_s, np.ones(1000, int))

    assert Judge(slo, ("all",)).is_roomy([sample_of(served, slo)]) is roomy


@pytest.mark.parametrize(
    ("steadiness", "meets", "why"),
    [
        (HELD, True, ""),
        (replace(HELD, utilisation=1.05, utilisation_error=0.02), False, ""),
        (replace(HELD, utilisation=1.01, utilisation_error=0.02), None, "% loaded"),
        (replace(HELD, utilisation=1.05, binds=False), True, ""),
        (
            replace(HELD, settled=False, simulated_s=10800.0),
            None,
            "still warming up after",
        ),
        (replace(HELD, settled=None), None, "an empty start"),
    ],
    ids=["held", "overloaded", "at capacity", "short first", "unsettled", "not asked"],
)
def test_a_fleet_that_does_not_hold_its_load_is_never_decided(steadiness, meets, why):
    judgement = judge_misses((10, 12, 11, 9, 10), steadiness)

    assert judgement.meets is meets
    assert why in judgement.open
    assert judgement.stable is (
        why in ("", "an empty start", "% loaded") and meets is not False
    )


def test_an_attainment_of_1_is_never_decided_by_a_finite_sample():
    spotless = judge_misses((0, 0, 0, 0, 0), HELD, target=1.0)
    spoiled = judge_misses((0, 0, 1, 0, 0), HELD, target=1.0)

    assert (spotless.meets, spotless.no_miss) == (None, True)
    # By the rule of three: 0.05 ** (1 / 5000) = 0.99940.
    assert spotless.open == "no miss in 5,000 requests: at least 99.94 % in time"
    assert (spoiled.meets, spoiled.no_miss) == (False, False)


def test_a_class_that_misses_its_own_target_is_named():
    simulation = simulation_of(
        [0.0] * 4, [0.5, 0.5, 0.5, 2.0], [3.0] * 4, [1] * 4, classes=[0, 0, 0, 1]
    )
    own = Slo(
        RequestSlo(ttft_s=1.0),
        attainment=0.7,
        by_class={"batch": RequestSlo(ttft_s=1.5)},
    )

    each = judge(simulation, own)
    together = judge(simulation, replace(own, each_class=False))

    assert (each.meets, each.missing) == (False, ("batch",))
    assert (together.meets, together.missing) == (True, ())
    assert each.attainment == together.attainment


def test_a_class_may_have_a_target_of_its_own():
    simulation = simulation_of(
        [0.0] * 4, [0.5, 0.5, 2.0, 0.5], [3.0] * 4, [1] * 4, classes=[0, 0, 1, 1]
    )
    slo = Slo(RequestSlo(ttft_s=1.0), attainment=0.9)

    assert judge(simulation, replace(slo, targets={"batch": 0.5})).meets
    assert not judge(simulation, replace(slo, targets={"batch": 0.6})).meets


@pytest.mark.parametrize(("met", "hopeless"), [(4, True), (5, False)])
def test_less_than_half_of_the_target_is_hopeless(met, hopeless):
    finish_s = np.arange(10.0) + np.where(np.arange(10) < met, 1.0, 3.0)
    served = simulation_of(np.arange(10.0), finish_s, finish_s, [1] * 10)
    slo = Slo(RequestSlo(e2e_s=2.0), attainment=1.0)

    assert Judge(slo, ("all",)).is_hopeless(sample_of(served, slo)) is hopeless
