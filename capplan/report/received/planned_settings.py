"""Settings of another command from a plan.json: the same requests and replicas."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan.bounds.certificate import MALFORMED
from capplan.errors import InputError, warn
from capplan.llm.layout import parse_layout
from capplan.planning.prove.chosen import with_drafts_chosen
from capplan.planning.settings.layouts import LayoutSettings
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.settings.speculation import SpeculationSettings
from capplan.report.received.allowed import received
from capplan.report.received.plan_document import plan_path, read_plan, refuse_changed
from capplan.settings import Settings


def planned_settings(
    path: Path, model: type[Settings], without: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the settings of a plan for a command, but ``without`` some.

    A command of one configuration gets the best GPU type and layout.
    """
    path = plan_path(path)
    document = read_plan(path)
    of_one = not issubclass(model, PlanSettings)
    if of_one and not isinstance(document.get("best"), dict):
        raise InputError(f"{path}: the plan has no feasible candidate to budget")
    if of_one or document.get("certificate") is not None:  # else it has no answer
        refuse_changed(path, document)
    settings, _ = received(document, path, PlanSettings, without=without)
    fields = model.model_fields.keys() - model.of_one_plan
    kept = {name: value for name, value in settings.items() if name in fields}
    try:
        chosen = _pool(path, document, settings) if of_one else {}
    except MALFORMED as problem:
        raise InputError(f"{path}: its best is malformed: {problem}") from None
    others = settings.keys() - kept.keys() - model.unread
    if lost := [name for name in settings if name in others and settings[name]]:
        warn(f"{path}: {', '.join(lost)} of the plan: without effect on this command")
    return {**kept, **chosen}


def _pool(
    path: Path, document: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return GPU type, layout and drafts of the best, the only pool of arrivals."""
    best = document["best"]
    if settings.get("users") is not None or settings.get("think") is not None:
        raise InputError(
            f"{path}: asked by users, whose rate follows from the fleet; plan with "
            "--rate or a trace with times"
        )
    if best.get("tp") is None or best.get("pools"):
        raise InputError(
            f"{path}: its best has disaggregated prefill and decode; a budget is of "
            "one pool"
        )
    layout = parse_layout(best.get("layout") or f"tp{best['tp']}")
    names = SpeculationSettings.model_fields
    given = SpeculationSettings(**{k: v for k, v in settings.items() if k in names})
    drafts = dict(with_drafts_chosen(given, document))
    return {"gpu": (best["gpu"],), **LayoutSettings.of(layout), **drafts}
