"""What a plan and a simulation of sessions show."""

import re
from dataclasses import replace

import pytest

from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.plan.last_replica import LastPoints
from capplan.planning.plan.plan import plan
from capplan.planning.plan.sticky import StickyWorth
from capplan.planning.plan.tier_search import TiersTried, TierTried
from capplan.planning.settings.plan import (
    CapacitySettings,
    PlanSettings,
    SimulateSettings,
)
from capplan.planning.size.capacity import capacity
from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report import sentences
from capplan.report.charts.sessions import swimlane_figure, tier_figure
from capplan.report.pages.capacity import capacity_page
from capplan.report.pages.plan import plan_page
from capplan.report.pages.run import run_page
from capplan.report.render.html_page import html
from capplan.report.render.markdown import markdown
from capplan.report.what_if_answer import what_if_answer

SETTINGS = {
    "workload": "chat-turns:n=100",
    "llm": "Llama-3.1-8B",
    "gpu": ("H100-SXM",),
    "tp": (1,),
    "latency_ms": "10,0.3,1e-7,0.1,1e-5",
    "kv_blocks": 2001,
    "max_num_seqs": 32,
    "wait_cap": "20s",
    "tune": False,
    "slo": ("turn:ttft=500ms,tpot=40ms",),
    "attainment": 0.95,
}


@pytest.fixture(scope="module")
def found():
    return plan(PlanSettings(**SETTINGS, sessions="200"))


def test_a_fleet_holds_where_sessions_have_no_peak(found):
    page = plan_page(found)

    assert [name for name, _ in page.answer.said][2] == "fleet"
    assert page.answer.instead.shown[-1].heading == "fleet"
    assert "With one replica fewer, the fleet" in page.lead
    assert "% of turns are answered" in page.lead
    why = next(part for part in page.sections if part.topic == "count")
    assert "% of turns (95 % interval" in dict(why.facts)["in time"]
    assert "<dt>Does the fleet hold?</dt>" in html(page)
    assert "**Does the fleet hold?**" in markdown(page)


def test_sessions_that_do_not_stick_were_simulated(found):
    page = plan_page(replace(found, sticky=StickyWorth("jsq", None, None, 8)))
    rows = [row for row in page.answer.instead.rows if "do not stick" in row[0]]

    assert rows[0][1] == ">8"
    assert "with up to 8 GPUs" in rows[0][4]
    assert not any("not simulated" in mark for mark in page.answer.marks)


def test_turns_are_no_requests_at_a_rate(found):
    given = {each.what: each.value for each in found.assumptions}

    assert given["traffic"].endswith("turns to draw from")


def figures_of(page):
    sections = {section.heading: section for section in page.sections}
    return sections["Sessions"].drawn


def test_the_cliff_says_where_hits_collapse_and_marks_the_plan(found):
    cliff, _ = figures_of(plan_page(found))

    assert found.collapse is not None
    most = f"{found.collapse.users_per_replica:,.0f}"
    assert cliff.title == f"Hits collapse beyond {most} sessions a replica"
    labels = [label for label, _ in cliff.legend]
    assert labels[:2] == ["prompt tokens found in caches", "turns in time"]
    circles = re.findall(r'<circle [^>]*fill="([^"]+)"', cliff.svg)
    assert len(circles) == 2 * len(found.best.probes)
    assert sum(fill != "#fff" for fill in circles) == 2
    assert 'aria-label="share against sessions a replica"' in cliff.svg
    assert ("hits", str(found.collapse)) in found.said


def test_without_a_collapse_the_cliff_says_what_caches_have(found):
    best = replace(found.best, probes=found.best.probes[-2:])
    found = replace(found, best=best, collapse=None)

    cliff, _ = figures_of(plan_page(found))

    count = found.sessions.running / found.best.replica_count
    assert cliff.title.endswith(
        f"of prompts from caches at {count:.3g} sessions a replica"
    )


def test_of_one_count_no_cliff_is_drawn(found):
    best = replace(found.best, probes=found.best.probes[:1])

    assert len(figures_of(plan_page(replace(found, best=best)))) == 1


def test_the_gpus_with_each_tier_are_drawn(found):
    row = TierTried("0", 0.0, 6, 60.0)
    less = TierTried("50%", 80.0, None, None)
    rows = row, TierTried("100%", 160.0, found.best.gpu_count, 10.0), less
    tiers = TiersTried(rows, 160.0)

    figure = tier_figure(replace(found, tiers_tried=tiers))

    assert figure.title.endswith("GPUs with 160 GiB of host memory a replica")
    assert figure.svg.count("<circle") == 2  # that of less memory does not hold
    assert "80 GiB: more GPUs" in figure.caption
    assert tier_figure(replace(found, tiers_tried=TiersTried((row,), 0.0))) is None
    assert tier_figure(found) is None


def test_the_turns_of_a_session_are_drawn_in_their_phases(found):
    _, lanes = figures_of(plan_page(found))
    session = found.best.run.one_session

    count = len(session.times)
    assert lanes.svg.count('<rect class="span"') == 4 * count - 1
    assert re.fullmatch(
        r"Of a session's time answers take [\d.]+ %, prompts [\d.]+ %, front end and "
        r"queue [\d.]+ %",
        lanes.title,
    )
    assert [label for label, _ in lanes.legend] == [
        "tools and users",
        "answer",
        "prompt",
        "front end and queue",
    ]
    assert ">main<" in lanes.svg


def test_each_agent_has_a_lane_of_its_own(found):
    session = found.best.run.one_session
    agent = session.turns.agent.copy()
    agent[1:3] = 2, -1
    turns = replace(session.turns, agent=agent)
    run = replace(found.best.run, kept_session=session._replace(turns=turns))

    svg = swimlane_figure(run).svg

    assert svg.index(">apart 1<") < svg.index(">sub 2<") < svg.index(">main<")


def test_pictures_are_the_same_bytes_each_time(found):
    first, second = (figures_of(plan_page(found)) for _ in range(2))

    assert first == second


def test_a_simulation_draws_a_session():
    given = {k: v for k, v in SETTINGS.items() if k not in ("tune", "attainment")}
    run = simulate_deployment(SimulateSettings(**given, sessions="10"))

    (lanes,) = figures_of(run_page(run))

    assert lanes.svg.count('<rect class="span"') == 4 * len(run.one_session.times) - 1


def test_requests_have_no_picture_of_sessions():
    run = simulate_deployment(
        SimulateSettings(
            workload="synthetic:prompt=100,output=10,n=50",
            llm="Llama-3.1-8B",
            gpu=("H100-SXM",),
            tp=(1,),
            latency_ms="10,0.3,1e-7,0.1,1e-5",
            rate=5,
        )
    )

    assert figures_of(run_page(run)) == []


def test_the_first_screen_has_the_fleet_without_the_last_points(found):
    probes = tuple(
        replace(probe, slo_attainment=0.93, missing=("turn",), classes=())
        if probe.replica_count == 8
        else probe
        for probe in found.best.probes
    )
    last = LastPoints(8, 0.02, found.best.replica_count - 8, 6, 6, 10_000.0)
    best = replace(found.best, probes=probes)

    page = plan_page(replace(found, best=best, last_points=last))

    more = f"{last.replica_count_more} GPUs fewer"
    row = next(row for row in page.answer.instead.rows if row[0] == more)
    gpus = found.best.gpu_count - 6
    assert row[1] == f"{gpus}"
    assert row[3] == "−$10,000"
    assert row[4].startswith("misses")
    assert page.chart.title.endswith(f"are enough; {gpus} miss by 2 points")
    assert ">turns in time<" in page.chart.svg


def test_sentences_have_the_names_of_what_sessions_are_promised(found):
    few = next(row for row in found.best.probes if row.meets is False)

    assert "of later turns in time (asked 95 %)" in sentences.missed(few)


def test_a_fleet_holds_sessions_in_capacity_and_what_if_too(found):
    given = {k: v for k, v in SETTINGS.items() if k not in ("tune", "workload")}
    asked = CapacitySettings(
        **given, workload="chat-turns:n=50", sessions="auto", replicas=2
    )
    cells = tuple(
        Cell({"sessions": n}, "feasible", PlanSettings(**SETTINGS, sessions=n), found)
        for n in ("100", "200")
    )
    varied = WhatIf(cells, {"sessions": ("100", "200")}, "chat-turns", 0)

    answers = capacity_page(capacity(asked)).answer, what_if_answer(varied)

    for answer in answers:
        assert [name for name, _ in answer.said][2] == "fleet"
    assert answers[0].next.short == "size for your own sessions"
    assert answers[1].instead.shown[-1].heading == "fleet"
