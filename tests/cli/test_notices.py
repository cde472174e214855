"""Warnings are one line each on standard error; others stay Python's."""

import logging
import subprocess
import sys
import warnings

import pytest

from capplan.cli.notices import Notices, announce_compilation
from capplan.errors import CapplanWarning, PriceWarning
from capplan.simulator import jit


@pytest.fixture
def notices():
    with warnings.catch_warnings():
        listening = Notices()
        listening.listen()
        yield listening


def test_a_warning_is_printed_once_in_the_order_of_the_first(notices, capsys):
    for text in ("second hand", "old price", "second hand"):
        warnings.warn(text, PriceWarning, stacklevel=1)

    notices.print_all()

    assert capsys.readouterr().err == (
        "capplan: warning: second hand\ncapplan: warning: old price\n"
    )


def test_what_was_printed_is_not_printed_again(notices, capsys):
    warnings.warn("old price", CapplanWarning, stacklevel=1)
    notices.print_all()
    capsys.readouterr()

    notices.print_all()

    assert capsys.readouterr().err == ""


def test_a_warning_that_was_asked_to_be_hidden_is_shown(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        notices = Notices()
        notices.listen()
        warnings.warn("old price", CapplanWarning, stacklevel=1)

    notices.print_all()

    assert "old price" in capsys.readouterr().err


def test_other_warnings_are_shown_as_before(monkeypatch):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *given: seen.append(given))
        notices = Notices()
        notices.listen()

        warnings.warn("of a library", DeprecationWarning, stacklevel=1)

    assert [str(message) for message, *_ in seen] == ["of a library"]


def test_no_line_of_python_is_shown_with_a_warning():
    script = (
        "import warnings; from capplan.cli import main; "
        "from capplan.errors import CapplanWarning; row = main.COMMANDS['diff']; "
        "main.COMMANDS['diff'] = row._replace(function='own'); "
        "import capplan.cli.diff as p; "
        "p.own = lambda: warnings.warn('old price', CapplanWarning); "
        "raise SystemExit(main.exit_code(['diff']))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "capplan: warning: old price\n"


@pytest.mark.parametrize("cold", [True, False])
def test_a_compilation_is_announced_only_where_there_will_be_one(
    cold, monkeypatch, capsys
):
    monkeypatch.setattr(jit, "is_cold", lambda file="": cold)

    announce_compilation()

    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("capplan: compiling the simulator" in shown.err) == cold


def test_the_schedulers_to_compile_are_announced_once_each(monkeypatch, capsys):
    monkeypatch.setattr(jit, "is_cold", lambda file="": bool(file))

    announce_compilation(["vllm-v0:swap=1", "vllm-v0", "alise"])
    announce_compilation(["orca:max_len=64"])

    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "capplan: compiling schedulers vllm-v0, alise, about 10 s",
        "capplan: compiling scheduler orca, about 5 s",
    ]


def test_what_is_logged_is_told_at_once_and_once(notices, capsys):
    for _ in range(2):
        logging.getLogger("capplan.planning.load.traffic").info("60 requests")

    assert capsys.readouterr().err == "capplan: 60 requests\n"
