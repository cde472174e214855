"""Settings of ``capplan what-if``."""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from capplan.errors import InputError
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.settings.risk import RiskSettings
from capplan.planning.settings.spares import SpareNodeSettings
from capplan.planning.what_if.variations import VARY, check_varied
from capplan.setting_values import parts
from capplan.settings import common, setting

VARIED = "What is varied"
MOST_CELLS = 100
"""Plans of a what-if without a word."""


def _lists(value: Any) -> Any:
    """Return the values by name that ``NAME=A,B`` texts stand for."""
    given: dict[str, Any] = {}
    if isinstance(value, Mapping):
        given = {str(name).replace("_", "-"): each for name, each in value.items()}
    else:
        for text in value if isinstance(value, list | tuple) else [value]:
            name, equals, values = str(text).partition("=")
            name = name.strip().replace("_", "-")
            if not equals:
                raise ValueError(f"{text!r} varies nothing; expected NAME=A,B")
            if name in given:
                raise ValueError(f"{name} is varied twice; expected once")
            given[name] = values
    return {name: _values(name, each) for name, each in given.items()}


def _values(name: str, value: Any) -> tuple[str, ...]:
    """Return the values of one setting, in order."""
    try:
        check_varied(name)
    except InputError as error:
        raise ValueError(str(error)) from None
    if isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a list such as A,B")
    values = tuple(str(part) for part in parts(value))
    if not values:
        raise ValueError(f"{name} has no values; expected a list such as A,B")
    if len(set(values)) < len(values):
        twice = next(each for each in values if values.count(each) > 1)
        raise ValueError(f"{name} has {twice} twice; expected each value once")
    return values


class WhatIfSettings(PlanSettings):
    """Settings of plans that differ in a few settings."""

    scenario_of: ClassVar = PlanSettings
    of_one_plan: ClassVar = frozenset(
        (*RiskSettings.model_fields, *SpareNodeSettings.model_fields, "mix", "mix_gain")
    )

    vary: Annotated[dict[str, tuple[str, ...]], BeforeValidator(_lists)] = common(
        {},
        VARIED,
        "NAME=A,B",
        "Or of another setting: kind=spot,on-demand. A plan for each value, of "
        f"{', '.join(VARY)}.",
        repeated=True,
    )
    max_cells: int = setting(
        MOST_CELLS, VARIED, "N", "Most plans; more values are refused.", ge=1
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what is of a single plan."""
        yield from super().contradictions()
        for name in self.given(("xlsx", "draws", "availability", "mix")):
            yield name, f"{name} is of one plan; leave it out"

    def varied(self) -> dict[str, tuple[str, ...]]:
        """Return what is varied, the slowest to change first."""
        return {name: self.vary[name] for name in VARY if name in self.vary}

    def values(self) -> Iterator[dict[str, str]]:
        """Yield the values of each cell by name, the last name's change fastest."""
        names = list(self.varied())
        if not names:
            raise InputError(
                "nothing is varied; give --rate x0.5,x1,x2, --attainment, --slo-scale, "
                "--llm or --vary NAME=A,B"
            )
        if {"rate", "scale"} <= {*names}:
            raise InputError(
                "rate and scale are both varied; expected one of them: rate x2 is "
                "twice the requests of a trace with times"
            )
        count = math.prod(len(self.vary[name]) for name in names)
        if count > self.max_cells:
            raise InputError(
                f"{count:,} plans; expected at most {self.max_cells:,}: give fewer "
                f"values, or --max-cells {count}"
            )
        for values in product(*(self.vary[name] for name in names)):
            yield dict(zip(names, values, strict=True))

    def of_plan(self) -> PlanSettings:
        """Return the settings of a plan without what is varied."""
        return PlanSettings(**self.shared_with(PlanSettings))
