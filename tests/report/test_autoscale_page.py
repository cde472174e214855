"""The page, the table and the JSON of autoscalers say the same."""

import csv
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from capplan.cli.main import exit_code
from capplan.planning.autoscale.autoscale import autoscale
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.report.charts.autoscale import figures, finding
from capplan.report.pages.autoscale import autoscale_page, autoscale_values
from capplan.report.render.html_page import html
from capplan.report.render.terminal import print_page

REQUIRED = {
    "name",
    "slo_attainment",
    "worst_hour_attainment",
    "mean_replicas",
    "peak_replicas",
    "gpu_hours_paid",
    "gpu_hours_ready",
    "gpu_hours_busy",
    "actions_per_day",
    "static_replicas",
    "lower_bound_gpu_hours",
    "break_even_cold_start_s",
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Twenty minutes with five busy ones in the middle."""
    gaps_s = [0.5] * 1000 + [0.08] * 4000 + [0.5] * 1000
    at_s, rows = 0.0, []
    for k, gap_s in enumerate(gaps_s):
        at_s += gap_s
        rows.append(f"{at_s:.2f},{200 + k % 90},{40 + k % 31}")
    path = tmp_path_factory.mktemp("burst") / "burst.csv"
    head = "arrival_s,prompt_tokens,output_tokens"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


FLEET = {
    "latency_ms": "20,0.2,0,1,0.0001",
    "kv_blocks": 4000,
    "slo": "ttft=2s,tpot=60ms",
    "attainment": 0.9,
    "cold_start": "2s",
    "policies": "hpa,keda",
    "outage": "1@peak:20s",
}


@pytest.fixture(scope="module")
def found(trace):
    return autoscale(AutoscaleSettings(trace=trace, **FLEET))


def test_the_json_has_the_keys_that_it_is_read_by(found):
    values = autoscale_values(found)

    assert values["schema"] == "capplan.autoscale/1"
    assert [row["name"] for row in values["policies"]] == ["hpa", "keda", "perfect"]
    for row in (values["fixed"], *values["policies"]):
        assert set(row) >= REQUIRED
        assert row["lower_bound_gpu_hours"] == values["lower_bound_gpu_hours"]
    assert values["losses"][0]["what"] == "outage 1@peak:20s"
    assert values["fixed"]["static_replicas"] == values["fixed"]["peak_replicas"]


def test_an_autoscaler_follows_a_burst_for_fewer_gpu_hours(found):
    best = found.best

    assert best is found.best_policy
    assert best.meets
    assert best.pays
    assert best.outcome.gpu_hours_paid < found.fixed.outcome.gpu_hours_paid
    assert best.name in autoscale_page(found).headline


def test_the_charts_show_needed_ready_and_paid_and_traffic_with_capacity(found):
    drawn, name = [finding(found), *figures(found)], found.best_policy.name

    legends = [[label for label, _ in figure.legend] for figure in drawn]
    assert legends[0] == ["paid", "ready", "needed"]
    assert legends[1] == ["arrivals", f"{name}, ready", "fixed fleet"]
    assert [figure.title for figure in drawn] == [
        f"{name} runs 1 to 4 replicas; a fixed fleet needs 2",
        f"Traffic against capacity, {name}",
        "GPU-hours paid",
    ]
    text = html(autoscale_page(found))
    assert text.count("<svg") == 3


def test_a_narrow_terminal_shows_every_column_that_its_note_explains(found):
    text, without = io.StringIO(), io.StringIO()
    unasked = [replace(row, break_even_s=None) for row in found.policies]

    print_page(autoscale_page(found), Console(file=text, width=120))
    plain = autoscale_page(replace(found, policies=unasked))
    print_page(plain, Console(file=without, width=120))

    assert text.getvalue().count("pays up to") == 2  # a heading and the note
    assert "pays up to" not in without.getvalue()


def test_the_files_and_the_terminal_agree(trace, tmp_path, capsys):
    given = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in FLEET.items()
        if name != "outage"
    ]

    code = exit_code(
        ["autoscale", "--trace", str(trace), *given, "--out", str(tmp_path)]
    )

    shown = capsys.readouterr().out
    document = json.loads((tmp_path / "autoscale.json").read_text())
    with (tmp_path / "autoscale.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert code == 0
    assert [row["policy"].partition(":")[0] for row in rows[1:]] == [
        row["name"] for row in document["policies"]
    ]
    for row, told in zip(rows, [document["fixed"], *document["policies"]], strict=True):
        assert float(row["gpu_hours_paid"]) == pytest.approx(told["gpu_hours_paid"])
        assert float(row["slo_attainment"]) == pytest.approx(told["slo_attainment"])
    assert "GPU-h paid" in shown
    assert not (tmp_path / "losses.csv").exists()


def test_a_target_that_nothing_attains_ends_with_exit_code_3(trace, capsys):
    given = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in {**FLEET, "slo": "ttft=2s,tpot=5ms"}.items()
    ]

    assert exit_code(["autoscale", "--trace", str(trace), *given]) == 3

    assert "No fleet of a fixed size attains the target" in capsys.readouterr().out
