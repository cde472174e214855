"""``capplan fleet``: plans in, nodes and a bill out; what cannot be, refused."""

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import capplan
from capplan.bounds.certificate import seal
from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report.received.planned_llms import planned_llms
from tests.documents import plan_json

ENGINE = {"latency_ms": "60,0.3,0,2,0.0005", "kv_blocks": 120}
ASKED = {"slo": "ttft=10s,tpot=90ms", "gpu": "H100-SXM", "as_of": "2026-11-24"}
BOUGHT = {"nodes": "p5.48xlarge"}
HEAD = "arrival_s,prompt_tokens,output_tokens\n"


def two_days(path: Path, busy_hours: range) -> None:
    """Write requests of two days, four times as many in some hours of each."""
    rng = np.random.default_rng(busy_hours.start)
    starts = [
        3600 * hour + second
        for hour in range(48)
        for second in range(0, 3600, 15 if hour % 24 in busy_hours else 60)
    ]
    lengths = rng.integers(100, 200, len(starts))
    rows = [f"{at},{n},100\n" for at, n in zip(starts, lengths, strict=True)]
    path.write_text(HEAD + "".join(rows))


def write_plan(folder: Path, **given) -> Path:
    folder.mkdir(exist_ok=True)
    made = plan(PlanSettings(**{**ENGINE, **ASKED, **BOUGHT, **given}))
    path = folder / "plan.json"
    path.write_text(plan_json(made))
    return path


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """A chat by day, a batch by night, and one at a rate."""
    folder = tmp_path_factory.mktemp("fleet")
    for name, hours in (("day", range(8, 20)), ("night", range(0, 6))):
        (folder / name).mkdir()
        two_days(folder / name / f"{name}.csv", hours)
    drawn = {"workload": "synthetic:prompt=150,output=100,n=500", "rate": 1.0}
    return {
        "day": write_plan(
            folder / "day", trace=folder / "day/day.csv", llm="Llama-3.1-8B", tp=4
        ),
        "night": write_plan(
            folder / "night", trace=folder / "night/night.csv", llm="Qwen3-32B", tp=8
        ),
        "drawn": write_plan(folder / "drawn", **drawn, llm="gpt-oss-20b", tp=1),
    }


def test_the_plans_have_replicas_to_share(plans):
    found = {llm.name: llm for llm in planned_llms(list(plans.values()))}

    assert [llm.pools[0].tp for llm in found.values()] == [4, 8, 1]
    assert found["gpt-oss-20b"].replica_count > 1
    assert found["Llama-3.1-8B"].curve is not None
    assert len(found["Qwen3-32B"].curve.peak_per_s) == 48
    assert found["gpt-oss-20b"].curve is None
    assert "one --rate" in found["gpt-oss-20b"].why_constant


def test_files_of_a_fleet_agree_and_the_lines_add_up(plans, tmp_path, capsys):
    code = exit_code(["fleet", *map(str, plans.values()), "--out", str(tmp_path)])

    document = json.loads((tmp_path / "fleet.json").read_text())
    with (tmp_path / "fleet.csv").open() as file:
        rows = list(csv.DictReader(file))
    printed = capsys.readouterr().out
    assert code == 0
    assert document["schema"] == "capplan.fleet/1"
    assert f"joint peak {document['joint_peak_nodes']}" in printed
    total = sum(Fraction(row["usd_per_month"]) for row in rows)
    assert total == Fraction(str(document["usd_per_month_with_spares"]))
    idle = [row for row in rows if row["who"] == "idle"]
    assert Fraction(idle[0]["usd_per_month"]) == Fraction(
        str(document["idle_usd_per_month"])
    )
    nodes = document["joint_peak_nodes"] + document["spare_nodes"]
    assert float(total) == pytest.approx(nodes * 55.04 * 730, abs=0.01)
    (pool,) = document["pools"]
    assert max(pool["nodes_by_hour"]) == pool["joint_peak_nodes"]
    with (tmp_path / "hours.csv").open() as file:
        hours = list(csv.DictReader(file))
    assert len(hours) == 48 * 3
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "joint peak" in page


def test_the_trace_of_each_plan_is_found_beside_it(plans, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    document = json.loads(plans["day"].read_text())
    trace = Path(document["settings"]["trace"])
    document["settings"]["trace"] = str(tmp_path / "gone" / trace.name)
    (moved / "plan.json").write_text(json.dumps(seal(document)))

    (gone,) = planned_llms([moved])
    (moved / trace.name).write_bytes(trace.read_bytes())
    (found,) = planned_llms([moved])
    (moved / trace.name).rename(tmp_path / "elsewhere.csv")
    (named,) = planned_llms([moved], [str(tmp_path / "elsewhere.csv")])

    assert gone.curve is None
    assert (named.curve.peak_per_s == found.curve.peak_per_s).all()
    assert "'day.csv' does not lie beside it" in gone.why_constant
    assert len(found.curve.peak_per_s) == 48


def test_a_trace_that_changed_is_refused(plans, tmp_path):
    document = json.loads(plans["day"].read_text())
    two_days(tmp_path / "day.csv", range(8, 21))
    document["settings"]["trace"] = str(tmp_path / "day.csv")
    (tmp_path / "plan.json").write_text(json.dumps(seal(document)))

    with pytest.raises(InputError, match="another SHA-256 than it states"):
        planned_llms([tmp_path])
    with pytest.raises(InputError, match=r"day\.csv: no plan states its SHA-256"):
        planned_llms([plans["day"]], [str(tmp_path / "day.csv")])


@pytest.mark.parametrize(
    ("where", "value", "why"),
    [
        (("asked_by",), "9 users", "its users ask when they are answered"),
        (("settings", "arrivals"), "poisson", "its arrivals are drawn at one rate"),
        (("settings", "rate"), 1.0, "its plan has one --rate"),
    ],
)
def test_plans_without_hours_say_why(plans, tmp_path, changed, where, value, why):
    document = json.loads(plans["day"].read_text())
    (tmp_path / "plan.json").write_text(
        json.dumps(seal(changed(document, where, value)))
    )

    (found,) = planned_llms([tmp_path])

    assert found.curve is None
    assert found.why_constant.startswith(why)


def test_a_trace_of_less_than_a_day_shows_no_hours(tmp_path):
    rows = [f"{10 * k},150,100\n" for k in range(400)]
    trace = tmp_path / "short" / "short.csv"
    trace.parent.mkdir()
    trace.write_text(HEAD + "".join(rows))
    given = {"trace": trace, "llm": "Llama-3.1-8B", "tp": 4}

    (found,) = planned_llms([write_plan(tmp_path / "short", **given)])

    assert found.curve is None
    assert found.why_constant == "its requests arrive within 66.5 min, less than a day"


def test_llms_of_one_name_are_told_apart_by_their_folders(plans, tmp_path):
    again = write_plan(
        tmp_path / "second",
        workload="synthetic:prompt=150,output=100,n=500",
        rate=0.5,
        llm="gpt-oss-20b",
        tp=1,
    )

    names = [llm.name for llm in planned_llms([plans["drawn"], again])]

    assert names == ["gpt-oss-20b drawn", "gpt-oss-20b second"]


def one_line(capsys, *given) -> str:
    """Run a fleet that is refused; return its only line."""
    assert exit_code(["fleet", *map(str, given)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_same_plan_twice_is_refused(plans, tmp_path, capsys):
    copy = tmp_path / "plan.json"
    copy.write_bytes(plans["day"].read_bytes())

    assert "is given twice" in one_line(capsys, plans["day"], plans["day"].parent)
    assert f"is the same plan as {plans['day']}" in one_line(capsys, plans["day"], copy)


def test_plans_without_an_answer_or_of_another_schema_are_refused(
    plans, tmp_path, capsys
):
    never = write_plan(
        tmp_path / "never",
        trace=plans["day"].parent / "day.csv",
        llm="Llama-3.1-8B",
        tp=4,
        slo="ttft=1ms",
    )
    document = json.loads(plans["day"].read_text())
    older = tmp_path / "older.json"
    older.write_text(json.dumps({**document, "schema": "capplan.plan/1"}))

    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(seal({**document, "interrupted": True})))

    assert "no feasible candidate" in one_line(capsys, plans["night"], never)
    assert "was interrupted; plan again" in one_line(capsys, broken)
    assert "this release reads 'capplan.plan/2'" in one_line(capsys, older)
    assert "no such file" in one_line(capsys, tmp_path / "none.json")


def test_a_plan_that_was_changed_is_refused(plans, tmp_path, capsys):
    document = json.loads(plans["day"].read_text())
    document["best"]["price"]["usd_per_gpu_h"] = 0.01
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))

    assert "its digest does not match" in one_line(capsys, path)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("price", "usd_per_gpu_h"), -1.0),
        (("price", "usd_per_gpu_h"), "6.88"),
        (("price", "usd_per_gpu_h"), True),
        (("price", "usd_per_gpu_h"), None),
        (("price", "usd_per_gpu_h"), 1e300),
        (("price", "gpus_per_node"), 0),
        (("price", "gpus_per_node"), 8.5),
        (("price", "gpus_per_node"), 10**9),
        (("price", "provider"), ["AWS"]),
        (("price",), "free"),
        (("price",), []),
        (("gpu",), 8),
        (("replica_count",), 0),
        (("replica_count",), 10**9),
        (("tp",), "4"),
        (("pools",), [{}]),
        (("pools",), "two"),
    ],
)
def test_a_forged_plan_that_was_sealed_again_is_refused_in_one_line(
    plans, tmp_path, capsys, changed, where, value
):
    document = json.loads(plans["day"].read_text())
    forged = changed(document, ("best", *where), value)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(seal(forged)))

    line = one_line(capsys, path)

    assert line.startswith(f"capplan: error: {path}: ")


def test_nothing_is_written_for_plans_that_are_refused(plans, tmp_path, capsys):
    out = tmp_path / "out"

    one_line(capsys, plans["day"], tmp_path / "none.json", "--out", out)

    assert not list(tmp_path.rglob("fleet.json"))


def test_a_document_alone_goes_to_standard_output(plans, capsys):
    code = exit_code(["fleet", str(plans["day"]), "--json"])

    assert code == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "capplan.fleet/1"


def test_python_gives_the_fleet_of_the_command_and_shows_it(plans, tmp_path):
    fleet = capplan.share_nodes(plans["day"], str(plans["drawn"]), repair="24h")

    rows = fleet.to_pandas()
    fleet.save(tmp_path / "out")
    assert "joint peak" in repr(fleet)
    assert rows["usd_per_month"].sum() == pytest.approx(fleet.usd_with_spares)
    assert (tmp_path / "out" / "fleet.json").exists()


def test_none_and_one_plan_are_fleets_or_refused(plans, capsys):
    assert "Missing argument 'PLAN...'" in one_line(capsys)

    assert capplan.share_nodes(plans["day"]).separate >= 1
    with pytest.raises(InputError, match="no plan"):
        capplan.share_nodes()
