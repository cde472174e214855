"""Write the page of all settings, with the commands that read each.

    python examples/studies/settings_page.py --docs docs/settings.md

What it writes is the page as it should stand; the tests compare.
"""

import argparse
from pathlib import Path

from capplan.calibration.settings import FitSettings
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.settings.place import PlaceSettings
from capplan.planning.settings.plan import (
    CapacitySettings,
    DemandSettings,
    OffersSettings,
    PlanSettings,
    SearchSettings,
    SimulateSettings,
)
from capplan.planning.shared_fleet.settings import SharedFleetSettings
from capplan.planning.what_if.settings import WhatIfSettings
from capplan.profiling.settings import ProfileSettings

COMMANDS = {
    "plan": PlanSettings,
    "what-if": WhatIfSettings,
    "simulate": SimulateSettings,
    "search": SearchSettings,
    "compare": CompareSettings,
    "capacity": CapacitySettings,
    "autoscale": AutoscaleSettings,
    "budget": BudgetSettings,
    "demand": DemandSettings,
    "place": PlaceSettings,
    "prices": OffersSettings,
    "fleet": SharedFleetSettings,
    "profile": ProfileSettings,
    "fit": FitSettings,
}
BEGIN = """# Settings

Each is a flag of the commands named, a key of their scenario files (with `_` for `-`)
and an argument of the call in Python. A command refuses those that it does not read.
Made from the settings themselves by `python examples/studies/settings_page.py --docs
docs/settings.md`.
"""


def page() -> str:
    """Return the page, a table for each group of settings."""
    tables: dict[str, list[str]] = {}
    for (name, text), (panel, default, commands) in _rows().items():
        flag = f"`--{name.replace('_', '-')}`"
        cells = (flag, text, default, ", ".join(commands))
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


def _rows() -> dict[tuple[str, str], tuple[str, str, list[str]]]:
    """Return panel, default and commands of each setting and what it does."""
    rows: dict[tuple[str, str], tuple[str, str, list[str]]] = {}
    for command, model in COMMANDS.items():
        for name, field in model.model_fields.items():
            extra = field.json_schema_extra
            assert isinstance(extra, dict)
            default = "" if field.is_required() else _written(field.default)
            text = (field.description or "").replace("|", "\\|")
            row: tuple[str, str, list[str]] = (str(extra["panel"]), default, [])
            rows.setdefault((name, text), row)[2].append(command)
    return rows


def _written(default: object) -> str:
    if default is None or default in ((), {}, ""):
        return ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, dict):
        default = tuple(default.values())
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path, required=True)
    parser.parse_args().docs.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
