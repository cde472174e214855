"""A received file opens none of this machine's files, and executes none of its own."""

import json
import os
import shutil
from pathlib import Path

import pytest

from capplan.bounds.certificate import seal
from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.plan.plan import plan
from capplan.planning.plan.result import NOT_IN_THE_RESULT
from capplan.planning.settings.place import PlaceSettings
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.what_if.settings import WhatIfSettings
from capplan.report.received.allowed import received
from capplan.setting_values import file_settings
from tests.documents import plan_json
from tests.report.watching import watched

SETTINGS = {
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=400ms,tpot=20ms",
    "price": "H100-SXM=2.79",
    "latency_ms": "9,0.04,0,0.08,0.00005",
    "kv_blocks": 1500,
    "attainment": 0.95,
}
HEAD = "arrival_s,prompt_tokens,output_tokens"
COMMANDS = (
    "verify FILE",
    "budget FILE --months 1",
    "what-if FILE --attainment 0.9",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A plan of a trace with times of its own, and the trace beside it."""
    folder = tmp_path_factory.mktemp("made")
    rows = [f"{k / 40:.3f},{50 + k % 97},{20 + k % 31}" for k in range(400)]
    (folder / "own.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    planned = plan(PlanSettings(**SETTINGS, trace=folder / "own.csv"))
    (folder / "plan.json").write_text(plan_json(planned))
    return folder


@pytest.fixture
def there(made, tmp_path, monkeypatch):
    """The plan as it was received, in a folder of its own where commands run."""
    folder = tmp_path / "received"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


def forge(folder, name="plan.json", **settings):
    """Change settings of a plan, and seal it again."""
    document = json.loads((folder / "plan.json").read_text())
    document["settings"] |= settings
    (folder / name).write_text(json.dumps(seal(document)))
    return folder / name


def answers(command, path, *flags):
    """Return the exit code of a command on a file."""
    return exit_code([*command.replace("FILE", str(path)).split(), *flags])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "scheduler",
    [["./x.py"], ["x.py"], "./x.py", "x.py:a=1", {"x.py": 1}, [["./x.py"]], 5, True],
)
def test_a_received_scheduler_is_not_executed_whatever_its_type(
    command, scheduler, there, capsys
):
    said = there / "said"
    for name in ("x.py", "['./x.py']", "['x.py']"):
        (there / name).parent.mkdir(exist_ok=True)
        (there / name).write_text(f"open({str(said)!r}, 'w')")
    path = forge(there, scheduler=scheduler)

    with watched(allowed=[path, there / "own.csv"]) as seen:
        code = answers(command, path)

    assert code == 2
    assert "scheduler" in capsys.readouterr().err
    assert not said.exists()
    assert seen == []


BAIT = {
    "trace": ["bait.csv", "../bait.csv", "/ABSOLUTE/bait.csv", "link.csv", "..", "/"],
    "workload": ["bait.csv", "../bait.csv", "/ABSOLUTE/bait.csv", "link.csv", "."],
    "tokenizer": ["bait.json", "/ABSOLUTE/bait.json", "."],
    "llm": ["bait.json", "../bait.json", "Qwen3-8B", "link", ".", "Llama-3.1-8B,bait"],
    "prices": ["bait.csv", "../bait.csv", "/ABSOLUTE/bait.csv", "link.csv"],
    "profiles": ["bait", "../bait", "/ABSOLUTE/bait", "links", "link", ".", ".."],
    "engine_overhead": ["bait.yaml", "../bait.yaml"],
    "gpu_file": ["bait.yaml", "../bait.yaml"],
    "scheduler": ["./bait.py", "/ABSOLUTE/bait.py"],
    "out": ["out", "../out"],
}
"""Files that a received plan may not have opened, by setting."""


@pytest.fixture
def bait(there):
    """Files of all kinds in the folder of the plan and above it."""
    for folder in (there, there.parent):
        for suffix in ("csv", "json", "yaml", "py"):
            (folder / f"bait.{suffix}").write_text(HEAD + "\n0,5,5\n")
        (folder / "bait").mkdir()
        (folder / "bait" / "tp1.yaml").write_text("schema: capplan.profile/1")
    (there / "Qwen3-8B").mkdir()
    (there / "Qwen3-8B" / "config.json").write_text("{}")
    (there / "links").mkdir()
    (there / "links" / "tp1.yaml").symlink_to(there / "bait" / "tp1.yaml")
    (there / "link.csv").symlink_to(there / "bait.csv")
    (there / "link").symlink_to(there / "Qwen3-8B")
    return there


@pytest.mark.parametrize("name", BAIT)
def test_no_file_that_a_received_one_names_is_opened(name, bait, capsys):
    for text in BAIT[name]:
        for command in COMMANDS:
            text = text.replace("/ABSOLUTE", str(bait.parent))
            path = forge(bait, "forged.json", **{name: text})

            with watched(allowed=[path, bait / "own.csv"]) as seen:
                code = answers(command, path)

            said = capsys.readouterr().err
            assert code == 2, (text, command, said)
            assert name in said
            # A trace or profiles beside the file are read for their digest alone.
            beside = {bait / Path(text).name}
            looked = {str(path) for path in beside if not path.is_symlink()}
            looked |= {str(each) for path in beside for each in path.glob("*.yaml")}
            may = looked if name in ("trace", "profiles") else set()
            assert {*seen} <= may, (text, command)


def test_every_setting_that_names_a_file_is_known_as_one():
    for model in (PlanSettings, BudgetSettings, AutoscaleSettings, WhatIfSettings):
        names = {"trace", "workload", "tokenizer", "llm", "prices", "profiles"}
        names |= {"engine_overhead", "gpu_file", "scheduler", "out"}
        assert {*file_settings(model)} == names
        inside = {*names, "backtest"}  # what the file says is in the result
        for name, field in model.model_fields.items():
            metavar = str(field.json_schema_extra["metavar"])
            assert name in inside or not {"FILE", "DIR"} & {*metavar.split("|")}
    assert "snapshot" in file_settings(PlaceSettings)


def test_what_a_plan_writes_as_its_settings_is_taken_as_received(tmp_path):
    given = {
        **{"llm": "Llama-3.1-8B", "gpu": "H100-SXM,L40S", "tp": (1, 2), "rate": 5},
        **{"slo": {"ttft": "1s"}, "attainment": {"all": 0.9, "vip": 0.99}},
        **{"columns": "class=tenant", "price": {"H100-SXM": 2}, "warm_up": "1m"},
        **{"workload": "synthetic:prompt=5,output=5", "kind": "spot", "seed": 2**62},
        **{"max_nodes": "H100-SXM=2", "latency_ms": [1, 2, 3, 4, 5], "tune": False},
        **{"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
        **{"acceptance_rates": "0.5", "draws": 9, "draw": "days,growth=1:2"},
        **{"scheduler": "orca:max_len=4096", "async_scheduling": False},
    }
    settings = PlanSettings(**given).document(NOT_IN_THE_RESULT)
    settings = json.loads(json.dumps(settings))

    found, named = received({"settings": settings}, tmp_path / "p.json", PlanSettings)

    assert (found, named) == (settings, {})
    assert PlanSettings(**found).document(NOT_IN_THE_RESULT) == settings


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("out", "x", "settings.out is no setting of such a file"),
        ("executor", "ray", "settings.executor is no setting of such a file"),
        (
            "ray_address",
            "127.0.0.1:1",
            "settings.ray_address is no setting of such a file",
        ),
        ("rate", "5", 'settings.rate is "5"; expected a valid number'),
        ("rate", True, "settings.rate is true; expected a valid number"),
        ("slo", "ttft=1s", "expected a valid array"),
        ("tune", 1, "settings.tune is 1; expected a valid boolean"),
    ],
)
def test_settings_of_other_types_are_refused_by_name(name, value, said, tmp_path):
    with pytest.raises(InputError, match="settings") as refused:
        received({"settings": {name: value}}, tmp_path / "plan.json", PlanSettings)

    assert said in str(refused.value)


def test_a_trace_beside_the_plan_is_taken_by_its_digest_alone(there, capsys):
    plan = there / "plan.json"
    assert answers("verify FILE", plan) == 0
    trace = there / "own.csv"
    held = trace.read_bytes()
    trace.write_bytes(held + b"9,5,5\n")

    assert answers("verify FILE", plan) == 2
    assert "has another SHA-256 than it states" in capsys.readouterr().err
    trace.unlink()
    (there.parent / "kept.csv").write_bytes(held)
    os.symlink(there.parent / "kept.csv", trace)
    assert answers("verify FILE", plan) == 2
    assert "is a link or has one; give --trace" in capsys.readouterr().err
    assert answers("verify FILE", plan, "--trace", str(there.parent / "kept.csv")) == 0
    trace.unlink()
    assert answers("verify FILE", plan) == 2
    assert "does not lie beside it; put it there or give --trace" in (
        capsys.readouterr().err
    )
    assert answers("verify FILE", plan, "--prices", "kept.csv") == 2
    assert "has no prices; leave out --prices" in capsys.readouterr().err


@pytest.mark.thorough
def test_profiles_beside_the_plan_are_taken_by_their_digest(tmp_path, capsys):
    own = Path(__file__).parents[2] / "examples" / "profiles"
    kept = shutil.copytree(own, tmp_path / "kept" / "profiles")
    example = own.parent / "plan_own_profile.yaml"
    flags = ["--profiles", str(kept), "--out", str(tmp_path / "out"), "--quiet"]
    assert exit_code(["plan", str(example), *flags]) == 0
    plan = tmp_path / "out" / "plan.json"

    assert answers("verify FILE", plan) == 2
    assert "its profiles 'profiles' does not lie" in capsys.readouterr().err
    assert answers("verify FILE", plan, "--profiles", str(kept)) == 0
    shutil.copytree(kept, tmp_path / "out" / "profiles")
    assert answers("verify FILE", plan) == 0
    (tmp_path / "out" / "profiles" / "more.yaml").write_text("a: 1")
    assert answers("verify FILE", plan) == 2
    assert "has another SHA-256" in capsys.readouterr().err


def test_a_trace_is_found_by_its_name_whatever_that_is(made, tmp_path, capsys):
    there, then = tmp_path / "jü \u009b'q\\", tmp_path / "then t"
    for folder in (there, then):
        folder.mkdir()
        (folder / "t.csv").write_bytes((made / "own.csv").read_bytes())
    (then / "plan.json").write_text(
        plan_json(plan(PlanSettings(**SETTINGS, trace=then / "t.csv")))
    )
    shutil.copy(then / "plan.json", there)

    assert exit_code(["verify", str(then / "plan.json")]) == 0
    assert exit_code(["verify", str(there / "plan.json")]) == 0


def test_a_folder_with_a_plan_is_verified(there, capsys):
    assert exit_code(["verify", str(there)]) == 0
    assert exit_code(["verify", str(there.parent)]) == 2
    (there / "budget.json").write_text("{}")
    assert exit_code(["verify", str(there)]) == 2
    assert "expected one with plan.json or budget.json" in capsys.readouterr().err


def test_what_if_of_a_plan_is_about_its_settings(there, capsys):
    code = exit_code(["what-if", "plan.json", "--rate", "x1,x2", "--json"])

    cells = json.loads(capsys.readouterr().out)["cells"]
    best = json.loads((there / "plan.json").read_text())["best"]
    assert code == 0
    assert [cell["rate"] for cell in cells] == ["x1", "x2"]
    for name in ("gpu", "replica_count", "usd_per_month", "slo_attainment"):
        assert cells[0][name] == best[name]


def test_a_flag_takes_the_place_of_a_file_that_a_plan_names(there, capsys):
    (there / "own.csv").rename(there.parent / "elsewhere.csv")
    flags = ["--attainment", "0.9", "--trace", str(there.parent / "elsewhere.csv")]

    assert exit_code(["what-if", "plan.json", "--attainment", "0.9"]) == 2
    assert exit_code(["what-if", "plan.json", *flags]) == 0


@pytest.mark.parametrize("text", ["1e999", "-1e999", "NaN", "1" + "0" * 30])
@pytest.mark.parametrize(
    "command",
    ["verify FILE", "diff FILE FILE", "fleet FILE", "export FILE --to k8s"],
)
def test_a_number_beyond_a_double_is_one_line(text, command, there, capsys):
    plan = (there / "plan.json").read_text()
    forged = there / "forged.json"
    forged.write_text(plan.replace('"rate_per_s": ', f'"rate_per_s": {text}, "x": ', 1))

    assert answers(command, forged) == 2
    assert "number" in capsys.readouterr().err


def test_no_control_character_of_a_file_reaches_the_terminal(there, capsys):
    document = json.loads((there / "plan.json").read_text())
    escape = "Acme\x1b]0;owned\x07\x1b[31m\u202e\x9b2J"
    for row in (document["best"], *document["candidates"]):
        row["nodes"] = [{"node": escape, "provider": escape, "count": 1}]
        row["nodes"][0] |= {"gpus_paid": row["gpu_count"], "usd_per_h": 2.79}
    document |= {"llm": escape, "warnings": [escape], "infeasible_reason": escape}
    forged = there / "forged.json"
    forged.write_text(json.dumps(seal(document)))

    shown = ""
    for form in ([], ["--format", "md"], ["--json"], ["--format", "csv"]):
        for command in ("verify FILE", "diff FILE plan.json", "fleet FILE"):
            answers(command, forged, *form)
            printed = capsys.readouterr()
            shown += printed.out + printed.err

    assert "Acme" in shown
    assert not [each for each in escape if not each.isprintable() and each in shown]
