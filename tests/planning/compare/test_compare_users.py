"""Serving systems compared with users, who wait for their answers."""

import csv
import json
import re

import pytest

import capplan
from capplan.cli.main import exit_code
from capplan.planning.compare.compare import _curves, compare
from capplan.planning.compare.equal_hardware import Result
from capplan.planning.compare.requests import Requests
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.configure.configuration import configurations, runnable
from capplan.planning.evaluate.highest_rate import STEP
from capplan.planning.settings.plan import PlanSettings

THINK_S = 2.0
ASKED = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=2000",
    "users": 200,
    "think": "exp:2s",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=20ms",
    "attainment": 0.95,
    "price": "H100-SXM=2.5",
    "as_of": "2026-11-01",
}
SARATHI = {
    "scheduler": "sarathi",
    "max_num_batched_tokens": 512,
    "max_num_seqs": 128,
}


def requests():
    settings = PlanSettings(**ASKED)
    able = runnable(list(configurations(settings)))
    return Requests.of(settings, settings.objective(), able)


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def found():
    asked = {**ASKED, "systems": "sarathi,orca", "published": True}
    return compare(CompareSettings(**asked))


@pytest.mark.thorough
def test_the_price_is_that_of_a_plan_with_the_same_users(found):
    alone = capplan.plan(**ASKED, **SARATHI)

    sarathi = found.systems[0]
    assert sarathi.candidate.gpu_count == alone.best.gpu_count
    assert sarathi.candidate.cost.usd_per_h == alone.best.cost.usd_per_h


@pytest.mark.thorough
def test_the_point_on_equal_hardware_is_what_a_simulation_with_the_users_says(found):
    alone = capplan.simulate(**ASKED, **SARATHI, replicas=found.replica_count)

    served = found.systems[0].served
    assert served.users == 200
    assert served.rate_per_s == alone.simulation.totals.rate_per_s
    assert served.slo_attainment == alone.judgement.attainment.share
    assert served.goodput_per_s == alone.goodput_per_s
    assert served.latency_s == alone.judgement.percentiles


@pytest.mark.thorough
def test_users_are_the_rate_times_their_stay_and_think_time(found):
    points = [point for row in found.systems for point in (row.served, *row.curve)]

    for point in points:
        round_s = THINK_S + point.mean_s("e2e_s")  # Little's law of a closed loop
        assert point.users == pytest.approx(point.rate_per_s * round_s, rel=0.1)


@pytest.mark.thorough
def test_the_most_users_are_served_and_more_are_not(found):
    row = found.systems[0]
    asked = {**ASKED, **SARATHI, "replicas": found.replica_count}

    above = capplan.simulate(**{**asked, "users": round(row.max_users * STEP**3)})
    below = capplan.simulate(**{**asked, "users": round(row.max_users / STEP**3)})

    assert row.max_rate_per_s is None
    assert above.judgement.meets is False
    assert below.judgement.meets is True


@pytest.mark.thorough
def test_a_system_that_refuses_long_requests_counts_them_as_missed(found):
    orca = found.systems[1]

    assert orca.refused_share > 0
    assert orca.served.slo_attainment <= 1 - orca.refused_share


@pytest.mark.thorough
def test_the_files_name_users_and_no_rate_of_arrivals(tmp_path, capsys):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(json.dumps(ASKED), encoding="utf-8")
    out = tmp_path / "out"

    code = exit_code(
        ["compare", str(scenario), "--systems", "vllm-v1", "--out", str(out)]
    )

    shown = capsys.readouterr().out
    document = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    rows = list(csv.DictReader(lines(out / "compare.csv")))
    points = list(csv.DictReader(lines(out / "users.csv")))
    page = (out / "report.html").read_text(encoding="utf-8")
    system = document["systems"][0]
    assert code == 0
    assert "200 users" in shown
    assert re.search(r"carries \d+ users", shown)
    assert document["asked_by"] == "200 users, think time exp:2 s"
    assert int(rows[0]["max_users"]) == system["max_users"] > 0
    assert [int(row["users"]) for row in points] == document["users_of_curves"]
    assert document["rates_per_s"] == []
    assert not {"max_rate_per_s"} & {*rows[0], *system}
    assert not (out / "rates.csv").exists()
    for text in (shown, page):
        assert "max rate" not in text
        assert "Arrival" not in text
        assert "nan" not in text.lower().split()


def test_curves_of_users_are_of_whole_users_about_the_most():
    of = requests()
    three, many, none = (Result(None, most=most) for most in (3.0, 250.0, None))

    assert _curves([three, many, none], of) == [
        (2.0, 3.0, 4.0),
        (150.0, 200.0, 250.0, 300.0, 350.0),
        (2.0,),
    ]


def test_the_next_more_users_are_at_least_one_more():
    of = requests()

    assert [of.above(amount) for amount in (1.0, 20.0, 200.0)] == [2.0, 21.0, 206.0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--think", "2s", "--rate", "20"], "expected --users with it"),
        (["--users", "20", "--rate", "20"], "users and rate are both given"),
        (["--users", "20", "--arrivals", "poisson"], "users and arrivals are both"),
        (["--users", "20", "--rates", "10,20"], "users and rates are both given"),
        (["--users", "0"], "users is"),
    ],
)
def test_wrong_users_are_one_line(flags, message, capsys):
    given = {k: v for k, v in ASKED.items() if k not in ("price", "users", "think")}
    words = [w for k, v in given.items() for w in (f"--{k.replace('_', '-')}", str(v))]

    code = exit_code(["compare", *words, *flags])

    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
