"""capplan as a process: its outputs, Ctrl-C, and errors that nobody foresaw."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

CAPPLAN = [sys.executable, "-m", "capplan"]
PYTHON_M = shlex.join(CAPPLAN)
PLAN = "plan --llm Llama-3.1-8B --workload sharegpt --rate 400 --slo ttft=1s,tpot=30ms"
LIST = "profiles list --llm Llama-3.1-8B --gpu H100-SXM"


def shell(command, **environment):
    """Return what a shell made of a command."""
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_python_m_capplan_is_the_command():
    done = shell(f"{PYTHON_M} --version")

    assert done.stdout.startswith("capplan ")
    assert done.returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_changes_nothing_else(closed):
    done = shell(f"{PYTHON_M} {LIST} {closed}")

    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_output_is_one_line():
    done = shell(f"{PYTHON_M} {LIST} > /dev/full")

    assert done.returncode == 2
    assert done.stderr == (
        "capplan: error: standard output or a temporary file: No space left on device\n"
    )


def test_a_full_output_of_errors_leaves_the_exit_code():
    done = shell(f"{PYTHON_M} plan no.yaml 2> /dev/full")

    assert done.returncode == 2


def test_an_output_in_ascii_gets_the_same_text_in_ascii():
    done = shell(f"{PYTHON_M} profiles list --llm OPT-13B", PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "  -  " in done.stdout  # an en dash elsewhere


@pytest.mark.parametrize("errors", ["", "2>&1"])
def test_a_reader_that_stops_reading_is_no_error(errors):
    # the reader is gone before the first line
    done = shell(f"{PYTHON_M} {LIST} {errors} | true; echo ${{PIPESTATUS[0]}}")

    assert done.stdout == "141\n"
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def interrupted_after(seconds, *arguments, **environment):
    """Return exit code and standard error of a process, and its end after Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored
    try:
        process = subprocess.Popen(
            [*CAPPLAN, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    pressed_s = time.monotonic()
    shown = process.communicate()
    return process.returncode, shown[1], time.monotonic() - pressed_s


@pytest.mark.thorough
@pytest.mark.parametrize("seconds", [0.1, 0.15, 0.25, 0.5, 1.0])
def test_ctrl_c_quits_with_one_line_whenever_it_comes(seconds, tmp_path):
    code, shown, took_s = interrupted_after(
        seconds,
        *PLAN.split(),
        XDG_CACHE_HOME=str(tmp_path),  # so that it compiles
    )

    assert code == 130
    assert [line for line in shown.splitlines() if "compiling" not in line] == [
        "capplan: interrupted"
    ]
    assert took_s < 2


UNFORESEEN = (
    "from capplan.cli import main; import capplan.cli.diff as p; "
    "p.own = lambda: {}['x']; row = main.COMMANDS['diff']; "
    "main.COMMANDS['plan'] = row._replace(function='own'); "
    "import sys; main.run(sys.argv[1:])"
)


def test_an_unforeseen_error_is_one_line_and_exit_70():
    done = shell(f"{sys.executable} -c {shlex.quote(UNFORESEEN)} plan")

    assert done.returncode == 70
    assert done.stdout == ""
    assert done.stderr == (
        "capplan: unforeseen error: KeyError: 'x'; please report it with the command "
        "and what capplan --debug … prints\n"
    )


@pytest.mark.parametrize(
    ("option", "environment"), [("--debug", {}), ("", {"CAPPLAN_DEBUG": "1"})]
)
def test_debug_shows_where_an_unforeseen_error_is_from(option, environment):
    command = f"{sys.executable} -c {shlex.quote(UNFORESEEN)} {option} plan"

    done = shell(command, **environment)

    assert done.returncode == 70
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.splitlines()[-1].startswith("capplan: unforeseen error: ")
