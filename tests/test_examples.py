"""The shipped example is a scenario that works as the README says."""

import json
from pathlib import Path

import pytest

import capplan
from capplan.cli.main import exit_code
from capplan.cli.scenario import settings_from
from capplan.planning.settings import PlanSettings
from capplan.planning.systems import SYSTEMS

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
EXAMPLE = EXAMPLES / "plan_sharegpt.yaml"


def test_the_example_asks_for_two_gpu_types_at_four_degrees():
    request = settings_from(PlanSettings, EXAMPLE, {})

    assert len(request.gpu) == 2
    assert request.tp == (1, 2, 4, 8)
    assert request.slo == ("ttft=1.5s,tpot=50ms",)


def test_the_example_compares_its_degrees_in_a_search(capsys):
    code = exit_code(["search", str(EXAMPLE)])

    assert code == 0
    assert "output tokens/s per GPU, bound by" in capsys.readouterr().out


def test_the_page_of_settings_is_made_from_them(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from settings_page import COMMANDS, page

    text = (EXAMPLES.parent / "docs" / "settings.md").read_text(encoding="utf-8")

    assert text == page()
    for model in COMMANDS.values():
        for name in model.model_fields:
            assert f"| `--{name.replace('_', '-')}` |" in text


def test_the_mixed_example_compares_systems_by_class(tmp_path, capsys):
    given = ["--systems", "sarathi,fastgen", "--rates", "12", "--out", str(tmp_path)]

    code = exit_code(["compare", str(EXAMPLES / "compare_mixed.yaml"), *given])

    systems = json.loads((tmp_path / "compare.json").read_text())["systems"]
    assert code == 0
    assert "2 systems compared" in capsys.readouterr().out
    for system in systems:
        assert list(system["attainment_by_class"]) == ["chat", "code"]
        assert system["max_rate_per_s"] > 12


@pytest.mark.slow
def test_the_mixed_example_runs_every_system(tmp_path):
    given = [str(EXAMPLES / "compare_mixed.yaml"), "--out", str(tmp_path)]

    code = exit_code(["compare", *given])

    systems = json.loads((tmp_path / "compare.json").read_text())["systems"]
    assert code == 0
    assert [system["name"] for system in systems] == list(SYSTEMS)
    assert {system["status"] for system in systems} == {"feasible"}


@pytest.mark.slow
def test_the_example_is_planned_with_its_proof(tmp_path, capsys):
    code = exit_code(["plan", str(EXAMPLE), "--out", str(tmp_path)])

    best = json.loads((tmp_path / "plan.json").read_text())["best"]
    failed = [
        probe
        for probe in best["probes"]
        if probe["replica_count"] == best["replica_count"] - 1
    ]
    assert code == 0
    assert capsys.readouterr().out.startswith(f"{best['gpu_count']} GPUs = ")
    assert best["slo_attainment"] >= 0.99
    assert best["lower_bound_gpu_count"] <= best["gpu_count"]
    assert [probe["meets"] for probe in failed] == [False]
    assert (tmp_path / "report.html").stat().st_size < 6_000_000


@pytest.mark.slow
def test_one_h100_keeps_30_ms_at_16_requests_a_second_and_not_at_23():
    asked = {
        "workload": "synthetic:prompt=1024,output=256",
        "llm": "Llama-3.1-8B",
        "gpu": "H100-SXM",
        "tp": 1,
        "slo": "tpot=30ms",
    }

    slower = capplan.plan(rate=16, **asked)
    faster = capplan.plan(rate=23, **asked)

    assert slower.best.gpu_count == 1
    assert faster.best.gpu_count > 1
