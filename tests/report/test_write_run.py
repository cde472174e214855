"""A simulated deployment in its files: escaped, deterministic, without NaN."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from capplan.report.write_run import print_run, run_csv, run_html, run_json


def test_what_is_not_known_is_null(run):
    document = json.loads(run_json(run))

    assert document["schema"] == "capplan.simulation/1"
    assert document["latency"]["tpot_s"]["p99"] is None
    assert document["usd_per_h"] is None
    assert document["slo_attainment"] == 1.0


def test_every_latency_is_a_row_in_seconds(run):
    lines = run_csv(run).splitlines()

    assert lines[0] == "metric,mean,p50,p90,p95,p99,p99.9"
    assert lines[1].startswith("ttft_s,0.0")
    assert lines[2] == "tpot_s,,,,,,"


def test_the_page_escapes_where_the_requests_are_from(run):
    spoiled = replace(run, trace_source="<script>x</script>")

    page = run_html(spoiled)

    assert "<script" not in page
    assert "&lt;script&gt;" in page
    coordinates = re.findall(r' d="([^"]*)"', page)
    assert coordinates
    assert not any("nan" in each or "inf" in each for each in coordinates)


def test_the_same_run_gives_the_same_bytes(run):
    assert run_json(run) == run_json(run)
    assert run_html(run) == run_html(run)


def test_the_busy_share_is_busy_time_over_replica_time(run):
    times = run.simulation.times
    span_s = np.nanmax(times.finish_s) - times.arrival_s[0]

    share = json.loads(run_json(run))["busy_share"]

    assert share == pytest.approx(run.simulation.busy_s / span_s / 2)


def test_the_terminal_shows_deployment_facts_latencies_and_each_warning_once(run):
    out = io.StringIO()
    warned = replace(run, warnings=("[b]careful", "[b]careful"))

    print_run(warned, Console(file=out, width=120, highlight=False))

    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines[0] == "2 GPUs = 2 replicas × 1 (TP 1)"
    assert "within ttft ≤ 1 s" in lines
    assert "mean p50 p90 p95 p99 p99.9" in lines
    assert "time per output token – – – – – –" in lines
    assert lines.count("warning: [b]careful") == 1
