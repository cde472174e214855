"""``capplan budget`` from a plan.json, from a scenario, and what it refuses."""

import json

import pytest

from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.planning.budget.settings import BudgetSettings
from capplan.report.received.planned_settings import planned_settings

SERVED = ["--workload", "synthetic:prompt=300,output=80,n=300", "--rate", "40"]
SERVED += ["--llm", "Llama-3.1-8B", "--gpu", "H100-SXM", "--tp", "1"]
SERVED += ["--slo", "ttft=1s,tpot=30ms", "--price", "H100-SXM=2"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A plan of one GPU."""
    folder = tmp_path_factory.mktemp("plan")
    assert exit_code(["plan", *SERVED, "--out", str(folder)]) == 0
    return folder / "plan.json"


@pytest.mark.thorough
def test_a_plan_becomes_a_budget(plan, tmp_path, capsys):
    out = tmp_path / "out"

    code = exit_code(["budget", str(plan), "--months", "12", "--out", str(out)])

    document = json.loads((out / "budget.json").read_text())
    assert code == 0
    assert "at the peak of a typical week*" in capsys.readouterr().out.splitlines()[1]
    assert len(document["months"]) == 12
    assert document["gpu"] == "H100-SXM"
    assert document["settings"]["rate"] == 40
    # A flat year at one node: the first month is what the plan costs by the hour.
    assert (
        document["months"][0]["nodes"]
        == json.loads(plan.read_text())["best"]["gpu_count"]
    )


@pytest.mark.thorough
def test_a_scenario_and_its_flags_make_the_same_budget(plan, tmp_path):
    scenario = tmp_path / "budget.yaml"
    scenario.write_text(
        "workload: synthetic:prompt=300,output=80,n=300\n"
        "rate: 40\nllm: Llama-3.1-8B\ngpu: H100-SXM\ntp: 1\n"
        "slo: ttft=1s,tpot=30ms\nprice: {H100-SXM: 2}\n"
        "horizon_months: 2\ngrowth: {users: 3%/month}\n"
        "owned: {capex: 300000, life: 5}\n"
    )
    one, two = tmp_path / "one", tmp_path / "two"

    exit_code(["budget", str(scenario), "--out", str(one)])
    flags = ["--growth", "users=3%/month", "--owned", "capex=300000,life=5"]
    exit_code(["budget", str(plan), "--months", "2", *flags, "--out", str(two)])

    first, second = (
        json.loads((folder / "budget.json").read_text()) for folder in (one, two)
    )
    assert first["months"] == second["months"]
    assert first["ways"] == second["ways"]


@pytest.mark.thorough
def test_too_small_quotas_exit_with_three(capsys):
    flags = ["--months", "1", "--commit", "none", "--quota", "on-demand=0"]

    code = exit_code(["budget", *SERVED, *flags, "--anchor-months", "1"])

    assert code == 3
    assert "month 1 needs 1 node at its peak" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.thorough
def test_a_changed_plan_is_refused(plan, tmp_path):
    document = json.loads(plan.read_text())
    forged = tmp_path / "forged.json"
    document["best"]["usd_per_month"] = 1.0
    forged.write_text(json.dumps(document))

    with pytest.raises(InputError, match="plan again"):
        planned_settings(forged, BudgetSettings)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"best": None}, "no feasible candidate"),
        ({"schema": "capplan.plan/1"}, "plan again"),
        ({"settings": 5}, "a plan that capplan wrote"),
    ],
)
def test_a_plan_of_another_kind_is_refused(plan, tmp_path, changes, part):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**json.loads(plan.read_text()), **changes}))

    with pytest.raises(InputError, match=part):
        planned_settings(other, BudgetSettings)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ("--growth 3%", "--growth: growth '3%'"),
        ("--growth -100%/month", "leaves no traffic"),
        ("--months 0", "--horizon-months"),
        ("--commit reserved:12=150%", "below 100 %"),
        ("--quota gpus=4", "committed, on-demand, spot"),
        ("--owned life=x", "expected a number"),
        ("--window 7m", "a part of an hour"),
        ("--grid nowhere", "grams of CO2e per kWh"),
        ("--contract 5", "NODES@USD_PER_NODE_HOUR:LAST_MONTH"),
    ],
)
def test_wrong_flags_are_one_line(flags, part, capsys):
    code = exit_code(["budget", *SERVED, *flags.split()])

    error = capsys.readouterr().err
    assert code == 2
    assert part in error
    assert error.count("\n") == 1


def test_a_missing_plan_is_one_line(capsys, tmp_path):
    code = exit_code(["budget", str(tmp_path / "none.json")])

    assert code == 2
    assert "none.json" in capsys.readouterr().err
