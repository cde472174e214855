"""Settings of another command from a plan.json: the same requests and replicas."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan.errors import CapplanWarning, InputError
from capplan.llm.layout import parse_layout
from capplan.planning.layout_settings import LayoutSettings
from capplan.planning.proof import with_drafts_chosen
from capplan.planning.speculation_settings import SpeculationSettings
from capplan.report.plan_document import read_plan, refuse_changed, settings_now
from capplan.settings import Settings
from capplan.simulator.schedulers.own_file import file_of

_FURTHER = ("users", "think")
"""Settings without which a plan is another one, that arrivals do not have."""


def planned_settings(path: Path, model: type[Settings]) -> dict[str, Any]:
    """Return the settings of a plan for a command, with the best GPU type and layout.

    Raises
    ------
    InputError
        When the plan was changed after it was made, has no answer, or is not of one
        pool that serves arrivals.
    """
    document = read_plan(path)
    best = document.get("best")
    if not isinstance(best, dict):
        raise InputError(f"{path}: the plan has no feasible candidate to budget")
    refuse_changed(path, document)
    settings, _ = settings_now(document, path, None)
    for name in _FURTHER:
        if settings.get(name) is not None:
            raise InputError(
                f"{path}: asked by users, whose rate follows from the fleet; plan with "
                "--rate or a trace with times"
            )
    if best.get("tp") is None or best.get("pools"):
        raise InputError(
            f"{path}: its best has prompts and decoding apart; a budget is of one pool"
        )
    scheduler = settings.get("scheduler")
    if isinstance(scheduler, str) and file_of(scheduler):
        raise InputError(
            f"{path}: its scheduler is the Python file {file_of(scheduler)}, which a "
            "plan.json does not get executed; give the scenario in its place"
        )
    fields = model.model_fields
    lost = [name for name, value in settings.items() if name not in fields and value]
    if lost:
        warnings.warn(
            f"{path}: {', '.join(lost)} of the plan: without effect on this command",
            CapplanWarning,
            stacklevel=2,
        )
    kept = {name: value for name, value in settings.items() if name in fields}
    layout = parse_layout(best.get("layout") or f"tp{best['tp']}")
    chosen = {**LayoutSettings.of(layout), **_drafts(document, settings)}
    return {**kept, "gpu": (best["gpu"],), **chosen}


def _drafts(document: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of drafts; with as many as a plan chose that searched."""
    names = SpeculationSettings.model_fields
    given = SpeculationSettings(**{k: v for k, v in settings.items() if k in names})
    return dict(with_drafts_chosen(given, document))
