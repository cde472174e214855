"""``capplan diff`` on files: exit codes, formats, and files that are no plans."""

import csv
import io
import json
import subprocess
import sys

import pytest

from capplan.cli.main import exit_code
from tests.report.test_plan_diff import document, priced


@pytest.fixture
def plans(tmp_path):
    """An old plan in a folder and a new one that costs 50 % more."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "plan.json").write_text(json.dumps(document(priced())))
    new = document(priced(replicas=5), settings={"rate": 83.0})
    (tmp_path / "new.json").write_text(json.dumps(new))
    return str(tmp_path / "old"), str(tmp_path / "new.json")


def test_a_change_is_said_and_exits_0(plans, capsys):
    code = exit_code(["diff", *plans, "--format", "terminal"])

    shown = capsys.readouterr().out
    assert code == 0
    assert shown.startswith("Monthly cost +$40,179.20 (+50.0 %) ↑")
    assert "nodes (8 GPUs)" in shown


def test_a_fall_is_said_with_its_sign(plans, capsys):
    code = exit_code(["diff", *reversed(plans), "--fail-above", "0%"])

    assert code == 0
    assert "−$40,179.20 (−33.3 %) ↓" in capsys.readouterr().out


@pytest.mark.parametrize(("limit", "expected"), [("49.9%", 4), ("50%", 0)])
def test_a_rise_above_the_limit_exits_4(plans, limit, expected, capsys):
    code = exit_code(["diff", *plans, "--fail-above", limit])

    assert code == expected
    assert ("--fail-above" in capsys.readouterr().err) is (expected == 4)


def test_a_plan_against_itself_exits_0(plans, capsys):
    code = exit_code(["diff", plans[0], plans[0], "--fail-above", "0%"])

    assert code == 0
    assert capsys.readouterr().out.startswith("Nothing changed")


def test_json_and_markdown_are_printed_alone(plans, capsys):
    exit_code(["diff", *plans, "--format", "json"])
    values = json.loads(capsys.readouterr().out)
    exit_code(["diff", *plans, "--format", "md"])
    text = capsys.readouterr().out

    assert values["usd_per_month_change"] == 40179.2
    assert text.startswith("# Monthly cost +$40,179.20")
    assert "<details><summary>" in text


def test_csv_has_a_row_per_configuration(plans, capsys):
    exit_code(["diff", *plans, "--format", "csv"])

    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["old_gpu_count"], row["new_gpu_count"]) == ("16", "20")
    assert row["new_usd_per_month"] == "120537.6"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"schema": "capplan.plan/1"}', "this release reads 'capplan.plan/2'"),
        ("[]", "expected a JSON object, a plan that capplan wrote"),
        ("{", "plan.json"),
        (json.dumps(document(priced(gpu=3))), "best.gpu is '3'; expected a text"),
        (json.dumps(document(candidates=5)), "candidates is '5'; expected a list"),
    ],
)
def test_what_is_no_plan_is_refused_in_one_line(plans, tmp_path, content, said, capsys):
    path = tmp_path / "bad" / "plan.json"
    path.parent.mkdir()
    path.write_text(content)

    code = exit_code(["diff", plans[0], str(path.parent)])

    error = capsys.readouterr().err
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_an_unknown_format_and_limit_are_refused(plans, capsys):
    codes = [
        exit_code(["diff", *plans, "--format", "jsn"]),
        exit_code(["diff", *plans, "--fail-above", "10"]),
    ]

    error = capsys.readouterr().err
    assert codes == [2, 2]
    assert "--format is 'jsn'; expected json, md, csv" in error
    assert "expected a percentage such as 10%" in error


def test_plans_are_compared_without_importing_the_simulator(plans):
    script = (
        "import sys; from capplan.cli.main import exit_code; "
        f"exit_code(['diff', *{plans!r}]); print('numba' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "False"
