r"""Write the page of all settings, with the commands that read each.

    python examples/studies/settings_page.py --docs docs/reference/settings.md \
        --commands docs/reference/commands.md

The table of commands is made too. What it writes is each page as it should stand; the
tests compare.
"""

import argparse
from pathlib import Path

from capplan.calibration.settings import FitSettings
from capplan.cli.commands import COMMANDS as MAIN
from capplan.cli.main import load_command
from capplan.planning.settings.plan import OffersSettings
from capplan.profiling.settings import ProfileSettings
from capplan.report.questions import QUESTIONS

COMMANDS = {
    **{name: row.model for name, row in QUESTIONS.items()},
    "prices": OffersSettings,
    "profile": ProfileSettings,
    "fit": FitSettings,
}
ROOT = Path(__file__).parents[2]
ARGUMENTS = {row.argument for row in QUESTIONS.values()}
BEGIN = """# Settings

Each is a flag of the commands named, a key of their scenario files (with `_` for `-`)
and an argument of the call in Python. A command refuses those that it does not read.
*Plans* stands for `plan`, `what-if`, `simulate`, `demand`, `capacity`, `autoscale`,
`budget` and `compare`.

Made from the settings themselves by `python examples/studies/settings_page.py --docs
docs/reference/settings.md`.
"""
PLANS = "plan", "what-if", "simulate", "demand", "capacity", "autoscale"
PLANS += "budget", "compare"


def page() -> str:
    """Return the page, a table for each group of settings."""
    tables: dict[str, list[str]] = {}
    for (name, text), (panel, default, commands) in _rows().items():
        flag = f"`{'' if name in ARGUMENTS else '--'}{name.replace('_', '-')}`"
        cells = (flag, text, default, _readers(commands))
        tables.setdefault(panel, []).append(f"| {' | '.join(cells)} |")
    parts = [BEGIN]
    for panel, lines in tables.items():
        parts.append(
            f"## {panel or 'Command'}\n\n"
            "| setting | what it does | default | read by |\n|---|---|---|---|\n"
            + "\n".join(lines)
            + "\n"
        )
    return "\n".join(parts)


def commands() -> str:
    """Return the table of commands: what the help of each says first."""
    lines = ["| command | what it does |", "|---|---|"]
    for name in MAIN:
        text = load_command(name).help.partition("\n")[0].removesuffix(".")
        begin = name.replace("-", "_")
        found = sorted(
            f"../{path.parent.name}/{path.name}"
            for path in (ROOT / "docs").glob(f"[gh]*/{begin}*.md")
        )
        more = f" ([more]({found[0]}))" if found else ""
        lines.append(f"| `capplan {name}` | {text}{more} |")
    return "\n".join(lines) + "\n"


def commands_page(text: str) -> str:
    """Return the page of commands with their table as it should stand."""
    before, head, rest = text.partition("| command | what it does |")
    return before + commands() + rest[rest.index("\n\n") + 1 :] if head else text


def _rows() -> dict[tuple[str, str], tuple[str, str, list[str]]]:
    """Return panel, default and commands of each setting and what it does."""
    rows: dict[tuple[str, str], tuple[str, str, list[str]]] = {}
    for command, model in COMMANDS.items():
        for name, field in model.model_fields.items():
            extra = field.json_schema_extra
            assert isinstance(extra, dict)
            default = "" if field.is_required() else _written(field.default)
            text = (field.description or "").replace("|", "\\|")
            text = text.replace("docs/reference/inputs.md", "[files](inputs.md)")
            row: tuple[str, str, list[str]] = (str(extra["panel"]), default, [])
            rows.setdefault((name, text), row)[2].append(command)
    return rows


def _readers(commands: list[str]) -> str:
    """Return the commands in words: plans, plans but one, or each."""
    missing = [command for command in PLANS if command not in commands]
    if len(missing) > 1:
        return ", ".join(commands)
    others = [command for command in commands if command not in PLANS]
    return ", ".join([" but ".join(["plans", *missing]), *others])


def _written(default: object) -> str:
    if default is None or default in ((), {}, ""):
        return ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, dict):
        default = tuple(default.values())
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def main() -> None:
    """Write the page of settings, and the table of commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--commands", type=Path)
    given = parser.parse_args()
    given.docs.write_text(page(), encoding="utf-8")
    if given.commands is not None:
        text = given.commands.read_text(encoding="utf-8")
        given.commands.write_text(commands_page(text), encoding="utf-8")


if __name__ == "__main__":
    main()
