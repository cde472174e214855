"""``capplan what-if``: a plan for each combination of a few settings."""

from functools import partial
from typing import Annotated, Any

from capplan.cli.asked import answered
from capplan.cli.options import with_settings
from capplan.cli.parameters import COMMON, flag
from capplan.cli.scenario import Source, settings_of_source
from capplan.planning.what_if.settings import VARIED, WhatIfSettings

_varied = partial(flag, rich_help_panel=VARIED)


@with_settings(WhatIfSettings)
def what_if_command(
    source: Source = None,
    rate: Annotated[
        str | None,
        _varied("x1,x2", "Times the traffic, x2, or requests/s, 34."),
        COMMON,
    ] = None,
    attainment: Annotated[
        str | None, _varied("A,B", "Shares of requests in time: 0.99,0.999."), COMMON
    ] = None,
    slo_scale: Annotated[
        str | None, _varied("F,G", "Times the limits: 0.8,1,1.25."), COMMON
    ] = None,
    llm: Annotated[
        str | None, _varied("A,B", "Models: names, or their config.json."), COMMON
    ] = None,
    **flags: Any,
) -> int:
    """What GPUs cost with other traffic, limits, models or settings, side by side.

    One table, and a picture, of GPUs and $ per month. Each row is what `capplan plan`
    finds with its settings; simulations are shared, so that a grid takes less than its
    plans one by one. Exit code 3: none is feasible; 130: Ctrl-C, which answers with
    the plans known so far.
    """
    lists = {"rate": rate, "attainment": attainment, "slo-scale": slo_scale, "llm": llm}
    settings = settings_of_source(WhatIfSettings, source, flags)
    given = {name: text for name, text in lists.items() if text is not None}
    varied = {**settings.vary, **given}
    settings = WhatIfSettings(**{**dict(settings), "vary": varied})
    return answered("what-if", settings)
