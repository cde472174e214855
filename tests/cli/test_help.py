"""Help: ``-h``, an example of each command that parses, defaults told once."""

import re
import shlex

import pytest
import typer

from capplan.cli.completion import KIND_OF
from capplan.cli.help import EXAMPLES
from capplan.cli.main import COMMANDS, app, exit_code
from capplan.report.pages.kinds import KINDS, names_of

GROUP = typer.main.get_command(app)
PROFILES = ("list", "show", "compare", "validate")
NAMES = [name for name in COMMANDS if name != "profiles"]
NAMES += [f"profiles {name}" for name in PROFILES]
CHEAP = ("search", "list", "profiles list", "profiles compare")


def parsed(arguments):
    """Return the context of a command line, its command not run."""
    context = GROUP.make_context("capplan", [])
    command = GROUP
    while hasattr(command, "resolve_command"):
        name, command, arguments = command.resolve_command(context, arguments)
        context = command.make_context(name, list(arguments), parent=context)
        command = context.command
        held = vars(context)  # Click before 8.2 calls them otherwise
        first = held.get("_protected_args") or held.get("protected_args") or []
        arguments = [*first, *context.args]
    return context


@pytest.mark.parametrize("name", NAMES)
def test_both_help_flags_show_the_same_with_an_example_at_the_end(name, capsys):
    short = exit_code([*name.split(), "-h"])
    first = capsys.readouterr().out
    long = exit_code([*name.split(), "--help"])

    assert short == long == 0
    assert first == capsys.readouterr().out
    assert first.endswith(f"\nExample:\n  {EXAMPLES[name]}\n")


def test_every_command_has_an_example_and_none_is_of_no_command():
    assert set(EXAMPLES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_of_its_command_and_parses(name):
    words = shlex.split(EXAMPLES[name])

    context = parsed(words[1:])

    assert words[0] == "capplan"
    assert context.command_path == f"capplan {name}"


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_example_runs(name, capsys):
    code = exit_code(shlex.split(EXAMPLES[name])[1:])

    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert shown.out


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["plan", "simulate", "demand", "capacity", "place"])
def test_an_example_runs(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code = exit_code(shlex.split(EXAMPLES[name])[1:])

    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_no_flag_tells_its_default_twice(name):
    context = parsed(shlex.split(EXAMPLES[name])[1:])
    records = [each.get_help_record(context) for each in context.command.params]

    told = [" ".join(record[1].split()) for record in records if record]
    assert told
    assert [text for text in told if len(re.findall(r"[(\[]default", text)) > 1] == []


def completions(monkeypatch, capsys, line):
    words = line.split(" ")
    monkeypatch.setenv("_CAPPLAN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit):
        exit_code([])
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("capplan pla", ["plan", "place"]),
        ("capplan profiles sh", ["show"]),
        ("capplan plan --gpu H200", ["H200-SXM"]),
        ("capplan plan --gpu H100-SXM,H20", ["H100-SXM,H200-SXM"]),
        ("capplan list sch", ["schedulers"]),
        ("capplan plan --max-num-b", ["--max-num-batched-tokens"]),
    ],
)
def test_the_shell_is_told_what_may_follow(monkeypatch, capsys, line, expected):
    found = completions(monkeypatch, capsys, line)

    assert set(expected) <= set(found)
    assert all(each.lower().startswith(line.split(" ")[-1].lower()) for each in found)


def test_every_completed_setting_is_a_flag_of_a_kind_that_is_listed():
    assert set(KIND_OF.values()) <= set(KINDS)
    assert all(names_of(kind) for kind in KIND_OF.values())


def test_completion_can_be_installed(capsys):
    exit_code(["--help"])

    assert "--install-completion" in capsys.readouterr().out
