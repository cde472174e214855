"""--scale multiplies the traffic of a trace; --rate says that it scales its hours."""

import numpy as np
import pytest

from capplan.errors import CapplanWarning, InputError
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.load.traffic import read_traffic
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

OWN_TIMES = "synthetic:prompt=200,output=20,n=7200,rate=1"  # two hours
FEW = "synthetic:prompt=200,output=20,n=900,rate=30"
REPLICA = {"latency_ms": "9,0.04,0,0.08,0.00005", "kv_blocks": 3000, "replicas": 2}


def read(**settings):
    return read_traffic(PlanSettings(**settings), np.random.default_rng(0))


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_twice_the_requests_are_judged_over_the_same_time():
    once = simulate_deployment(SimulateSettings(workload=FEW, slo="e2e=1s", **REPLICA))
    twice = simulate_deployment(
        SimulateSettings(workload=FEW, scale=2, slo="e2e=1s", **REPLICA)
    )

    of_once, of_twice = once.simulation.totals, twice.simulation.totals
    assert of_twice.request_count == 2 * of_once.request_count
    assert of_twice.duration_s == pytest.approx(of_once.duration_s, rel=0.02)
    assert twice.judgement.counted_request_count == of_twice.request_count
    running = [run.simulation.series.batch_requests.mean() for run in (once, twice)]
    assert running[1] > 1.8 * running[0]


def test_arrivals_drawn_in_place_of_a_trace_s_own_come_at_its_rate_times_the_scale():
    load = read(workload=FEW, arrivals="poisson", scale=3)

    assert load.rate_per_s == pytest.approx(3 * read(workload=FEW).base.rate_per_s)


def test_a_rate_says_what_it_does_to_the_hours_of_a_trace():
    with pytest.warns(
        CapplanWarning, match=r"119 min .*become 60 min.*--scale 1.98 gives"
    ):
        load = read(workload=OWN_TIMES, rate=2)

    assert load.base.duration_s == pytest.approx(3600, rel=0.05)


@pytest.mark.parametrize(
    "settings",
    [
        {"workload": FEW, "rate": 60},  # half a minute has no hours
        {"workload": OWN_TIMES, "rate": 2, "arrivals": "poisson"},
        {"workload": OWN_TIMES, "scale": 2},
    ],
)
def test_what_leaves_hours_alone_says_nothing(settings):
    read(**settings)  # a warning would be an error


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rate": 5, "scale": 2}, "rate and scale are both given"),
        ({"users": 5, "scale": 2}, "users and scale are both given"),
        ({"scale": 0}, "scale is 0; expected greater than 0"),
        ({"scale": -1}, "scale is -1; expected greater than 0"),
        ({"scale": 1e4}, "scale is 10000.0; expected less than or equal to 1000"),
        ({"scale": "x2"}, "scale is 'x2'; expected a valid number"),
    ],
)
def test_a_scale_that_makes_no_sense_is_refused(settings, said):
    with pytest.raises(InputError, match=said):
        PlanSettings(workload=FEW, **settings)


@pytest.mark.parametrize("more", [{}, {"arrivals": "poisson"}])
def test_requests_without_times_have_nothing_to_scale(more):
    with pytest.raises(InputError, match=r"no arrival times.*--rate"):
        read(workload="sharegpt", scale=2, **more)


def test_a_scale_is_not_streamed(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,5,5\n")

    with pytest.raises(InputError, match="scale and stream are both given"):
        simulate_deployment(
            SimulateSettings(trace=str(path), scale=2, stream=True, **REPLICA)
        )
