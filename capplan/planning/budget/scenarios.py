"""Named scenarios of a budget: other traffic, growth, answers and prices."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from capplan.errors import InputError
from capplan.planning.budget.growth import growth_text, parse_growth

MOST_SCENARIOS = 8
MOST_FACTOR = 100.0
"""Factors above it, and below one over it, are taken for another unit."""


@dataclass(frozen=True)
class Scenario:
    """What one scenario changes; factors are on what the budget has without it."""

    growth: str | None = None  # in place of the budget's
    scale: float = 1.0  # of the requests
    output_scale: float = 1.0  # of the answers' lengths
    price: float = 1.0  # of what is bought from now on

    def __str__(self) -> str:
        """Return ``growth 5%/month, scale 1.5``; of one that changes nothing a dash."""
        parts = [f"growth {self.growth}"] if self.growth else []
        for name in ("scale", "output_scale", "price"):
            factor = getattr(self, name)
            parts += [f"{name} {factor:g}"] if factor != 1 else []
        return ", ".join(parts) or "as asked"


AS_ASKED = Scenario()
_KEYS = tuple(field.name for field in fields(Scenario))


def scenarios_by_name(value: Any) -> Any:
    """Return the mapping of mappings that ``NAME:KEY=V,KEY=V`` texts stand for."""
    if isinstance(value, Mapping):
        return {str(name): changed or {} for name, changed in value.items()}
    found: dict[str, dict[str, Any]] = {}
    for text in value if isinstance(value, list | tuple) else [value]:
        name, _, rest = str(text).partition(":")
        if name.strip() in found:
            raise ValueError(f"{name.strip()} is given twice; expected once")
        found[name.strip()] = _pairs(rest)
    return found


def _pairs(text: str) -> dict[str, Any]:
    """Return keys and values; parts of a growth keep their own commas."""
    pairs: dict[str, Any] = {}
    last = ""
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if equals and key in ("users", "requests", "tokens") and last == "growth":
            pairs["growth"] += f",{part}"
            continue
        if not equals:
            raise ValueError(f"{part!r} is no change; expected KEY=VALUE")
        if key in pairs:
            raise ValueError(f"{key} is given twice; expected once")
        pairs[key], last = value, key
    return pairs


def parse_scenarios(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Scenario]:
    """Return scenarios by their name."""
    if len(given) > MOST_SCENARIOS:
        raise InputError(f"{len(given)} scenarios; expected at most {MOST_SCENARIOS}")
    return {name: _scenario(name, changed) for name, changed in given.items()}


def _scenario(name: str, changed: Mapping[str, Any]) -> Scenario:
    if not name.strip():
        raise InputError("a scenario has no name; expected one such as high")
    values: dict[str, Any] = {}
    for key, value in changed.items():
        if key not in _KEYS:
            raise InputError(f"{name}: {key!r} is no key; expected {', '.join(_KEYS)}")
        if key == "growth":
            values[key] = growth_text(value)
            try:
                parse_growth(values[key])
            except InputError as error:
                raise InputError(f"{name}: {error}") from None
        else:
            values[key] = _factor(name, key, value)
    return Scenario(**values)


def _factor(name: str, key: str, value: Any) -> float:
    try:
        factor = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        factor = math.nan
    if not 1 / MOST_FACTOR <= factor <= MOST_FACTOR:
        raise InputError(
            f"{name}: {key} is {value!r}; expected a factor from "
            f"{1 / MOST_FACTOR:g} to {MOST_FACTOR:g}"
        )
    return factor
