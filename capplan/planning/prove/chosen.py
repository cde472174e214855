"""A plan's settings with what it chose where it searched: drafts, and a tier."""

from collections.abc import Mapping
from typing import Any

from capplan.planning.configure.speculation import Drafting, is_searched, with_drafts
from capplan.planning.configure.tier import is_tier_searched, with_size
from capplan.planning.settings.plan import PlanSettings


def settings_of(document: Mapping[str, Any]) -> PlanSettings:
    """Return the settings of a plan, with the drafted tokens that it chose."""
    settings = PlanSettings(**document["settings"])
    return with_tier_chosen(with_drafts_chosen(settings, document), document)


def with_drafts_chosen(settings: Drafting, document: Mapping[str, Any]) -> Drafting:
    """Return settings with the drafted tokens that a plan chose, where it searched."""
    if not is_searched(settings):
        return settings
    worth = document.get("drafts_worth")
    return with_drafts(settings, 0 if worth is None else int(worth["drafts"]))


def with_tier_chosen(
    settings: PlanSettings, document: Mapping[str, Any]
) -> PlanSettings:
    """Return settings with the tier that a plan chose, where it searched."""
    if not is_tier_searched(settings):
        return settings
    found = document["tiers_tried"]
    rows = [row["size"] for row in found["rows"] if row["gib"] == found["chosen_gib"]]
    return with_size(settings, rows[0])
