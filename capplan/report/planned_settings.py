"""Settings of another command from a plan.json: the same requests and replicas."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from capplan.deployment.speculation import MOST_DRAFTS
from capplan.errors import CapplanWarning, InputError
from capplan.llm.layout import parse_layout
from capplan.planning.layout_settings import LayoutSettings
from capplan.planning.proof import with_drafts_chosen
from capplan.planning.settings import PlanSettings
from capplan.planning.speculation_settings import SpeculationSettings
from capplan.report.plan_document import plan_path, read_plan, refuse_changed
from capplan.report.plan_record import Count, Record, checked
from capplan.report.received import received
from capplan.settings import Settings

_FURTHER = ("users", "think")
"""Settings without which a plan is another one, that arrivals do not have."""


class _Best(Record):
    gpu: str
    tp: Count | None
    layout: str | None = None
    pools: list[Any] | None = None


class _Worth(Record):
    drafts: Annotated[int, Field(ge=0, le=MOST_DRAFTS)]


def planned_settings(
    path: Path, model: type[Settings], without: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the settings of a plan for a command, but ``without`` some.

    Raises
    ------
    InputError
        When the plan was changed after it was made, or names a file that a received
        one may not.
    """
    path = plan_path(path)
    document = read_plan(path)
    if document.get("certificate") is not None:  # a plan without an answer has none
        refuse_changed(path, document)
    return _settings_for(model, path, document, without)


def planned_pool(
    path: Path, model: type[Settings], without: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the settings of a plan for a command, with the best GPU type and layout.

    Raises
    ------
    InputError
        As of ``planned_settings``, and when the plan has no answer, or is not of one
        pool that serves arrivals.
    """
    path = plan_path(path)
    document = read_plan(path)
    if document.get("best") is None:
        raise InputError(f"{path}: the plan has no feasible candidate to budget")
    refuse_changed(path, document)
    for name in _FURTHER:
        if document["settings"].get(name) is not None:
            raise InputError(
                f"{path}: asked by users, whose rate follows from the fleet; plan with "
                "--rate or a trace with times"
            )
    best = checked(path, "best.", _Best, document["best"])
    if best.tp is None or best.pools:
        raise InputError(
            f"{path}: its best has prompts and decoding apart; a budget is of one pool"
        )
    kept = _settings_for(model, path, document, without)
    layout = parse_layout(best.layout or f"tp{best.tp}")
    chosen = {**LayoutSettings.of(layout), **_drafts(path, document, kept)}
    return {**kept, "gpu": (best.gpu,), **chosen}


def _settings_for(
    model: type[Settings],
    path: Path,
    document: Mapping[str, Any],
    without: frozenset[str],
) -> dict[str, Any]:
    settings = received(document, path, PlanSettings, without=without).settings
    fields = model.model_fields.keys() - model.of_one_plan
    lost = [name for name, value in settings.items() if name not in fields and value]
    if lost:
        warnings.warn(
            f"{path}: {', '.join(lost)} of the plan: without effect on this command",
            CapplanWarning,
            stacklevel=3,
        )
    return {name: value for name, value in settings.items() if name in fields}


def _drafts(
    path: Path, document: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of drafts; with as many as a plan chose that searched."""
    names = SpeculationSettings.model_fields
    given = SpeculationSettings(**{k: v for k, v in settings.items() if k in names})
    if document.get("drafts_worth") is not None:
        checked(path, "drafts_worth.", _Worth, document["drafts_worth"])
    return dict(with_drafts_chosen(given, document))
