"""One judgement of a simulation, against cases worked by hand."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.planning.judgement import LEVELS, judge
from capplan.simulator.times import RequestTimes, Series, Simulation, totals
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
        prompt_tokens=np.ones(n, np.int64),
        output_tokens=np.array(output_tokens),
        replica=np.zeros(n, np.int64),
        preemptions=np.zeros(n, np.int64),
        cached_tokens=np.zeros(n, np.int64),
        request_class=np.array(classes or [0] * n),
    )
    series = Series(*(np.zeros(1) for _ in range(6)))
    return Simulation(
        times=times,
        totals=totals(times),
        series=series,
        class_names=("chat", "batch") if classes else ("all",),
        replica_count=1,
        iteration_count=1,
        busy_s=1.0,
        arrived_count=n,
        completed=n,
    )


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
    assert attainment.by_limit == {"ttft": 0.75, "tpot": 0.75, "e2e": 1.0}
    assert attainment.by_class == {"chat": 0.5, "batch": 0.5}
    assert judgement.counted_request_count == 4
    assert not judgement.meets


def test_each_class_is_held_to_its_own_limits():
    simulation = simulation_of([0, 0], [2, 2], [2, 2], [1, 1], classes=[0, 1])
    slo = Slo(RequestSlo(ttft_s=1.0), by_class={"batch": RequestSlo(ttft_s=3.0)})

    judgement = judge(simulation, slo)

    assert judgement.attainment.by_class == {"chat": 0.0, "batch": 1.0}


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
