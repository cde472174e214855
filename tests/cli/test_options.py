"""Flags are made from settings: names, short names, required, repeated, bool."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from pydantic import BeforeValidator
from typer.testing import CliRunner

from capplan.cli.options import with_settings
from capplan.settings import Settings, setting

Degrees = Annotated[tuple[int, ...], BeforeValidator(lambda text: text.split(","))]


class Wanted(Settings):
    file: str = setting(..., "", "FILE", "To read.", flags=("--from",))
    out: Path = setting(Path("p"), "", "DIR", "To write.", flags=("--out", "-o"))
    degrees: Degrees = setting((1, 2), "", "1,2", "Degrees.")
    where: tuple[str, ...] = setting((), "", "C=V", "Rows.", repeated=True)
    resume: bool = setting(False, "", "", "Continue.", flags=("--resume",))
    tune: bool = setting(False, "", "", "Tune.")


def run(*arguments):
    given: dict[str, Any] = {}
    app = typer.Typer(rich_markup_mode=None)

    @with_settings(Wanted)
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
        (["--no-tune"], {"tune": False}),
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
