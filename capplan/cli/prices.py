"""``capplan prices``: list, filter and compare offers of nodes and GPUs."""

from typing import Any

from capplan.cli.answer import show
from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from
from capplan.planning.settings.plan import OffersSettings


@with_settings(OffersSettings)
def prices_command(**flags: Any) -> int:
    """List what providers ask for nodes and GPU-hours, and which offer plans take."""
    settings = settings_from(OffersSettings, None, flags)
    from capplan.planning.money.prices import list_offers
    from capplan.report.pages.prices import prices_page

    show(prices_page(list_offers(settings)))
    return 0
