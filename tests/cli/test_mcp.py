"""The questions as tools of an assistant, through the SDK's own client."""

import json
import sys
from functools import partial

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from capplan.cli.main import exit_code
from capplan.cli.mcp import server
from capplan.cli.tools import ASKED, Tools, schemas
from capplan.errors import CapplanError
from capplan.planning.evaluate.inputs import unseen
from capplan.report.questions import QUESTIONS

SMALL = {
    "workload": "synthetic:prompt=200,output=50,n=300",
    "rate": 2,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=1s,tpot=30ms",
}
FLAGS = [f"--{name}={value}" for name, value in SMALL.items()]
OTHERS = (
    None,
    True,
    -1,
    3,
    1e308,
    "",
    "x",
    "/",
    "a=b",
    [],
    ["x"],
    {},
    {"x": 1},
    [None],
)


def asked(tools, *calls, progress=None):
    """Return the results of calls of one client, (is an error, text) each."""

    async def ask():
        async with Client(server(tools)) as client:
            return [
                await client.call_tool(name, given, progress_callback=progress)
                for name, given in calls
            ]

    return [(row.is_error, row.content[0].text) for row in anyio.run(ask)]


def called(tools, name, **given):
    return tools.call(name, given, unseen, lambda: False)


def test_every_tool_has_a_schema_of_settings_that_it_takes():
    async def listed():
        async with Client(server(Tools())) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(listed)}

    assert list(tools) == [*ASKED, "explain", "settings"]
    for name in ASKED:
        properties = tools[name].input_schema["properties"]
        fields = QUESTIONS[name].model.model_fields
        assert set(properties) - {*fields} == {"scenario", "format"}
        assert "slo" in properties
        assert not {"out", "executor"} & {*properties}


@pytest.mark.thorough
def test_a_plan_is_that_of_the_command_and_is_explained(capsys):
    exit_code(["plan", *FLAGS, "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    exit_code(["plan", *FLAGS, "--format", "title"])
    title = capsys.readouterr().out
    exit_code(["plan", *FLAGS, "--explain", "count"])
    explained = capsys.readouterr().out
    steps = []

    async def progress(share, total, step):
        steps.append(step)

    screen, count, whole = asked(
        Tools(),
        ("plan", SMALL),
        ("explain", {"topic": "count"}),
        ("plan", {**SMALL, "format": "json"}),
        progress=progress,
    )

    assert not any(row[0] for row in (screen, count, whole))
    assert screen[1].splitlines()[0] == title.strip()
    assert screen[1].endswith("answer: plan-1")
    assert count[1].split() == explained.split()
    told = json.loads(whole[1])
    assert told["best"] == document["best"]
    assert told["settings"] == document["settings"]
    assert any(step.startswith("simulating H100-SXM") for step in steps)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "more", "start"),
    [
        ("what-if", {"vary": {"rate": "x1,x2"}}, "$"),
        ("capacity", {"rate": None, "replicas": 1}, "1 H100-SXM GPU carries"),
    ],
)
def test_other_questions_are_answered_too(name, more, start):
    given = {key: each for key, each in {**SMALL, **more}.items() if each is not None}

    ((is_error, text),) = asked(Tools(), (name, given))

    assert not is_error, text
    assert text.startswith(start)


def test_what_is_wrong_is_one_line():
    calls = [
        ("plan", {"llm": "nix"}),
        ("plan", {**SMALL, "out": "here"}),
        ("plan", {**SMALL, "format": "pdf"}),
        ("plan", {**SMALL, "scenario": "none.yaml"}),
        ("plan", {**SMALL, "scenario": 3}),
        ("plan", {**SMALL, "rates": 3}),
        ("explain", {}),
        ("explain", {"topics": "count"}),
        ("settings", {"tool": "verify"}),
        ("plans", {}),
        ("backtest", {}),
    ]

    for is_error, text in asked(Tools(), *calls):
        assert is_error
        assert len(text.splitlines()) == 1


def test_settings_that_a_schema_leaves_out_are_described():
    text = called(Tools(), "settings", word="spot")

    assert "kind:" in text
    assert "out:" not in called(Tools(), "settings")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ASKED)
def test_values_of_any_type_are_refused_in_one_line(name):
    """Without limits, so that nothing is planned."""
    for key in schemas()[name][1]["properties"]:
        for value in OTHERS:
            given = {"llm": "Llama-3.1-8B", "workload": "sharegpt", key: value}
            if key == "slo" and isinstance(value, str):
                continue
            with pytest.raises((CapplanError, OSError)) as caught:
                called(Tools(), name, **given)
            assert str(caught.value).strip()


def test_no_python_file_is_executed_without_trust(tmp_path):
    mark = tmp_path / "executed"
    own = tmp_path / "own.py"
    own.write_text(f"open({str(mark)!r}, 'w')\n")
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("scheduler: ./own.py\n")

    for name, given in (
        ("plan", {"scheduler": str(own)}),
        ("plan", {"scenario": str(scenario)}),
        ("what-if", {"vary": {"scheduler": f"vllm-v1,{own}"}}),
    ):
        with pytest.raises(CapplanError, match="--trust"):
            called(Tools(), name, **{**SMALL, **given})

    assert not mark.exists()


@pytest.mark.thorough
def test_files_go_below_the_servers_folder_alone(tmp_path):
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(f"out: {tmp_path}/elsewhere\n")

    text = called(Tools(tmp_path / "out"), "plan", **SMALL, scenario=str(scenario))

    assert "out has no effect" in text
    assert (tmp_path / "out" / "plan-1" / "plan.json").is_file()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.thorough
def test_the_command_serves_over_standard_input_and_output():
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "capplan", "mcp"]
    )

    async def ask():
        async with Client(command) as client:
            return await client.call_tool("settings", {"word": "tokenizer"})

    found = anyio.run(partial(ask))

    assert not found.is_error
    assert "tokenizer" in found.content[0].text
