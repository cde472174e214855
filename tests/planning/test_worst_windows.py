"""The worst windows of a trace's own arrivals: told, and asked to attain the target."""

import json

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.planning.demand import demand
from capplan.planning.plan import plan
from capplan.planning.run import simulate_deployment
from capplan.planning.settings import DemandSettings, PlanSettings, SimulateSettings
from capplan.planning.worst_windows import worst_windows
from capplan.report.pages.plan import plan_page
from capplan.report.verify import verify
from capplan.simulator.metrics import requests_needed
from capplan.simulator.request_times import RequestTimes
from capplan.workload.slo import parse_slo
from tests.documents import plan_json

COST = {"latency_ms": "9,0.04,0,0.08,0.00005", "kv_blocks": 4000, "tp": 1}
SETTINGS = {
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "price": "H100-SXM=2.79",
    "slo": "ttft=400ms,tpot=15ms",
    "attainment": 0.95,
    **COST,
}


def table(arrival_s, ttft_s, classes=None):
    """Return requests of 10 tokens with their times to first token, all else alike."""
    n = len(arrival_s)
    zeros = dict.fromkeys(
        (
            "longest_gap_s",
            "late_gaps",
            "replica",
            "preemptions",
            "cached_tokens",
            "migrations",
            "handed_s",
        ),
        np.zeros(n, np.int64),
    )
    return RequestTimes(
        arrival_s=np.asarray(arrival_s, float),
        scheduled_s=np.asarray(arrival_s, float),
        first_token_s=arrival_s + ttft_s,
        finish_s=arrival_s + ttft_s + 1.0,
        prompt_tokens=np.full(n, 10),
        output_tokens=np.full(n, 10),
        request_class=np.zeros(n, np.int16) if classes is None else classes,
        swaps=np.zeros(n, np.int64),
        paused_s=np.zeros(n),
        **zeros,
    )


@pytest.fixture(scope="module")
def spike(tmp_path_factory):
    """An hour and a half at 10 requests/s, but 35 in one minute of it."""
    rng = np.random.default_rng(0)
    parts = [rng.uniform(0, 5400, 54_000), rng.uniform(3000, 3060, 1500)]
    arrival_s = np.sort(np.concatenate(parts))
    rows = zip(
        arrival_s,
        rng.integers(50, 300, len(arrival_s)),
        rng.integers(20, 120, len(arrival_s)),
        strict=True,
    )
    path = tmp_path_factory.mktemp("spike") / "own.csv"
    lines = [f"{at_s:.4f},{prompt},{output}" for at_s, prompt, output in rows]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    return path


def test_the_worst_window_by_hand():
    # 1 request/s for 1000 s; of those from 600 to 900 s, 60 of 300 are late.
    arrival_s = np.arange(1001.0)
    late = (arrival_s >= 600) & (arrival_s < 900) & (arrival_s % 5 == 0)
    times = table(arrival_s, np.where(late, 3.0, 0.5))

    (window,) = worst_windows(times, parse_slo("ttft=1s", 0.9), ("all",))

    assert (window.seconds, window.start_s) == (300.0, 600.0)
    assert window.slo_attainment == pytest.approx(240 / 300)
    assert window.rate_per_s == pytest.approx(1.0)
    assert not window.meets


def test_a_window_without_the_requests_to_tell_is_left_out():
    # 99 % takes 1,000 requests, and each window of 300 s has 300.
    times = table(np.arange(1001.0), np.full(1001, 3.0))

    assert worst_windows(times, parse_slo("ttft=1s", 0.99), ("all",)) == ()


def test_of_classes_the_one_furthest_below_its_target_is_told():
    arrival_s = np.arange(0.0, 600.0, 0.5)
    classes = (np.arange(1200) % 2).astype(np.int16)
    # Of chat 80 % in both windows, of code 95 % in the first and all in the second.
    late = (classes == 0) & (np.arange(1200) % 10 == 0)
    late |= (classes == 1) & (np.arange(1200) % 40 == 1) & (arrival_s < 300)
    times = table(arrival_s, np.where(late, 3.0, 0.5), classes)
    slo = parse_slo("ttft=1s", targets={"chat": 0.7, "code": 0.96})

    (window,) = worst_windows(times, slo, ("chat", "code"))

    assert window.classes == ("code",)
    assert window.start_s == 0.0
    assert window.slo_attainment == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("seed", range(30))
def test_no_window_is_worse_than_the_one_told(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(300, 3000))
    arrival_s = np.sort(rng.uniform(0, rng.uniform(700, 9000), n))
    times = table(arrival_s, rng.exponential(rng.uniform(0.1, 0.6), n))
    target, warmup_s = float(rng.choice([0.5, 0.8, 0.9])), float(rng.choice([0, 400]))
    width_s = float(rng.choice([200.0, 450.0]))

    found = worst_windows(
        times, parse_slo("ttft=1s", target), ("all",), warmup_s, width_s
    )

    for length_s in (width_s, 300.0, 3600.0):
        shares = {}
        for k in range(60):
            inside = [
                met
                for at_s, met in zip(
                    arrival_s - arrival_s[0], times.ttft_s <= 1.0, strict=True
                )
                if k * length_s <= at_s < (k + 1) * length_s and at_s >= warmup_s
            ]
            if len(inside) >= requests_needed(target):
                shares[k] = sum(inside) / len(inside)
        told = [row for row in found if row.seconds == length_s]
        outlasted = length_s < arrival_s[-1] - arrival_s[0]
        assert len(told) == bool(shares and outlasted)
        for row in told:
            assert row.slo_attainment == pytest.approx(min(shares.values()))
            assert row.meets == (min(shares.values()) >= target)
            assert shares[round(row.start_s / length_s)] == row.slo_attainment


def test_a_plan_of_a_spike_tells_what_its_windows_take(spike):
    made = plan(PlanSettings(**SETTINGS, trace=spike))

    five, hour = made.windows
    assert made.best.run.judgement.attainment.share >= 0.95
    assert five.slo_attainment < 0.95
    assert five.start_s == 3000
    assert five.rate_per_s > 14
    assert hour.slo_attainment >= five.slo_attainment
    facts = dict(fact for section in plan_page(made).sections for fact in section.facts)
    assert "of requests" in facts["worst 5 min"]
    assert "attain the target in all such windows" in facts["worst 5 min"]


@pytest.mark.thorough
def test_every_window_attains_the_target_where_that_is_asked(spike, tmp_path):
    lenient = plan(PlanSettings(**SETTINGS, trace=spike))

    strict = plan(PlanSettings(**SETTINGS, trace=spike, attain_in="5m"))

    (tmp_path / "plan.json").write_text(plan_json(strict))
    assert strict.best.replica_count > lenient.best.replica_count
    assert all(window.meets for window in strict.windows if window.seconds == 300)
    fewer = [
        probe
        for probe in strict.best.probes
        if probe.replica_count == strict.best.replica_count - 1
    ]
    assert not fewer[0].windows[0].meets
    assert verify(tmp_path / "plan.json", simulate=True) == []
    assert {"seconds", "start_s", "rate_per_s", "slo_attainment"} <= set(
        json.loads(plan_json(strict))["windows"][0]
    )


def test_drawn_arrivals_have_no_worst_window():
    settings = SimulateSettings(
        workload="synthetic:prompt=300,output=80,n=2000",
        rate=5.0,
        slo="ttft=1s",
        **COST,
    )

    assert simulate_deployment(settings).judgement.windows == ()


@pytest.mark.parametrize(
    ("attain_in", "said"),
    [
        ("2s", "the busiest such window has"),
        ("2h", "the requests arrive within 90 min"),
        ("10ms", "a request stays"),
        ("-5m", "negative"),
        ("soon", "not a duration"),
    ],
)
def test_windows_that_tell_nothing_are_refused(spike, attain_in, said):
    with pytest.raises(InputError, match=said):
        plan(PlanSettings(**SETTINGS, trace=spike, attain_in=attain_in))


@pytest.mark.parametrize("traffic", [{"rate": 5.0}, {"users": 5}])
def test_windows_of_arrivals_at_one_rate_are_refused(traffic):
    with pytest.raises(InputError, match="leave it out"):
        plan(
            PlanSettings(
                **SETTINGS,
                workload="synthetic:prompt=300,output=80,n=2000",
                attain_in="5m",
                **traffic,
            )
        )


def test_plans_at_several_rates_have_no_windows():
    settings = DemandSettings(
        **SETTINGS,
        workload="synthetic:prompt=300,output=80,n=2000",
        attain_in="5m",
        rates=[1, 2, 3, 4],
    )

    with pytest.raises(InputError, match="leave it out"):
        demand(settings)
