"""``capplan export``: files or text, warnings, exit codes."""

import csv
import io
import json

import pytest
import yaml

from capplan.cli.main import exit_code
from capplan.report.exports import TARGETS
from tests.report.exports.plans import one_pool, two_pools, written


@pytest.fixture
def export(tmp_path, capsys):
    """Export a plan on the command line; return exit code, output and errors."""

    def run(document, *arguments):
        path = tmp_path / "plan.json"
        if isinstance(document, str):
            path.write_text(document)
        elif document["certificate"] is None:
            path.write_text(json.dumps(document))
        else:
            written(document, tmp_path)
        code = exit_code(["export", str(path), *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.parametrize("target", TARGETS)
def test_files_are_written_and_named(target, export, tmp_path):
    out = tmp_path / "new" / "folder"

    code, said, _ = export(one_pool(), "--to", target, "--out", out)

    assert code == 0
    assert said.startswith("written: ")
    names = said.removeprefix("written: ").strip().split(", ")
    assert sorted(names) == sorted(map(str, out.iterdir()))


def test_without_a_folder_the_manifests_are_printed(export):
    code, printed, said = export(one_pool(), "--to", "k8s")

    kinds = [each["kind"] for each in yaml.safe_load_all(printed)]
    assert code == 0
    assert kinds == [
        "Deployment",
        "Service",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
    ]
    assert "prometheus_adapter.yaml is written with --out alone" in said


def test_what_the_target_cannot_express_is_a_warning_each(export):
    code, _, said = export(one_pool(), "--to", "compose")

    assert code == 0
    assert "warning: not in compose: the 3 replicas of the plan" in said
    assert "warning: not in compose: an autoscaler" in said


@pytest.mark.parametrize(
    ("document", "arguments", "said"),
    [
        (one_pool(), ["--to", "helm"], "--to helm: expected vllm, compose"),
        (one_pool(), ["--to", "k8s", "--image", "a b"], "--image a b: expected"),
        (one_pool(), ["--to", "k8s", "--checkpoint", "x"], "--checkpoint x: expected"),
        (one_pool(), ["--to", "k8s", "--cold-start", "-1s"], "expected a time >= 0"),
        (one_pool(), ["--to", "k8s", "--cold-start", "soon"], "soon"),
        (two_pools(), ["--to", "compose"], "compose has no proxy"),
        (one_pool() | {"schema": "capplan.plan/1"}, ["--to", "k8s"], "plan again"),
        (
            '{"schema": "capplan.autoscale/1"}',
            ["--to", "k8s"],
            "expected a JSON object",
        ),
        ("[]", ["--to", "k8s"], "expected a JSON object"),
        ("{", ["--to", "k8s"], "not JSON"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    document, arguments, said, export, tmp_path
):
    out = tmp_path / "out"

    code, printed, error = export(document, *arguments, "--out", out)

    assert (code, printed) == (2, "")
    assert error.startswith("capplan: error: ")
    assert error.count("\n") == 1
    assert said in error
    assert not out.exists() or not list(out.iterdir())


def test_an_infeasible_plan_has_no_deployment(export, tmp_path):
    plan = {"status": "infeasible", "infeasible_reason": "H100 × TP 1: too slow"}
    plan = one_pool() | plan | {"best": None, "certificate": None}

    code, printed, error = export(plan, "--to", "k8s", "--out", tmp_path / "out")

    assert (code, printed) == (3, "")
    assert error == f"{tmp_path}/plan.json: infeasible: H100 × TP 1: too slow\n"


def test_the_document_has_the_files_and_what_is_to_be_known(export):
    code, printed, _ = export(one_pool(), "--to", "k8s", "--json")

    document = json.loads(printed)
    assert code == 0
    assert list(document["files"]) == ["k8s.yaml", "prometheus_adapter.yaml"]
    assert "kind: Deployment" in document["files"]["k8s.yaml"]
    assert any("the plan's router jsq" in line for line in document["lacks"])
    assert any("planned on nodes of 8: Cloud HGX" in x for x in document["needs"])


def test_the_table_has_a_row_for_each_thing_to_be_known(export):
    _, printed, _ = export(one_pool(), "--to", "k8s", "--format", "csv")
    _, as_json, _ = export(one_pool(), "--to", "k8s", "--json")

    rows = list(csv.DictReader(io.StringIO(printed)))
    document = json.loads(as_json)
    for what in ("lacks", "needs", "unverified"):
        told = [row["text"] for row in rows if row["what"] == what]
        assert told == document[what]
        assert told


def test_quiet_writes_the_files_alone(export, tmp_path):
    code, printed, said = export(
        one_pool(), "--to", "ray", "--quiet", "--out", tmp_path / "out"
    )

    assert (code, printed) == (0, "")
    assert (tmp_path / "out" / "ray.yaml").exists()
    assert "written" not in said


def test_an_infeasible_plan_is_a_document_too(export):
    plan = {"status": "infeasible", "infeasible_reason": "too slow"}
    plan = one_pool() | plan | {"best": None, "certificate": None}

    code, printed, _ = export(plan, "--to", "k8s", "--json")

    document = json.loads(printed)
    assert code == 3
    assert (document["status"], document["files"]) == ("infeasible: too slow", {})


def test_a_file_that_is_not_there_is_one_line(capsys, tmp_path):
    code = exit_code(["export", str(tmp_path / "none.json"), "--to", "vllm"])

    assert code == 2
    assert "none.json: no such file" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_that_was_made_now_is_exported(target, small_plan, capsys, tmp_path):
    code = exit_code(
        ["export", str(small_plan), "--to", target, "--out", str(tmp_path)]
    )

    assert code == 0
    assert list(tmp_path.iterdir())


@pytest.mark.thorough
def test_a_plan_for_exports_is_verified(small_plan, capsys):
    document = json.loads(small_plan.read_text())

    code = exit_code(["verify", str(small_plan)])

    assert code == 0
    assert document["replica_load"]["in_flight"] > 0
    assert "every figure planned again" in capsys.readouterr().out


@pytest.fixture(scope="module")
def small_plan(tmp_path_factory):
    """A plan of one replica, as ``capplan plan`` writes it."""
    out = tmp_path_factory.mktemp("small")
    asked = "--workload synthetic:prompt=300,output=80,n=300 --rate 20 --gpu H100-SXM"
    asked += " --llm Llama-3.1-8B --tp 1 --slo ttft=1s,tpot=30ms --attainment 0.9"
    assert exit_code(["plan", *asked.split(), "--out", str(out)]) == 0
    return out / "plan.json"
