"""``--format``, ``--json`` and ``--quiet`` of every command."""

import csv
import io
import json

import pytest

from capplan.cli.answer import FORMATS
from capplan.cli.commands import COMMANDS
from capplan.cli.main import exit_code

SEARCH = "search --workload sharegpt --llm Llama-3.1-8B --gpu H100-SXM --slo tpot=30ms"
PLAN = (
    "plan --workload synthetic:prompt=200,output=20,n=2000 --rate 20 --gpu H100-SXM "
    "--llm Llama-3.1-8B --tp 1 --price H100-SXM=2.5 --latency-ms 10,0.05,0,0.1,0.0001 "
    "--kv-blocks 2000 --max-num-seqs 64 --slo ttft=1s,tpot=30ms"
)
LINES = {
    "plan": PLAN,
    "search": SEARCH,
    "list": "list gpus",
    "profiles list": "profiles list --gpu H100 --llm Llama-3.1-8B",
    "profiles show": "profiles show H100/Llama-3.1-8B/1",
    "profiles compare": "profiles compare H100/Llama-3.1-8B/1 H200/Llama-3.1-8B/1",
}


@pytest.fixture
def run(capsys):
    """Run a command line; return exit code, stdout, stderr."""

    def command(line):
        code = exit_code(line.split())
        return code, *capsys.readouterr()

    return command


def test_every_command_has_the_three_flags(run):
    groups = {
        "profiles": ("list", "show", "compare", "validate"),
        "trace": ("describe", "cut", "scale", "mix"),
    }
    lines = [name for name in COMMANDS if name not in groups]
    lines += [f"{group} {name}" for group, names in groups.items() for name in names]
    for line in lines:
        code, shown, _ = run(f"{line} --help-all")

        assert code == 0
        for flag in ("--format FORM", "--json", "-q, --quiet"):
            assert flag in shown, line


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_standard_output_is_the_document_and_nothing_else(run, line):
    code, as_json, _ = run(f"{line} --json")
    _, as_csv, _ = run(f"{line} --format csv")
    _, as_md, _ = run(f"{line} --format md")

    assert code == 0
    assert json.loads(as_json)
    rows = list(csv.reader(io.StringIO(as_csv)))
    assert len(rows) > 1
    assert {len(row) for row in rows} == {len(rows[0])}
    assert as_md.startswith("# ")
    assert "The same numbers" not in as_md  # no file is beside it


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_quiet_prints_nothing_where_all_is_well(run, line):
    code, shown, said = run(f"{line} --quiet")

    assert code == 0
    assert shown == ""
    assert "written" not in said
    assert "compiling" not in said


def test_quiet_leaves_the_document_the_files_and_the_exit_code(run, tmp_path):
    code, shown, said = run(f"{SEARCH} -q --json --out {tmp_path}")

    assert code == 0
    assert said == ""
    assert json.loads(shown) == json.loads((tmp_path / "search.json").read_text())


def test_with_a_document_the_files_written_are_named_on_standard_error(run, tmp_path):
    _, shown, said = run(f"{SEARCH} --json --out {tmp_path}")

    assert "written" not in shown
    assert f"written: {tmp_path / 'search.json'}" in said


def test_the_document_of_a_plan_is_its_file(run, tmp_path):
    _, shown, _ = run(f"{PLAN} --json --out {tmp_path}")

    assert json.loads(shown) == json.loads((tmp_path / "plan.json").read_text())


def test_an_infeasible_plan_is_a_document_and_exit_3(run):
    code, shown, _ = run(f"{PLAN.replace('tpot=30ms', 'tpot=5ms')} --json")

    assert code == 3
    assert json.loads(shown)["status"] == "infeasible"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--format xml", "--format is 'xml'; expected json, md, csv"),
        ("--format csv --json", "--json and --format csv are both given"),
    ],
)
def test_a_wrong_format_is_refused_before_the_work(run, flags, expected):
    code, shown, said = run(f"{PLAN} {flags}")

    assert code == 2
    assert shown == ""
    assert expected in said


def test_a_mistake_leaves_standard_output_empty(run):
    code, shown, said = run("search --llm nobody --json")

    assert code == 2
    assert shown == ""
    assert said.startswith("capplan: error: ")


def test_quiet_keeps_errors_and_warnings(run, tmp_path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text("llm: Llama-3.1-8B\nworkload: sharegpt\nrate: 3\n")

    _, _, said = run(f"search {scenario} --gpu H100 --slo tpot=30ms --quiet")

    assert "rate has no effect on this command" in said


def test_the_formats_are_those_of_the_help():
    assert FORMATS == ("json", "md", "csv", "title")


def test_a_verified_and_a_refused_plan_are_documents_too(run, tmp_path):
    run(f"{PLAN} -q --out {tmp_path}")
    path = tmp_path / "plan.json"

    verified, shown, _ = run(f"verify {path} --json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"seed": document["seed"] + 1}))
    refused, reasons, said = run(f"verify {path} --no-simulate --json")
    silent = run(f"verify {path} --no-simulate --quiet")

    assert verified == 0
    assert json.loads(shown)["verdict"] == "verified"
    assert "replicas 1, at least 1" in json.loads(shown)["claim"]
    assert refused == silent[0] == 1
    assert json.loads(reasons)["verdict"] == "refused"
    assert json.loads(reasons)["reasons"]
    assert said.startswith(f"{path}: refused: ")
    assert silent[1] == ""


def test_a_forged_plan_without_a_certificate_is_refused_and_not_a_fault(run, tmp_path):
    run(f"{PLAN} -q --out {tmp_path}")
    path = tmp_path / "plan.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"certificate": {"pools": [{}]}}))

    code, _, said = run(f"verify {path} --no-simulate --json")

    assert code in (1, 2), said
    assert "unforeseen" not in said
