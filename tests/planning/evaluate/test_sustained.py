"""A replay above capacity is planned for traffic that goes on like it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.planning.evaluate.steadiness import sustained_per_s
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report.columns import format_load
from capplan.report.pages.plan import plan_page
from capplan.workload.catalog import open_workload
from capplan.workload.synthesis import resample
from tests.pages import facts

ASKED = {
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "tune": False,
    "slo": "ttft=1s,tpot=50ms",
}
COST = {"latency_ms": "9,0.04,0,0.08,0.00005", "kv_blocks": 3000}


def sharegpt(path, rate_per_s, request_count=10_000):
    """Write requests of ShareGPT as a trace with times of its own."""
    rng = np.random.default_rng(1)
    drawn = resample(open_workload("sharegpt", seed=0), request_count, rng)
    gaps_s = rng.exponential(1 / rate_per_s, request_count)
    at_s = np.cumsum(gaps_s) * request_count / rate_per_s / gaps_s.sum()
    return written(path, at_s, drawn.prompt_tokens, drawn.output_tokens)


def written(path, at_s, prompts, outputs):
    rows = zip(at_s, prompts, outputs, strict=True)
    lines = [f"{at:.6f},{prompt},{output}" for at, prompt, output in rows]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    return str(path)


@pytest.mark.parametrize(("rate_per_s", "replicas"), [(160, 4), (144, 3)])
def test_a_replay_above_capacity_takes_what_drawn_arrivals_take(
    tmp_path, rate_per_s, replicas
):
    replay = plan(PlanSettings(trace=sharegpt(tmp_path / "t.csv", rate_per_s), **ASKED))
    drawn = plan(PlanSettings(workload="sharegpt", rate=rate_per_s, **ASKED))

    assert replay.best.replica_count == drawn.best.replica_count == replicas


def test_the_plan_says_that_fewer_would_hold_the_replay_and_not_the_rate(tmp_path):
    trace = sharegpt(tmp_path / "t.csv", 160)

    found = plan(PlanSettings(trace=trace, **ASKED))

    three = {row.replica_count: row for row in found.best.probes}[3]
    assert (three.missing, three.meets, three.stable) == ((), False, False)
    page = plan_page(found)
    why = facts(page, "The busiest time")["as replayed"]
    assert "3 replicas would hold this trace alone (--no-extend)" in why
    load = format_load(three.sustained_utilisation)
    assert f"are {load} loaded" in why
    (fewer,) = [row for row in page.answer.instead.rows if row[0] == "1 GPU fewer"]
    assert fewer[4] == f"misses: {load} loaded, so the backlog grows"


def test_no_extend_takes_a_replay_as_it_is_and_says_that_its_backlog_grows(tmp_path):
    trace = sharegpt(tmp_path / "t.csv", 160)

    found = plan(PlanSettings(trace=trace, extend=False, **ASKED))

    assert found.best.replica_count == 3
    assert not found.best.run.judgement.stable
    page = plan_page(found)
    why = facts(page, "The busiest time")["as replayed"]
    assert "This fleet holds this trace, but not more traffic" in why
    load = format_load(found.best.run.judgement.steadiness.sustained)
    assert f"{load} loaded by its end" in page.answer.peak.more


def test_a_burst_that_drains_gets_a_line_and_no_gpu(tmp_path):
    rng = np.random.default_rng(2)
    # An hour at a third of what one replica completes, with a minute at twice that.
    at_s = np.concatenate(
        [rng.uniform(0, 3600, 60_000), rng.uniform(900, 1200, 24_000)]
    )
    lengths = np.full((2, len(at_s)), 100)
    trace = written(tmp_path / "t.csv", np.sort(at_s), *lengths)

    found = plan(PlanSettings(trace=trace, **{**ASKED, "slo": "e2e=600s"}, **COST))

    steadiness = found.best.run.judgement.steadiness
    assert found.best.replica_count == 1
    assert steadiness.busiest_utilisation > 1 > steadiness.sustained
    page = plan_page(found)
    load = facts(page, "The busiest time")["load"]
    assert "that backlog drains before the end" in load
    assert "backlog" not in page.answer.peak.text


@given(
    st.lists(st.floats(0.01, 600), min_size=2, max_size=60),
    st.floats(1e-3, 1.0),
)
def test_a_backlog_from_30_minutes_before_the_end_is_that_of_a_fluid_queue(
    gaps_s, completed_per_s
):
    at_s = np.cumsum(gaps_s)
    lasts_s = at_s[-1] - at_s[0]
    backlog, early = 0.0, []  # of arrivals beyond chance, by moment that it began
    for first, begin_s in enumerate(at_s):
        count = len(at_s) - first
        if at_s[-1] - begin_s >= min(1800.0, lasts_s):
            beyond = count - (2 * np.sqrt(count) if first else 0.0)
            backlog = beyond - completed_per_s * (at_s[-1] - begin_s)
            early.append(backlog)

    outpaces = sustained_per_s(at_s) > completed_per_s

    assert outpaces == (max(early) > 1e-9 * len(at_s)) or abs(max(early)) < 1e-6
