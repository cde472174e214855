"""The worst windows of a trace's own arrivals: told, and asked to attain the target."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.load.worst_windows import LogClock, WindowWidths, in_windows
from capplan.planning.plan.demand import demand
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import (
    DemandSettings,
    PlanSettings,
    SimulateSettings,
)
from capplan.report.pages.plan import plan_page
from capplan.report.received.verify import verify
from capplan.simulator.results.metrics import requests_needed
from capplan.simulator.results.request_times import RequestTimes
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
            "tier_tokens",
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


def windows_of(times, slo, names=("all",), **given):
    """Return what windows show of a table."""
    met = np.logical_and.reduce(times.met(slo.columns(times.request_class, names)))
    rows = times.arrival_s, times.request_class, met
    return in_windows(*rows, slo, names, **given)


def test_the_worst_window_by_hand():
    # 1 request/s for 1000 s; of those from 600 to 900 s, 60 of 300 are late.
    arrival_s = np.arange(1001.0)
    late = (arrival_s >= 600) & (arrival_s < 900) & (arrival_s % 5 == 0)
    times = table(arrival_s, np.where(late, 3.0, 0.5))

    (window,) = windows_of(times, parse_slo("ttft=1s", 0.9)).worst

    assert (window.seconds, window.start_s) == (300.0, 600.0)
    assert window.slo_attainment == pytest.approx(240 / 300)
    assert window.rate_per_s == pytest.approx(1.0)
    assert not window.meets


def test_a_window_without_the_requests_to_tell_is_joined_or_not_told():
    # 99 % takes 1,000 requests, and each window of 300 s has 300.
    times = table(np.arange(2801.0), np.full(2801, 3.0))
    slo = parse_slo("ttft=1s", 0.99)

    told = windows_of(times, slo)
    judged = windows_of(times, slo, judged_s=300.0)

    assert told.worst == ()
    (window,) = (
        judged.worst
    )  # 1,200 requests, then 1,601: the last joins the one before
    assert (window.joined, window.start_s) in ((4, 0.0), (6, 1200.0))
    assert judged.widths == (WindowWidths((), 2, 6),)


def test_a_group_with_fewer_requests_in_all_is_judged_over_the_whole_trace():
    times = table(np.arange(0.0, 7200.0, 10.0), np.full(720, 0.5))

    found = windows_of(times, parse_slo("ttft=1s", 0.99), judged_s=3600.0)

    assert found.widths == (WindowWidths((), 1, 2),)
    assert found.missing == ()
    assert not found.worst[0].is_alone


def test_of_classes_the_one_furthest_below_its_target_is_told():
    arrival_s = np.arange(0.0, 600.0, 0.5)
    classes = (np.arange(1200) % 2).astype(np.int16)
    # Of chat 80 % in both windows, of code 95 % in the first and all in the second.
    late = (classes == 0) & (np.arange(1200) % 10 == 0)
    late |= (classes == 1) & (np.arange(1200) % 40 == 1) & (arrival_s < 300)
    times = table(arrival_s, np.where(late, 3.0, 0.5), classes)
    slo = parse_slo("ttft=1s", targets={"chat": 0.7, "code": 0.96})

    found = windows_of(times, slo, ("chat", "code"), judged_s=300.0)

    (window,) = found.worst
    assert window.classes == ("code",)
    assert window.start_s == 0.0
    assert window.slo_attainment == pytest.approx(0.95, abs=0.01)
    assert found.missing == ("code",)
    assert window.is_alone


def test_the_rate_of_a_last_window_is_that_while_requests_arrive():
    # 1/s for two hours, then 20/s for five minutes.
    arrival_s = np.concatenate([np.arange(7200.0), np.arange(7200.0, 7500.0, 0.05)])
    times = table(arrival_s, np.full(len(arrival_s), 0.5))

    found = windows_of(times, parse_slo("ttft=1s", 0.9), judged_s=3600.0)

    assert found.peak.rate_per_s == pytest.approx(20.0, rel=0.01)
    assert (found.peak.start_s, round(found.peak.end_s)) == (7200.0, 7500)


def test_windows_follow_the_hours_of_the_log():
    # From 14:40: 20 minutes until 15:00, in which all are late.
    arrival_s = np.arange(0.0, 3 * 3600.0)
    times = table(arrival_s, np.where(arrival_s < 1200, 3.0, 0.5))
    first_s = datetime(2026, 11, 24, 14, 40, tzinfo=UTC).timestamp()

    found = windows_of(
        times, parse_slo("ttft=1s", 0.9), judged_s=3600.0, clock=LogClock(first_s)
    )

    worst = found.worst[-1]
    assert (worst.starts_at, worst.ends_at) == ("2026-11-24T14:00", "2026-11-24T15:00")
    assert (worst.start_s, worst.end_s, worst.slo_attainment) == (0.0, 1200.0, 0.0)
    assert worst.when == "Tue 24 Nov 14:00–15:00"
    assert worst.is_alone


def slowly_joined(index, last, needed):
    """Return windows as pairs of first and end by hours, by the words of the rule."""
    windows, first, count = [], 0, 0
    for hour in range(last + 1):
        count += sum(1 for k in index if k == hour)
        if count >= needed:
            windows.append([first, hour + 1])
            first, count = hour + 1, 0
    if not windows:
        return [[0, last + 1]]
    windows[-1][1] = last + 1 if first <= last else windows[-1][1]
    return windows


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_windows_are_joined_and_judged_as_a_slow_judge_does(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, hours = int(rng.integers(2, 400)), float(rng.uniform(0.5, 12))
    arrival_s = np.sort(rng.uniform(0, hours * 600, n))
    arrival_s[rng.random(n) < 0.2] = arrival_s[0]  # bursts
    arrival_s.sort()
    classes = rng.integers(0, 3, n).astype(np.int16)
    times = table(arrival_s, rng.exponential(0.5, n), classes)
    targets = {name: float(rng.choice([0.5, 0.8, 0.9, 1.0])) for name in "abc"}
    slo = parse_slo("ttft=1s", 0.5, targets if rng.random() < 0.7 else None)
    first_s = float(rng.uniform(0, 1e5)) if rng.random() < 0.5 else None
    warmup_s = float(rng.choice([0.0, 500.0]))
    speed = float(rng.choice([1.0, 2.0]))

    found = windows_of(
        times,
        slo,
        ("a", "b", "c"),
        warmup_s=warmup_s,
        judged_s=600.0,
        clock=LogClock(first_s, speed),
    )

    into_s = 0.0 if first_s is None else first_s % 600.0
    since_s = arrival_s - arrival_s[0]
    index = [int((into_s + at_s * speed) // 600.0) for at_s in since_s]
    met = times.ttft_s <= 1.0
    margins, misses, widths = [], set(), []
    for group in slo.groups(("a", "b", "c")):
        rows = [
            k
            for k in range(n)
            if since_s[k] >= warmup_s and classes[k] in group.indices
        ]
        if not rows:
            continue
        hours_of = [index[k] for k in rows]
        joined = slowly_joined(hours_of, index[-1], requests_needed(group.target))
        widths.append((len(joined), max(end - first for first, end in joined)))
        for first, end in joined:
            inside = [met[k] for k in rows if first <= index[k] < end]
            margin = sum(inside) / len(inside) - group.target
            margins.append(margin)
            misses |= set(group.names) if margin < 0 else set()
    assert [(row.window_count, row.longest) for row in found.widths] == widths
    assert set(found.missing) == misses
    judged = [row for row in found.worst if row.is_judged]
    assert len(judged) == bool(margins)
    for row in judged:
        assert row.slo_attainment - row.target == pytest.approx(min(margins))
        assert row.meets == (min(margins) >= 0)


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
    assert "would hold every window this long" in facts["worst 5 min"]


@pytest.mark.thorough
def test_every_window_attains_the_target_where_that_is_asked(spike):
    lenient = plan(PlanSettings(**SETTINGS, trace=spike))

    strict = plan(PlanSettings(**SETTINGS, trace=spike, attain_in="5m"))

    document = spike.with_name("plan.json")  # a trace is read where it lies beside it
    document.write_text(plan_json(strict))
    assert strict.best.replica_count > lenient.best.replica_count
    assert all(window.meets for window in strict.windows if window.seconds == 300)
    fewer = [
        probe
        for probe in strict.best.probes
        if probe.replica_count == strict.best.replica_count - 1
    ]
    assert not fewer[0].windows[0].meets
    assert verify(document, simulate=True) == []
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

    assert simulate_deployment(settings).judgement.in_windows.worst == ()


@pytest.mark.parametrize(
    ("attain_in", "said"),
    [
        ("0s", "is no time"),
        ("10ms", "that a request takes alone"),
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
