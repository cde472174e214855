"""Settings of a plan that a what-if varies: from the text of a value to settings."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from capplan.errors import InputError, nearest
from capplan.planning.settings.plan import PlanSettings
from capplan.workload.slo import base_classes, scaled_slo
from capplan.workload.trace import Trace

_TIMES = "x"
"""Before a number of times the traffic of the scenario."""


class Scenario(NamedTuple):
    """What is varied: the settings of a plan, and the requests that they name."""

    settings: PlanSettings
    requests: Trace


Vary = Callable[[Scenario, str], dict[str, Any]]
"""Returns the settings that a value's text stands for."""


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise InputError("expected a number above 0")
    return number


def _rate(of: Scenario, text: str) -> dict[str, Any]:
    """Return a rate, or times the scenario's traffic as in ``x2``.

    Of a trace that keeps its own times that is so many times its requests.
    """
    settings, own_s = of.settings, of.requests.arrival_s
    number = text.removeprefix(_TIMES)
    try:
        times = _number(number)
    except InputError:
        raise InputError(
            "expected requests/s such as 34, or times the traffic such as x2"
        ) from None
    if settings.users is not None:
        raise InputError(
            f"{settings.users} users ask when they have been answered; vary their "
            f"number instead: --vary users={settings.users},{2 * settings.users}"
        )
    if of.requests.has_turns:
        raise InputError(
            "turns come only after answers; vary the sessions instead: --vary "
            "sessions=200,400"
        )
    if number == text:
        return {"rate": times, "scale": None}
    if settings.rate is not None:
        return {"rate": times * settings.rate}
    if own_s is None:
        raise InputError(
            f"{of.requests.source} has no arrival times, and the scenario no rate to "
            "multiply; expected requests/s such as 34"
        )
    scale = times * (settings.scale or 1.0)
    return {"scale": None if scale == 1 else scale}


def _slo_scale(of: Scenario, text: str) -> dict[str, Any]:
    """Return all limits times a number."""
    times = _number(text)
    if times == 1:
        return {}
    names = of.requests.class_names
    if base_classes(names)[0] != names:
        raise InputError(
            f"{of.requests.source} has limits of its own for each request, which stay; "
            "expected no slo-scale"
        )
    return {"slo": tuple(scaled_slo(slo, times) for slo in of.settings.slo)}


def _setting(name: str) -> Vary:
    """Return what sets one setting to a text, as its flag does."""

    def vary(of: Scenario, text: str) -> dict[str, Any]:
        return {name: text}

    return vary


_AS_FLAGS = (
    *("llm", "gpu", "tp", "kv-cache-dtype", "kind", "provider", "region"),
    *("scheduler", "router", "arrivals", "users", "sessions", "scale", "predictor"),
)
"""Settings that are varied as their flags set them."""

VARY: Mapping[str, Vary] = {
    **{name: _setting(name) for name in _AS_FLAGS},
    "rate": _rate,
    "attainment": _setting("attainment"),
    "slo-scale": _slo_scale,
}
"""What may be varied, the slowest to change first, with what a value stands for."""


def check_varied(name: str) -> None:
    """Refuse what cannot be varied."""
    if name not in VARY:
        raise InputError(
            f"{name} is not varied{nearest(name, VARY)}; expected one of "
            f"{', '.join(VARY)}"
        )


def varied(of: Scenario, values: Mapping[str, str]) -> PlanSettings:
    """Return the settings of a plan with other values of some of them."""
    settings = of.settings
    for name, text in values.items():
        try:
            update = VARY[name](of, text)
            update = {key.replace("-", "_"): value for key, value in update.items()}
            settings = PlanSettings(**{**dict(settings), **update})
        except InputError as error:
            raise InputError(f"{name} {text}: {error}") from None
    return settings
