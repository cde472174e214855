"""Help: two lengths, an example of each command that parses, defaults told once."""

import re
import shlex

import pytest
import typer

from capplan.cli.commands import COMMANDS, EXAMPLES
from capplan.cli.help import HEADINGS
from capplan.cli.main import GROUPS, app, exit_code
from capplan.report.kind_rows import KIND_OF
from capplan.report.pages.kinds import KINDS, names_of

GROUP = typer.main.get_command(app)
BELOW = {
    "profiles": ("list", "show", "compare", "validate"),
    "trace": ("describe", "cut", "scale", "mix"),
}
NAMES = [name for name in COMMANDS if name not in BELOW]
NAMES += [f"{group} {name}" for group, names in BELOW.items() for name in names]
SIX = ("plan", "capacity", "compare", "budget", "autoscale", "what-if")
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


def first_example(name):
    return shlex.split(EXAMPLES[name].splitlines()[0])[1:]


@pytest.fixture
def helped(capsys, monkeypatch):
    """Return a function to the lines that a command prints at 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")

    def lines(*arguments):
        assert exit_code(arguments) == 0
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.mark.parametrize("name", NAMES)
def test_both_help_flags_show_the_same_with_the_example_first(name, capsys):
    short = exit_code([*name.split(), "-h"])
    first = capsys.readouterr().out
    long = exit_code([*name.split(), "--help"])

    assert short == long == 0
    assert first == capsys.readouterr().out
    lines = first.replace(" \\\n     ", "").splitlines()  # one that is wrapped
    shown = [line[4:] for line in lines if line.startswith("  $ ")]
    assert shown == EXAMPLES[name].splitlines()
    assert lines.index(f"  $ {shown[0]}") < 20


def test_every_command_has_an_example_and_none_is_of_no_command():
    assert set(EXAMPLES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_of_its_command_and_parses(name):
    for line in EXAMPLES[name].splitlines():
        words = shlex.split(line)

        context = parsed(words[1:])

        assert words[0] == "capplan"
        assert context.command_path == f"capplan {name}"


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_example_runs(name, capsys):
    code = exit_code(first_example(name))

    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert shown.out


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["plan", "simulate", "demand", "capacity", "place"])
def test_an_example_runs(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code = exit_code(first_example(name))

    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_no_flag_tells_its_default_twice(name):
    context = parsed(first_example(name))
    records = [each.get_help_record(context) for each in context.command.params]

    told = [" ".join(record[1].split()) for record in records if record]
    assert told
    assert [text for text in told if len(re.findall(r"[(\[]default", text)) > 1] == []


@pytest.mark.parametrize("name", SIX)
def test_the_help_of_the_six_fits_one_screen_with_the_model_near_its_top(name, helped):
    lines = helped(name, "-h")

    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("  --llm ") for line in lines[:25])
    assert not any(line.startswith(" " * 8) for line in lines)  # each on one line


@pytest.mark.parametrize("name", SIX)
def test_the_help_of_the_six_has_its_own_settings_first_then_five_groups(name, helped):
    lines = helped(name, "-h")

    headings = [line[:-1] for line in lines if re.fullmatch(r"[A-Z][\w -]+:", line)]
    assert headings == [name.capitalize(), *dict.fromkeys(HEADINGS.values())]


def test_the_common_settings_of_a_plan_are_these(helped):
    rows = [line.split()[0] for line in helped("plan", "-h") if line[:4] == "  --"]

    told = "--trace --workload --input-len --rate --users --slo --attainment --llm "
    told += "--gpu --tp --provider --price --kind --engine --profiles --out --format "
    assert rows == [*told.split(), "--explain", "--help-all"]


@pytest.mark.parametrize("name", [*SIX, "simulate", "search", "demand", "place"])
def test_all_settings_stand_in_the_long_help_and_their_rest_is_counted(name, helped):
    short, long = helped(name, "-h"), "\n".join(helped(name, "--help-all"))

    parameters = parsed(first_example(name)).command.params
    for parameter in parameters:
        if parameter.param_type_name == "option":
            assert any(f"{flag} " in long for flag in parameter.opts), parameter.name
    (rest,) = re.findall(r"The other (\d+) settings", short[-1])
    heading = next(i for i, line in enumerate(short) if line.endswith(":"))
    rows = [line for line in short[heading:] if re.match(r"  \S", line)]
    assert int(rest) + len(rows) == len(parameters)


def test_a_short_command_shows_all_with_either_flag(helped):
    assert helped("diff", "-h") == helped("diff", "--help-all")


@pytest.mark.parametrize("word", ["currency", "CURRENCY", "exchange_rate", "--as-of"])
def test_a_word_leaves_the_settings_that_mention_it(word, helped):
    lines = helped("plan", "--help-all", word)

    assert len(lines) < 15
    assert word.lower().replace("_", "-") in "\n".join(lines).lower()
    assert not any("--llm" in line for line in lines)


def test_the_name_of_a_group_leaves_all_of_it(helped):
    lines = helped("plan", "--help-all", "risk")

    flags = {line.split()[0] for line in lines if line.startswith("  --")}
    assert {"--draws", "--quantile", "--first-day", "--penalty"} <= flags


def test_a_word_that_no_setting_mentions_is_refused(capsys):
    code = exit_code(["plan", "--help-all", "xylophone"])

    assert code == 2
    assert "no setting of capplan plan mentions 'xylophone'" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_the_long_help_needs_no_argument_and_no_word(name, helped):
    assert helped(*name.split(), "--help-all")[0].startswith(f"Usage: capplan {name}")


def test_the_commands_stand_by_what_they_are_for_on_one_screen(helped):
    lines = helped("-h")

    assert len(lines) <= 45
    headings = [line[:-1] for line in lines if line[:-1] in GROUPS]
    assert headings == ["Buy", "Check and run", "Measure", "Look up"]
    assert sorted(" ".join(GROUPS.values()).split()) == sorted(COMMANDS)


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
        ("capplan plan --help-a", ["--help-all"]),
        ("capplan plan --help-all --gp", ["--gpu"]),
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
