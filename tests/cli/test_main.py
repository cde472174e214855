"""The shell: one line per error, honest exit codes, help without heavy imports."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from capplan.cli.commands import COMMANDS
from capplan.cli.main import exit_code
from tests.cli.test_answer import PLAN

HEAVY = ("numba", "ortools", "plotly", "torch", "scipy", "pandas", "pydantic", "jinja2")


def test_help_lists_every_command_without_importing_any(capsys):
    code = exit_code(["--help"])

    shown = capsys.readouterr().out
    assert code == 0
    for name in COMMANDS:
        assert f"  {name} " in shown


def test_without_a_command_the_help_is_shown(capsys):
    code = exit_code([])

    assert code == 0
    assert capsys.readouterr().out.startswith("Usage: capplan")


def test_a_command_of_commands_alone_shows_what_there_is(capsys):
    code = exit_code(["profiles"])

    shown = capsys.readouterr()
    assert code == 2
    assert shown.out.startswith("Usage: capplan profiles")
    assert shown.err == ""


@pytest.mark.parametrize(
    ("args", "needed"),
    [
        (["--help"], ()),
        (["plan", "--help"], ("pydantic",)),
        (["list"], ("pydantic",)),
        (["list", "schedulers"], ("pydantic",)),
        (["prices", "--gpu", "H100", "--tp", "8"], ("pydantic",)),
    ],
)
def test_help_and_lists_import_nothing_heavy(args, needed):
    script = (
        f"import sys; from capplan.cli.main import exit_code; exit_code({args}); "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == str(list(needed))


def test_the_list_of_commands_imports_no_page():
    script = (
        "import sys; from capplan.cli.main import exit_code; exit_code(['--help']); "
        "print([name for name in ('rich', 'capplan.report.page') if name in "
        "sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("args", "threads"), [(["--version"], "1"), (["profile", "--help"], "None")]
)
def test_sums_take_one_thread_but_a_measured_engine_as_many_as_it_takes(args, threads):
    script = (
        "import os, sys; from capplan.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    without = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}

    done = subprocess.run(
        [sys.executable, "-c", script, *args],
        env=without,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == threads


@pytest.mark.parametrize("command", ["plan", "simulate --replicas 1"])
def test_plans_and_simulations_import_nothing_that_they_do_not_use(command):
    args = f"{command} {PLAN.removeprefix('plan ')}".split()
    unused = (*HEAVY[1:4], "scipy.linalg", "scipy.special", "scipy.optimize", "pandas")
    script = (
        f"import sys; from capplan.cli.main import exit_code; exit_code({args}); "
        f"print([name for name in {unused} if name in sys.modules])"
    )

    for _ in range(2):  # what compiles, the first time, needs scipy.linalg
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["pln"], "pln is not a command; did you mean plan?"),
        (["plan", "--rte", "3"], "--rte"),
        (["plan", "--rate", "x"], "--rate"),
        (["plan", "--rate", "0"], "--rate: rate is 0.0; expected greater than 0"),
        (["plan", "--attainment", "99"], "--attainment: attainment is 99.0"),
        (["plan", "--tp", "1,x"], "--tp: tp is 'x'; expected a valid integer"),
        (["plan", "--price", "H100"], "--price: 'H100' is not a price"),
        (["plan", "--latency-ms", "1,2"], "--latency-ms: has 2 numbers"),
        (
            ["plan", "--kv-cache-dtype", "fp4"],
            "kv_cache_dtype is 'fp4'; expected 'auto', 'bf16' or 'fp8'",
        ),
        (["plan", "no.yaml"], "no.yaml: no such file"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(capsys, args, expected):
    code = exit_code(args)

    shown = capsys.readouterr()
    assert code == 2
    assert shown.out == ""
    assert shown.err.startswith("capplan: error: ")
    assert shown.err.count("\n") == 1
    assert expected in shown.err


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(capsys, tmp_path):
    (tmp_path / "file").write_text("")

    code = exit_code(["plan", "--out", str(tmp_path / "file")])

    assert code == 2
    assert "is a file; expected a folder" in capsys.readouterr().err


def test_help_of_plan_keeps_settings_in_groups(capsys):
    code = exit_code(["plan", "--help-all"])

    shown = capsys.readouterr().out
    assert code == 0
    for heading in ("Workload:", "Objective:", "Latency:", "Output:"):
        assert f"\n{heading}\n" in shown
    assert "--max-num-batched-tokens N" in shown
    assert "--async-scheduling / --no-async-scheduling" in shown


@pytest.mark.parametrize("command", ["--version", "plan"])
def test_a_checkout_that_is_not_installed_is_of_an_unknown_version(
    command, monkeypatch, capsys
):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)

    code = exit_code(f"{PLAN} --format csv".split() if command == "plan" else [command])

    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "unknown" in shown.out
