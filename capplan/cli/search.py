"""``capplan search``: GPU types and TP degrees compared without a simulation."""

from typing import Any

from capplan.cli.answer import show
from capplan.cli.options import with_settings
from capplan.cli.plan import INFEASIBLE
from capplan.cli.scenario import Scenario, settings_from
from capplan.planning.settings.plan import SearchSettings


@with_settings(SearchSettings)
def search_command(scenario: Scenario = None, **flags: Any) -> int:
    """Compare TP degrees and GPUs by output tokens per second and GPU.

    Decode only, at the largest batch that the KV cache and the TPOT limit allow
    (Aladdin, Eq. 5 and 6); no simulation. Exit code 3 when no GPU can serve.
    """
    settings = settings_from(SearchSettings, scenario, flags)
    from capplan.report.pages.search import search_page
    from capplan.report.to_files import search

    result, written = search(settings)
    show(search_page(result), written)
    return 0 if result.found.best is not None else INFEASIBLE
