"""``capplan backtest``: from metrics to a plan with what they say."""

import json

import pytest

from capplan.cli.main import exit_code

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")

FLEET = ("--llm", "Llama-3.1-8B", "--gpu", "H100-SXM", "--tp", "1")
SLOWER = "1.5[1.5,1.5]@Llama-3.1-8B/H100-SXM/tp1"
LENGTHS = "synthetic:prompt=300,output=lognormal(median=150,sigma=0.6),n=20000"


@pytest.fixture(scope="module")
def slower(tmp_path_factory):
    """Metrics of a fleet whose iterations take half as long again."""
    folder = tmp_path_factory.mktemp("slower")
    asked = ("simulate", *FLEET, "--workload", LENGTHS, "--rate", "24", "-q")
    assert not exit_code(
        [*asked, "--backtest", SLOWER, "--export-metrics", str(folder)]
    )
    return folder


@pytest.mark.thorough
def test_a_slower_fleet_is_outside_the_range_and_is_planned_with_its_times(
    slower, tmp_path, capsys
):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        f"llm: Llama-3.1-8B\ngpu: H100-SXM\ntp: 1\nworkload: {LENGTHS}\nrate: 60\n"
        "slo: ttft=1s,tpot=12ms\nprice_date: 2026-11-24\n"
    )
    asked = ("--metrics", str(slower), "--deployment", str(scenario))

    code = exit_code(["backtest", *asked, "--out", str(tmp_path)])

    told = json.loads((tmp_path / "backtest.json").read_text())
    assert code == 1
    assert told["schema"] == "capplan.backtest/1"
    assert told["phi"]["value"] == pytest.approx(1.5, abs=0.03)
    assert told["verdict"].startswith("This fleet's iterations take 1.50 × [1.4")
    assert told["verdict"] in " ".join(capsys.readouterr().out.split())
    found = [
        exit_code(["plan", str(scenario), *backtest, "--out", str(tmp_path / name)])
        for name, backtest in (
            ("after", ("--backtest", str(tmp_path))),
            ("slower", ("--backtest", SLOWER)),
        )
    ]
    plans = [
        json.loads((tmp_path / name / "plan.json").read_text())
        for name in ("after", "slower")
    ]
    assert found == [0, 0]
    counts = [plan["best"]["replica_count"] for plan in plans]
    assert counts[0] == pytest.approx(counts[1], abs=1)
    assert plans[0]["best"]["sureness"] == "measured"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((), "nothing measured"),
        (("--metrics", "nowhere"), "nowhere: no such file"),
        (("--requests", "nowhere"), "nowhere: no such file"),
    ],
)
def test_wrong_input_is_one_line(asked, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    code = exit_code(["backtest", *FLEET, *asked])

    told = capsys.readouterr().err.strip()
    assert code == 2
    assert message in told
    assert "\n" not in told
