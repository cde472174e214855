"""A user's own scheduler file: by path, by its content, and what is wrong in it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import config
from own_schedulers import FAIR, written
from worked import TABLES, THREE, engine, served

from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.jit import cache_dir
from capplan.simulator.schedulers import parse_scheduler, scheduler
from capplan.simulator.simulate import simulate
from capplan.simulator.state import OWN_SETTINGS
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

PLAN = (
    "--workload synthetic:prompt=300,output=20,n=300 --rate 2 --slo e2e=60s "
    "--llm Llama-3.1-8B --gpu H100-SXM --tp 1 --price H100-SXM=2.5"
)


def test_a_file_serves_as_the_policy_that_it_holds(tmp_path):
    path = written(tmp_path)

    times = served(f"{path}", THREE)

    assert times.finish_s == pytest.approx(served("vllm-v1", THREE).finish_s)


def test_a_file_is_described_by_its_content_and_all_its_settings(tmp_path):
    path = written(tmp_path)

    text = str(parse_scheduler(f"{path}:weight=4"))

    assert text.startswith(f"{path}@sha256-")
    assert text.endswith(":weight=4")
    policy = parse_scheduler(text)
    assert policy.name == text.removesuffix(":weight=4")
    assert policy.settings == {"weight": 4}
    assert str(parse_scheduler(text)) == text
    assert PlanSettings(scheduler=Path(path)).scheduler == text.partition(":")[0]


def test_the_same_content_is_compiled_once_and_another_again(tmp_path):
    path = written(tmp_path)
    module = scheduler(f"{path}")

    assert scheduler(f"{path}") is module
    assert Path(module.__file__).is_relative_to(cache_dir())
    written(tmp_path, FAIR + "# more\n")
    assert scheduler(f"{path}") is not module


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_another_process_finds_the_file_compiled(tmp_path):
    name = str(parse_scheduler(f"{written(tmp_path)}"))
    code = (
        "import sys; from capplan.simulator.schedulers import *;"
        "from capplan.simulator.schedulers import scheduler, parse_scheduler;"
        "hits = scheduler(parse_scheduler(sys.argv[1]).name).schedule.stats.cache_hits;"
        "print(sum(hits.values()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, name], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "1"


def test_a_file_may_refuse_requests(tmp_path):
    refusing = FAIR + (
        "\n\ndef refused(trace, engine, settings):\n"
        "    return trace.prompt_tokens > 5, 'prompts end at 5'\n"
    )
    path = written(tmp_path, refusing)

    with pytest.raises(InputError, match=r"row 2 with 6 prompt.*prompts end at 5"):
        served(f"{path}", THREE)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"scheduler \./no\.py: No such file"):
        simulate(
            Trace([1], [1], np.zeros(1)),
            fleet_of(TABLES, engine(), 1, scheduler="./no.py"),
        )


BODY = "    replica = state.replicas[r]\n"
EDITS = {
    "syntax": (BODY, BODY + "    x = 3 +\n", r"mine\.py:19: SyntaxError: invalid"),
    "import": ("import Knob,", "import Knop,", r"mine\.py:10: ImportError: .*Knop"),
    "schedule": ("def schedule", "def scedule", "no schedule; expected schedule"),
    "rules": ("RULES =", "RULE =", r"no RULES; expected RULES = Rules\(\.\.\.\)"),
    "no Rules": ("Rules({", "dict({", "RULES is dict; expected RULES = Rules"),
    "no Knob": ("Knob(2)", "2", "setting weight is 2; expected a Knob"),
    "default": ("Knob(2)", "Knob(0)", "the default of weight is 0; expected a number"),
    "settings": (
        '{"weight": Knob(2)}',
        f'{{f"w{{n}}": Knob(2) for n in range({OWN_SETTINGS + 1})}}',
        f"RULES has {OWN_SETTINGS + 1} settings; expected at most {OWN_SETTINGS}",
    ),
    "exit": ("RULES =", "raise SystemExit(3)\nRULES =", r"mine\.py:13: SystemExit: 3"),
    "encoding": ('"""', '"""\udcff', r"mine\.py: not UTF-8 text at byte 3"),
}
COMPILED = {
    "field": (
        BODY,
        BODY + "    x = replica.nothing\n",
        r"mine\.py:19: nothing is not a field of the record",
    ),
    "name": (
        BODY,
        BODY + "    x = nothing(r)\n",
        r"mine\.py:19: TypingError: .*nothing",
    ),
    "list": (
        BODY,
        BODY + "    x = [1]\n    x[0] = 2\n",
        r"mine\.py:19: .* a list, dict",
    ),
    "call": (
        BODY,
        BODY + "    admit(state)\n",
        r"mine\.py:19: TypingError: .*args=\(St",
    ),
    "not compiled": ("@compiled(SCHEDULE)", "", "schedule is not compiled; expected"),
    "lazily": ("(SCHEDULE)\n", "()\n", r"not compiled; expected @compiled\(SCHEDULE\)"),
}


@pytest.mark.parametrize("wrong", EDITS)
def test_what_is_wrong_in_a_file_is_one_line_with_its_own_line(wrong, tmp_path, capsys):
    old, new, complaint = EDITS[wrong]
    assert old in FAIR
    path = written(tmp_path, FAIR.replace(old, new, 1))

    assert exit_code(f"simulate {PLAN} --scheduler {path}".split()) == 2

    error = [x for x in capsys.readouterr().err.splitlines() if "compiling" not in x]
    assert len(error) == 1
    assert len(error[0]) < 400
    with pytest.raises(InputError, match=complaint):
        parse_scheduler(f"{path}")


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize("wrong", COMPILED)
def test_what_does_not_compile_is_named_by_its_own_line(wrong, tmp_path):
    old, new, complaint = COMPILED[wrong]
    assert old in FAIR
    path = written(tmp_path, FAIR.replace(old, new, 1))

    with pytest.raises(InputError, match=complaint) as refusal:
        parse_scheduler(f"{path}")

    assert len(f"{refusal.value}") < 400


@pytest.mark.thorough
def test_a_plan_names_the_content_and_verify_says_when_it_is_another(tmp_path, capsys):
    path = written(tmp_path)
    out = tmp_path / "out"

    assert exit_code(f"plan {PLAN} --scheduler {path} --out {out}".split()) == 0
    document = json.loads((out / "plan.json").read_text())
    named = str(parse_scheduler(f"{path}"))
    assert document["settings"]["scheduler"] == named.partition(":")[0]
    assert document["certificate"]["engine"]["scheduler"] == named
    assert exit_code(["verify", "--trust", f"{out / 'plan.json'}"]) == 0

    capsys.readouterr()
    written(tmp_path, FAIR + "# more\n")
    assert exit_code(["verify", "--trust", f"{out / 'plan.json'}"]) == 2
    assert "mine.py has changed, to sha256-" in capsys.readouterr().err
    path.unlink()
    assert exit_code(["verify", "--trust", f"{out / 'plan.json'}"]) == 2
    assert "mine.py: No such file" in capsys.readouterr().err


def test_a_file_of_a_scenario_is_found_beside_it(tmp_path, capsys):
    path = written(tmp_path)
    scenario = tmp_path / "plan.yaml"
    scenario.write_text("scheduler: ./mine.py:weight=3\n")

    assert exit_code(f"simulate {scenario} {PLAN}".split()) == 0

    assert f"{path}@sha256-" in " ".join(capsys.readouterr().out.split())
    scenario.write_text("rate: 2\nscheduler: ./yours.py\n")
    assert exit_code(f"simulate {scenario} {PLAN}".split()) == 2
    assert "plan.yaml:2: scheduler: scheduler ./yours.py: No such file" in (
        capsys.readouterr().err
    )
