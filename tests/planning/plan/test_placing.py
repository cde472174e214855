"""Settings of a placement, and the peak heartbeat of a plan."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.heuristics import heuristic
from capplan.planning.configure.configuration import given_configuration
from capplan.planning.plan.placing import peak_heartbeat, place, placement_problem
from capplan.planning.settings.place import PlaceSettings
from capplan.planning.settings.plan import PlanSettings
from capplan.settings import SettingError
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace

REPLICA = dict(latency_ms="10,0.1,0,1,0.01", kv_blocks=40, max_num_seqs=16)


@pytest.fixture
def trace(tmp_path):
    """Ten seconds of ten requests a second, and a burst of thirty at 7.2 s."""
    arrivals_s = sorted(
        [i / 10 for i in range(100)] + [7.2 + i / 1000 for i in range(30)]
    )
    file = tmp_path / "trace.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens"]
    file.write_text("\n".join(lines + [f"{t},30,40" for t in arrivals_s]) + "\n")
    return str(file)


@pytest.mark.parametrize(
    "name", sorted(set(PlanSettings.model_fields) - set(PlaceSettings.model_fields))
)
def test_a_setting_that_a_placement_does_not_read_is_refused(name):
    with pytest.raises(SettingError, match=f"{name} has no effect on this command"):
        PlaceSettings(**{name: 1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(snapshot="s.json", rate=3), "rate has no effect with a snapshot"),
        (dict(snapshot="s.json", at="peak"), "at has no effect with a snapshot"),
        (dict(snapshot="s.json", tp=2), "tp has no effect with a snapshot without llm"),
        (
            dict(snapshot="s.json", workload="w"),
            "workload has no effect with a snapshot",
        ),
        (dict(heartbeat="1"), "'1' is not a duration"),
        (dict(at="noon"), "'noon' is not a duration"),
        (dict(time_limit="peak"), "'peak' is not a duration"),
        (dict(export="model.txt"), "suffix is '.txt'; expected .lp, .mps, .json"),
        (dict(gama=1), "gama is not a setting; did you mean gamma"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(SettingError, match=message):
        PlaceSettings(**settings)


def test_a_replica_may_be_given_with_a_snapshot():
    settings = PlaceSettings(snapshot="s.csv", **REPLICA)

    assert settings.kv_blocks == 40


def test_times_are_in_seconds():
    settings = PlaceSettings(at="2min", heartbeat="200ms", time_limit="1h")

    assert (settings.at_s, settings.heartbeat_s, settings.time_limit_s) == (
        120,
        0.2,
        3600,
    )
    assert PlaceSettings().at_s is None


def settings_of(trace, **more):
    return PlaceSettings(trace=trace, slo="ttft=1s,tpot=30ms", **REPLICA, **more)


@pytest.mark.parametrize("heartbeat", ["200ms", "1s"])
def test_the_peak_heartbeat_holds_the_burst(trace, heartbeat):
    problem = placement_problem(settings_of(trace, heartbeat=heartbeat))

    assert (problem.replica < 0).sum() >= 30


@pytest.mark.parametrize("heartbeat", ["200ms", "700ms", "1s"])
def test_the_peak_is_the_heartbeat_at_which_best_fit_uses_most_replicas(
    trace, heartbeat
):
    def of(moment):
        return placement_problem(settings_of(trace, heartbeat=heartbeat, at=moment))

    def used(problem):
        return len(np.unique(heuristic("best-fit")(problem, 0)))

    peak = of("peak")
    moments = [f"{at:g}s" for at in np.arange(7.0, 9.9, 0.7)]

    assert used(peak) >= max(used(of(moment)) for moment in moments)
    at = peak.source.rpartition(" at ")[2].replace(" ", "")
    stopped = of(at)
    assert stopped.names == peak.names
    assert stopped.replica.tolist() == peak.replica.tolist()
    assert stopped.generated_tokens.tolist() == peak.generated_tokens.tolist()


def test_gamma_theta_and_the_limit_of_replicas_reach_the_problem(trace):
    settings = settings_of(trace, gamma=0.25, theta=0.75, max_replicas=99)

    problem = placement_problem(settings)

    assert (problem.gamma, problem.theta, problem.max_replicas) == (0.25, 0.75, 99)


def test_a_moment_after_the_last_request_is_refused(trace):
    with pytest.raises(InputError, match="no requests 99 s after the first"):
        placement_problem(settings_of(trace, at="99s"))


def test_a_trace_needs_an_slo(trace):
    with pytest.raises(InputError, match="no SLO; give --slo"):
        placement_problem(PlaceSettings(trace=trace, **REPLICA))


def test_an_unknown_solver_names_the_known_ones(trace):
    with pytest.raises(InputError, match="expected one of cp-sat, scip, highs, best-f"):
        place(settings_of(trace, solver="cplex"))


def test_a_heuristic_over_the_limit_of_replicas_is_no_placement(trace):
    problem, placement = place(settings_of(trace, solver="jsq", max_replicas=99))
    used = placement.replica_count
    fewest = max(len(problem.ongoing_replicas), 1)
    assert used > fewest

    _, limited = place(settings_of(trace, solver="jsq", max_replicas=fewest))

    assert limited.assignment is None
    assert limited.heuristic_counts == {"jsq": used}


def peak_of(arrival_s, prompt_tokens, output_tokens, slo="ttft=1s,tpot=30ms"):
    return peak_heartbeat(
        given_configuration(PlanSettings(**REPLICA)),
        Trace(prompt_tokens, output_tokens, arrival_s),
        parse_slo([slo]),
        solver="cp-sat",
        seed=0,
    )


def test_a_plan_places_the_heartbeat_with_most_replicas(trace):
    arrivals_s = np.sort(np.concatenate([np.arange(100) / 10, np.full(30, 7.2)]))
    problem = placement_problem(settings_of(trace))

    peak = peak_of(arrivals_s, np.full(130, 30), np.full(130, 40))

    assert (peak.at_s, peak.status, peak.left_out) == (8.0, "optimal", 0)
    assert peak.new_requests == (problem.replica < 0).sum()
    assert peak.ongoing_requests == (problem.replica >= 0).sum()
    best_fit = heuristic("best-fit")(problem, 0)
    assert peak.best_fit_count == len(np.unique(best_fit))
    assert peak.lower_bound == peak.replica_count <= peak.best_fit_count


def test_requests_too_slow_alone_are_left_out_and_counted():
    # 40 blocks of 16, less one: 624 tokens; the request of 900 fits nowhere.
    peak = peak_of(np.arange(3.0), np.array([30, 900, 30]), np.full(3, 5))

    assert peak.left_out == 1
    assert "1 too slow alone left out" in str(peak)


def test_without_a_request_that_fits_there_is_no_peak():
    assert peak_of(np.arange(2.0), np.full(2, 900), np.full(2, 5)) is None
