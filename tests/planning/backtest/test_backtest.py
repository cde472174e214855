"""A fleet that capplan simulated is found as it was: with its times, or others."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.planning.backtest.backtest import backtest
from capplan.planning.backtest.capacity_factor import capacity_factor
from capplan.planning.backtest.phi import factors, pooled
from capplan.planning.backtest.settings import BacktestSettings
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.settings.plan import SimulateSettings
from capplan.report.to_files import answer

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")

TIMES_MS = (7.0, 0.01, 0.0, 0.1, 1e-5)
MEANS = ("itl_s_mean", "tpot_s_mean", "e2e_s_mean", "ttft_s_mean")
MEANS += ("requests_per_s", "output_tokens_per_s")
FLEET = {"kv_blocks": 30_000, "max_num_seqs": 256}
LOAD = {
    "workload": "synthetic:prompt=lognormal(median=300,sigma=0.8),"
    "output=lognormal(median=150,sigma=0.6),n=45000",
    "rate": 18.0,
    "replicas": 3,
}


def measured(folder, slower=1.0, **more):
    """Write the metrics of a fleet whose iterations take so many times as long."""
    times = tuple(slower * ms for ms in TIMES_MS)
    given = {**FLEET, **LOAD, "latency_ms": times, **more}
    answer("simulate", SimulateSettings(**given, export_metrics=f"{folder}:30s"))
    return folder


def backtested(**given):
    return backtest(BacktestSettings(**FLEET, latency_ms=TIMES_MS, **given))


@pytest.fixture(scope="module")
def as_assumed(tmp_path_factory):
    """Metrics of a fleet as assumed, of which a replica comes and one restarts."""
    away = ("1@0s:12m", "1@24m:4m")
    return measured(tmp_path_factory.mktemp("metrics"), outage=away)


@pytest.mark.thorough
def test_a_fleet_as_assumed_has_the_factor_1(as_assumed):
    found = backtested(metrics=str(as_assumed))

    assert found.phi.value == pytest.approx(1.0, abs=0.02)
    assert found.phi.low < 1.0 < found.phi.high
    assert found.capacity_factor == pytest.approx(1.0, abs=0.06)
    assert found.unexplained == ()
    assert found.fleet.replica_count == 3
    # The newest comes after 12 minutes and starts anew after 24: its windows begin so.
    begins = sorted({w.first_s for w in found.windows if w.replica == "replica-2"})
    since_s = np.array(begins) - min(w.first_s for w in found.windows)
    assert since_s[0] == pytest.approx(720, abs=30)
    assert (np.abs(since_s - 28 * 60) <= 30).any()


@pytest.mark.thorough
def test_means_and_counts_of_a_fleet_as_assumed_are_simulated_to_2_percent(as_assumed):
    found = backtested(metrics=str(as_assumed))

    means = {
        name: np.mean([window.ratio[name] for window in found.windows])
        for name in MEANS
    }
    # Which arrivals meet on a replica, scrapes do not tell.
    assert means.pop("ttft_s_mean") == pytest.approx(1.0, abs=0.06)
    assert means == pytest.approx(dict.fromkeys(means, 1.0), abs=0.02)


def as_grafana(exported, folder):
    """Write Prometheus' answers as Grafana's CSV, series joined by time."""
    for path in sorted(exported.glob("*.json.gz")):
        columns, names = {}, []
        for row in json.loads(gzip.decompress(path.read_bytes()))["data"]["result"]:
            labels = dict(row["metric"])
            name = labels.pop("__name__")
            text = ", ".join(f'{key}="{value}"' for key, value in labels.items())
            names.append(f"{name}{{{text}}}")
            for at, value in row["values"]:
                columns.setdefault(at, {})[names[-1]] = value
        with (folder / f"{path.name}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["Time", *names])
            for at, values in sorted(columns.items()):
                cells = [values.get(name, "") for name in names]
                out.writerow([round(1000 * at), *cells])
    return folder


@pytest.mark.slow
def test_metrics_in_a_csv_of_grafana_give_the_same_backtest(as_assumed, tmp_path):
    exported = backtested(metrics=str(as_assumed))

    found = backtested(metrics=str(as_grafana(as_assumed, tmp_path)))

    assert found.phi == exported.phi
    assert found.capacity_factor == exported.capacity_factor
    assert [w.measured for w in found.windows] == [w.measured for w in exported.windows]


@pytest.mark.thorough
def test_a_fleet_whose_iterations_are_slower_is_found_so(tmp_path):
    folder = measured(tmp_path, slower=1.3)

    found = backtested(metrics=str(folder))

    assert found.phi.value == pytest.approx(1.30, abs=0.02)
    assert found.phi_prefill == pytest.approx(1.30, abs=0.05)
    assert found.capacity_factor < 1 / found.phi.value


@pytest.mark.thorough
def test_a_fleet_whose_requests_are_given_has_exactly_the_factor_1(tmp_path):
    path = tmp_path / "requests.csv"
    given = {**FLEET, **LOAD, "latency_ms": TIMES_MS, "per_request": str(path)}
    answer("simulate", SimulateSettings(**given))

    found = backtested(requests=str(path), replicas=3)

    assert found.phi.value == 1.0
    assert found.capacity_factor == 1.0
    assert all(window.phi == 1.0 for window in found.windows)
    ratios = [ratio for window in found.windows for ratio in window.ratio.values()]
    assert ratios == pytest.approx([1.0] * len(ratios), rel=1e-9)


@pytest.mark.thorough
def test_answers_that_are_not_streamed_are_compared_as_a_whole(tmp_path):
    path = tmp_path / "requests.csv"
    given = {**FLEET, **LOAD, "latency_ms": TIMES_MS, "per_request": str(path)}
    given["workload"] = given["workload"].replace("45000", "9000")
    answer("simulate", SimulateSettings(**given))
    rows = [line.split(",") for line in path.read_text().splitlines()]
    lost = [rows[0].index(name) for name in ("first_token_s", "ttft_s")]
    for row in rows[1:]:
        for at in lost:
            row[at] = ""
    path.write_text("\n".join(map(",".join, rows)))

    found = backtested(requests=str(path), replicas=3)

    assert found.phi.value == 1.0


@pytest.mark.thorough
def test_as_many_replicas_would_do_as_a_plan_with_the_slower_times_has(as_assumed):
    found = backtested(metrics=str(as_assumed), slo=("ttft=500ms,tpot=11ms",))

    enough = found.fleet.enough
    asked = {**FLEET, "latency_ms": TIMES_MS, "slo": ("ttft=500ms,tpot=11ms",)}
    asked |= {"workload": LOAD["workload"], "rate": found.fleet.peak_per_s}
    held = {
        count: simulate_deployment(
            SimulateSettings(**asked, replicas=count)
        ).judgement.attainment.share
        for count in (enough - 1, enough)
        if count
    }
    assert held.pop(enough) >= 0.985
    assert all(share < 0.99 for share in held.values())


SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "backtest"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the public runs are not shipped")
@pytest.mark.parametrize(("users", "phi"), [(1, 1.07), (4, 1.08)])
def test_a_public_fleet_is_as_slow_at_one_user_as_at_four(users, phi):
    (metrics,) = SHARED.glob(f"metrics/*kimik2.5_tp4_conc{users}_offloadnone*")
    asked = {"llm": "Kimi-K2.5", "gpu": "MI355X", "tp": "4", "kv_cache_dtype": "fp8"}
    asked |= {"metrics": str(metrics), "max_num_seqs": users}
    requests = str(SHARED / "requests" / metrics.name)

    found = backtest(BacktestSettings(**asked, requests=requests))

    assert found.phi.value == pytest.approx(phi, rel=0.1)
    assert found.phi.low < found.phi.value < found.phi.high


def test_the_hand_case_of_one_request_at_a_time():
    found = factors(np.array([0.012]), lambda factor: np.array([0.010 * factor]))

    assert found == pytest.approx([1.2])


def test_the_hand_case_of_three_windows():
    phi = pooled([1.10, 1.12, 1.14])

    assert phi[:3] == pytest.approx((1.120, 1.071, 1.171), abs=1e-3)


def test_windows_that_correlate_count_as_fewer():
    drifting = np.exp(np.linspace(0.0, 0.2, 12))

    apart = pooled(np.random.default_rng(0).permutation(drifting))
    together = pooled(drifting)

    assert together.high / together.low > apart.high / apart.low


def test_times_that_grow_faster_than_the_factor_are_found_in_eight_simulations():
    asked = []

    def simulated_s(factor):
        asked.append(factor)
        return np.array([0.01 * factor**1.5, 0.02 * factor**2])

    found = factors(np.array([0.01 * 1.2**1.5, 0.02 * 0.9**2]), simulated_s)

    assert found == pytest.approx([1.2, 0.9], rel=0.01)
    assert len(asked) <= 8


def test_the_capacity_factor_is_the_load_at_which_a_replica_is_as_slow():
    def pace_s(factor, times):
        return factor * (7.0 + 0.1 * 20 * times)  # ms, of 20 requests at once

    # 1.1 × 9 ms = 9.9 ms: as slow as 29 requests without the factor, of which 20.
    assert capacity_factor(pace_s, 1.1) == pytest.approx(20 / 29, rel=0.02)
    assert capacity_factor(pace_s, 0.9) == pytest.approx(20 / 11, rel=0.02)
    assert capacity_factor(lambda factor, times: factor, 1.1) is None


def test_nothing_measured_is_refused():
    with pytest.raises(InputError, match="expected --metrics or --requests"):
        backtested()


def test_metrics_without_lengths_are_refused(tmp_path):
    path = tmp_path / "m.txt"
    text = "vllm:request_success_total 1\n"
    for at in (1780508691, 1780508701):
        (tmp_path / f"{at}.txt").write_text(f"# scraped_at {at}\n{text}")

    with pytest.raises(InputError, match="no histogram of prompt tokens"):
        backtested(metrics=str(path.parent))


def test_a_deployment_is_slowed_as_a_whole():
    given = SimulateSettings(**FLEET, **LOAD, latency_ms=TIMES_MS)
    configuration = simulate_deployment(
        given.model_copy(update={"workload": "synthetic:prompt=9,output=9,n=9"})
    ).configuration

    slowed = Deployment.of(configuration.slowed(1.3), 1).pool.configuration

    assert slowed.tables.decode_s == pytest.approx(1.3 * configuration.tables.decode_s)
