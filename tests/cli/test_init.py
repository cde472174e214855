"""``capplan init`` writes a scenario that ``capplan plan`` takes."""

import re

import pytest
import yaml

from capplan.cli.main import exit_code
from capplan.cli.scenario import read_scenario
from capplan.planning.settings.plan import PlanSettings

TIMES = "arrival_s,prompt_tokens,output_tokens\n0,100,20\n1,200,30\n"
NO_TIMES = "prompt_tokens,output_tokens\n100,20\n200,30\n"


@pytest.fixture
def init(tmp_path, monkeypatch, capsys):
    """Run ``capplan init`` in a folder of its own; return code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_text(TIMES)
    (tmp_path / "lengths.csv").write_text(NO_TIMES)

    def run(
        path="s.yaml", *more, llm="Llama-3.1-8B", traffic="20", slo="ttft=1s,tpot=30ms"
    ):
        flags = ["--llm", llm, "--traffic", traffic, "--slo", slo, *more]
        code = exit_code(["init", path, *flags])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("traffic", "expected"),
    [
        ("20", {"workload": "sharegpt", "rate": 20}),
        ("0.5", {"workload": "sharegpt", "rate": 0.5}),
        ("own.csv", {"trace": "own.csv"}),
        ("own.csv@3", {"trace": "own.csv", "rate": 3}),
        ("lengths.csv@3", {"trace": "lengths.csv", "rate": 3}),
        ("azure-conv-like", {"workload": "azure-conv-like"}),
        ("sharegpt@7.5", {"workload": "sharegpt", "rate": 7.5}),
    ],
)
def test_the_answers_are_settings_that_plan_takes(init, tmp_path, traffic, expected):
    code, _, said = init(traffic=traffic)

    found = yaml.safe_load((tmp_path / "s.yaml").read_text())
    limits = {"ttft": "1s", "tpot": "30ms"}
    assert code == 0, said
    assert found == {"llm": "Llama-3.1-8B", "slo": limits} | expected
    assert read_scenario(PlanSettings, tmp_path / "s.yaml")


def test_every_line_left_at_its_default_is_a_setting_once_uncommented(init, tmp_path):
    init(traffic="own.csv")
    path = tmp_path / "s.yaml"

    bare = re.sub(r"^# (?=[a-z_]+: )", "", path.read_text(), flags=re.M)
    path.write_text(bare)

    settings = read_scenario(PlanSettings, path)
    assert {"attainment", "gpu", "tp", "price", "router", "seed", "rate"} <= set(
        settings
    )


def test_a_trace_is_named_from_the_folder_of_the_scenario(init, tmp_path):
    (tmp_path / "plans").mkdir()

    init("plans/s.yaml", traffic="own.csv")

    settings = read_scenario(PlanSettings, tmp_path / "plans" / "s.yaml")
    assert yaml.safe_load((tmp_path / "plans/s.yaml").read_text())["trace"] == (
        "../own.csv"
    )
    assert (tmp_path / settings["trace"]).resolve() == tmp_path / "own.csv"


def test_limits_of_classes_are_kept(init, tmp_path):
    code, _, said = init(slo="chat:ttft=1s")

    assert code == 0, said
    assert read_scenario(PlanSettings, tmp_path / "s.yaml")["slo"]


def test_a_file_that_exists_is_kept(init, tmp_path):
    (tmp_path / "s.yaml").write_text("mine")

    code, _, said = init()

    assert code == 2
    assert "s.yaml: exists and is kept" in said
    assert (tmp_path / "s.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"llm": "nobody"}, "unknown LLM 'nobody'"),
        ({"traffic": "none.csv"}, "traffic is 'none.csv'; expected requests a second"),
        ({"traffic": "-3"}, "rate is -3.0; expected greater than 0"),
        ({"traffic": "nan"}, "rate is nan"),
        ({"traffic": "lengths.csv"}, "no arrival times"),
        ({"traffic": "sharegpt"}, "here FILE@RATE"),
        ({"slo": "ttft"}, "slo: "),
        ({"slo": ""}, "slo"),
        ({"llm": 'x"\n: {'}, "unknown LLM"),
    ],
)
def test_a_wrong_answer_is_refused_and_nothing_written(init, tmp_path, wrong, expected):
    code, _, said = init(**wrong)

    assert code == 2
    assert expected.lower() in said.lower()
    assert not (tmp_path / "s.yaml").exists()


def test_without_a_terminal_the_missing_flags_are_named(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code = exit_code(["init", "--llm", "Llama-3.1-8B"])

    assert code == 2
    assert "give --traffic, --slo" in capsys.readouterr().err


def test_on_a_terminal_three_questions_are_asked(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "typer.prompt", lambda text, **how: asked.append(text) or how["default"]
    )

    code = exit_code(["init"])

    assert code == 0, capsys.readouterr().err
    assert len(asked) == 3
    assert read_scenario(PlanSettings, tmp_path / "capplan.yaml")["rate"] == 20


def test_the_columns_that_its_own_error_recommends_can_be_given(init, tmp_path):
    (tmp_path / "log.csv").write_text(
        "when,prompt_tokens,output_tokens\n0,9,5\n1,9,5\n"
    )

    refused = init(traffic="log.csv")
    code, _, said = init("s.yaml", "--columns", "arrival_s=when", traffic="log.csv")

    assert refused[0] == 2
    assert "as in --columns arrival_s=when" in refused[2]
    assert code == 0, said
    found = read_scenario(PlanSettings, tmp_path / "s.yaml")
    assert found["columns"] == {"arrival_s": "when"}
    assert "rate" not in found


def test_columns_that_a_trace_lacks_are_refused(init, tmp_path):
    code, _, said = init("s.yaml", "--columns", "arrival_s=none", traffic="own.csv")

    assert code == 2
    assert "none" in said
    assert not (tmp_path / "s.yaml").exists()
