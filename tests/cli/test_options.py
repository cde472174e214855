"""Flags are made from settings: names, short names, required, repeated, bool."""

import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from pydantic import BeforeValidator
from typer.testing import CliRunner

from capplan.cli.main import exit_code
from capplan.cli.options import with_settings
from capplan.planning.settings.plan import SimulateSettings
from capplan.settings import Settings, setting

Degrees = Annotated[tuple[int, ...], BeforeValidator(lambda text: text.split(","))]


class Wanted(Settings):
    file: str = setting(..., "", "FILE", "To read.", flags=("--from",))
    out: Path = setting(Path("p"), "", "DIR", "To write.", flags=("--out", "-o"))
    degrees: Degrees = setting((1, 2), "", "1,2", "Degrees.")
    where: tuple[str, ...] = setting((), "", "C=V", "Rows.", repeated=True)
    resume: bool = setting(False, "", "", "Continue.", flags=("--resume",))
    tune: bool = setting(False, "", "", "Tune.")
    share: float = setting(0.9, "Numbers", "SHARE", "Share.")
    count: int | None = setting(None, "Numbers", "N", "Count.")
    flag_of_none: bool | None = setting(None, "", "", "Either.")


def run(*arguments, model=Wanted):
    given: dict[str, Any] = {}
    app = typer.Typer(rich_markup_mode=None)

    @with_settings(model)
    def command(**settings: Any) -> int:
        given.update({k: v for k, v in settings.items() if v not in (None, [])})
        return 0

    app.command()(command)
    return given, CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["-o", "x"], {"out": "x"}),
        (["--out", "x"], {"out": "x"}),
        (["--degrees", "1,4"], {"degrees": "1,4"}),
        (["--where", "a=1", "--where", "b=2"], {"where": ["a=1", "b=2"]}),
        (["--resume"], {"resume": True}),
        (["--tune"], {"tune": True}),
        (["--no-tune"], {"tune": False}),
        (["--share", "0.5"], {"share": 0.5}),
        (["--count", "3"], {"count": 3}),
    ],
)
def test_a_flag_sets_its_field_and_no_other(arguments, expected):
    given, _ = run("--from", "in.csv", *arguments)

    assert given == {"file": "in.csv"} | expected


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ([], "--from"),
        (["--file", "x", "--from", "x"], "--file"),
        (["--from", "x", "--no-resume"], "--no-resume"),
    ],
)
def test_what_is_missing_or_no_flag_is_refused(arguments, refused):
    given, result = run(*arguments)

    assert result.exit_code == 2
    assert given == {}
    assert refused in result.output


def test_help_names_defaults_and_what_may_be_repeated():
    _, result = run("--help")

    shown = " ".join(result.output.split())
    assert "To write (default p)." in shown
    assert "Degrees (default 1,2)." in shown
    assert "Rows. May be repeated." in shown
    assert "To read." in shown
    assert "Continue." in shown


def test_a_default_of_none_false_or_nothing_is_not_named():
    _, result = run("--help")

    shown = " ".join(result.output.split())
    assert shown.count("(default") == 3
    assert "Count. " in shown
    assert "Share (default 0.9)." in shown


def test_a_bool_that_may_be_unset_has_both_flags():
    for flag, value in (("--flag-of-none", True), ("--no-flag-of-none", False)):
        given, _ = run("--from", "x", flag)

        assert given["flag_of_none"] is value


@pytest.mark.parametrize("flag", ["--count", "--share"])
def test_a_number_that_is_none_is_refused(flag):
    given, result = run("--from", "x", flag, "many")

    assert result.exit_code == 2
    assert given == {}
    assert f"'{flag}'" in result.output


def test_a_parameter_of_the_command_takes_the_place_of_the_flag():
    app = typer.Typer(rich_markup_mode=None)
    given: dict[str, Any] = {}

    @with_settings(Wanted)
    def command(out: Annotated[str, typer.Argument()] = "here", **settings: Any) -> int:
        given.update(out=out, names=sorted(settings))
        return 0

    app.command()(command)

    CliRunner().invoke(app, ["--from", "x", "there"])

    assert given["out"] == "there"
    assert "out" not in given["names"]
    assert {"file", "tune", "where"} <= set(given["names"])


def test_every_setting_of_simulate_is_a_flag(capsys):
    exit_code(["simulate", "--help-all"])

    flags = set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out))
    for name in SimulateSettings.model_fields:
        dashed = "--" + name.replace("_", "-")
        assert dashed in flags, name


Percent = Annotated[float, BeforeValidator(lambda text: float(text.strip("%")) / 100)]


class Shares(Settings):
    share: Percent = setting(0.5, "", "SHARE", "A share.")


def test_a_number_that_its_settings_parse_reaches_them_as_text():
    given, result = run("--share", "99.9%", model=Shares)

    assert result.exit_code == 0
    assert given == {"share": "99.9%"}
