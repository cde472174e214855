"""A page with a first screen, made by hand."""

import io
from dataclasses import replace

import numpy as np
from markupsafe import Markup
from rich.console import Console

from capplan.planning.configure.configuration import configurations
from capplan.planning.settings.plan import PlanSettings
from capplan.report.charts.svg_chart import Axis, Line, figure
from capplan.report.columns import column
from capplan.report.page import (
    LABELS,
    Answer,
    Cell,
    Figure,
    Page,
    Panel,
    Said,
    Section,
    Table,
)
from capplan.report.render.terminal import print_answer

WAYS = Table(
    [
        column("", "instead", justify="left", path="0"),
        column("", "GPUs", path="1", leaves=2),
        column("", "a month", path="2"),
        column("", "change", path="3", leaves=1),
        column("", "peak", justify="left", path="4"),
    ],
    [
        ("6 × B200-SXM", "6", "$29,740", "–", "holds, 3 % to spare", "best"),
        ("1 GPU fewer", "5", "$24,784", "−$4,957", "misses: tpot 36 ms, not 30", ""),
        ("H100-SXM", "≥14", "≥$71,890", "≥+$42,150", "pays below $2.55", "fail"),
    ],
    style=lambda row: row[5],
)
ANSWER = Answer(
    Said("6 × B200-SXM", "6 replicas × 1 GPU, on demand at $6.79 a GPU-hour"),
    Said("$29,740 a month", "$356,882 a year"),
    Said("holds, 3 % to spare", "99.51 % in time, asked 99 %"),
    Said("estimated: 5 to 10 GPUs", "$24,784 to $49,567 a month"),
    Said("test one B200 for an hour", "about $7"),
    WAYS,
    ["ask for a quote for a year"],
)
PANEL = Panel(
    "$",
    [Cell([[29740.0]] * 12, "6 GPUs", True), Cell([[34697.0]] * 12, "7 GPUs", True)],
    [("Price of a GPU-hour", 6.79)],
    [("Growth of traffic", ["0 %", "3 %"])],
    [("Target", "99 %", "capplan what-if PLAN.json --attainment 0.95,0.999")],
    "GPUs",
)
PAGE = Page(
    "plan",
    "Rent 6 B200-SXM GPUs for $29,740 a month.",
    "gpt-oss-120b · 300 requests/s",
    [
        Section("Assumed", facts=[("hours", "a typical week")], topic="assumptions"),
        Section("Why 6 and not 5", facts=[("five", "miss")], topic="count"),
        Section("Start it with", command="vllm serve x", topic="run", is_folded=True),
        Section("Odds", notes=["and ends"]),
    ],
    dict,
    prices="prices of 7 October 2026",
    lead="They serve the daily peak.",
    answer=ANSWER,
    chart=Figure("6 GPUs carry the day", Markup("<svg></svg>"), caption="of a week"),
    panel=PANEL,
    warnings=("contexts are long",),
)


def crowded() -> Page:
    """Return the page with more of everything than two sheets of paper hold."""
    long = "what is said of it takes more than one line of a sheet of paper " * 3
    facts = [(f"fact {k}", long) for k in range(30)]
    rows = [("64 × MI300X-OAM, TP 8 of 2 nodes of 8 and more", *WAYS.rows[1][1:])] * 6
    wide = Said("estimated: up to 128 GPUs, at least", long[:150])
    answer = Answer(*5 * [wide], instead=replace(WAYS, rows=rows, note=long))
    fixed = [*PANEL.fixed, *PANEL.fixed]
    return replace(
        PAGE,
        lead=long + long,
        answer=answer,
        panel=PANEL._replace(fixed=fixed, choices=3 * [*PANEL.choices]),
        chart=figure(
            "What more lines than can be told apart do to the height of a legend",
            Axis("hour", str, 0.0, 9.0),
            Axis("requests/s", str, 0.0, 9.0),
            [Line(f"line {k} of many", np.arange(9), np.arange(9)) for k in range(9)],
            caption=long,
        ),
        sections=[replace(PAGE.sections[1], facts=facts), *PAGE.sections],
        warnings=[f"{'abcdefghijklmnopqrst'[k]} {long}" for k in range(20)],
    )


def screen(page, width=100):
    """Return the first screen of a page as the terminal has it."""
    out = io.StringIO()
    print_answer(page, page.answer, Console(file=out, width=width, highlight=False))
    return out.getvalue()


def told_within(page, width):
    """Return the labels that a first screen tells: in order, and within a terminal."""
    lines = screen(page, width).splitlines()

    assert len(lines) <= 24
    assert max(map(len, map(str.rstrip, lines))) <= width
    firsts = [line.split()[0] for line in lines if line.strip()]
    told = [name for name, said in page.answer.said if said.text]
    assert [first for first in firsts if first in LABELS] == told
    return told


def configuration(gpu="H100-SXM", tp=1, llm="gpt-oss-120b", **more):
    """Return a configuration with its times and prices of one day."""
    asked = {"llm": llm, "gpu": gpu, "tp": tp, "workload": "sharegpt", "rate": 1}
    asked |= {"as_of": "2026-11-21"}
    return next(iter(configurations(PlanSettings(**asked, **more))))
