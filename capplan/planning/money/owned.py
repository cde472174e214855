"""Owned nodes: what an hour of a GPU costs over their life, and its energy."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from capplan.errors import InputError, nearest
from capplan.fleet.catalog import gpu as catalog_gpu
from capplan.fleet.catalog import gpu_names
from capplan.planning.money.cost import HOURS_PER_YEAR

POWER_PER_TDP = 10_200 / 5_600
"""Power of a node over the rated power of its GPUs: a DGX H100, 10.2 kW of 8 x 700 W.

An independent study of 2026-07 (servnetuk.com) gives the same most."""

DRAW, PUE = 0.75, 1.54
"""Share of a node's most power that it draws; power of the site over that of its
machines: the weighted average of Uptime Institute's survey of 2025."""


def _input(
    low: float, high: float, unit: str, source: str, default: Any = MISSING
) -> Any:
    """Return an input: what it may be, its unit, and range and source of a default."""
    about = {"ends": (low, high), "unit": unit, "source": source}
    return field(default=default, metadata=about)


_CAPEX = "270,000 to 350,000 for 8 x H100: SemiAnalysis 2023-05"
_LIFE = "3 to 6: Amazon 5, Meta 5.5, Microsoft and Alphabet 6"
_KW = "10.2 for a DGX H100; else rated power x 1.82"
_PUE = "1.1 to 1.8; Uptime Institute's survey of 2025, 1.54 on average"
_POWER = "0.08 to 0.22; US commercial, EIA Electric Power Monthly"
_SITE = "150 to 250; in place of space and power"
_ASKED = "not included unless given"


@dataclass(frozen=True)
class Owned:
    """A node that is bought, and what it takes to run it."""

    capex: float = _input(0, 1e9, "$ of a node", _CAPEX)
    gpus: int = _input(1, 10_000, "GPUs of a node", "")
    kw: float = _input(0, 10_000, "kW of a node at most", _KW)
    network: float = _input(
        0, 10, "share of capex", "0.10 to 0.15; a weak page of 2026", 0.12
    )
    life: float = _input(0.25, 50, "years", _LIFE, 5.0)
    residual: float = _input(0, 1, "share of capex", "0 to 0.25, assumed", 0.0)
    wacc: float = _input(0, 1, "a year", "assumed", 0.08)
    support: float = _input(0, 1, "share of capex a year", _ASKED, 0.0)
    staff: float = _input(0, 1e9, "$ a year and node", _ASKED, 0.0)
    space: float = _input(0, 1e9, "$ a year and node", _ASKED, 0.0)
    draw: float = _input(0, 1, "share of it", "assumed", DRAW)
    pue: float = _input(1, 5, "", _PUE, PUE)
    usd_per_kwh: float = _input(0, 10, "$", _POWER, 0.146)
    # None: own site
    colocation: float | None = _input(0, 1e6, "$ a month and kW", _SITE, None)

    def __post_init__(self) -> None:
        """Refuse a node that nobody can buy."""
        for each in fields(self):
            value, (low, high) = getattr(self, each.name), each.metadata["ends"]
            if value is not None and not low <= value <= high:
                raise InputError(
                    f"owned: {each.name} is {value:g}; expected {low:g} to {high:g}"
                )

    def usd_per_node_year(self, *, straight_line: bool = False) -> dict[str, float]:
        """Return dollars of a node and year, by what they are for.

        Capital by the capital recovery factor, less what the residual is worth today;
        or, as finance books it, in equal parts over its life without interest. [$]
        """
        paid = self.capex * (1 + self.network)
        if straight_line:
            capital = (paid - self.residual * self.capex) / self.life
        else:
            left = self.residual * self.capex * (1 + self.wacc) ** -self.life
            capital = (paid - left) * capital_recovery(self.wacc, self.life)
        parts = {
            "capital": capital,
            "support": self.support * self.capex,
            "staff": self.staff,
        }
        if self.colocation is not None:
            return parts | {"colocation": self.colocation * self.kw * 12}
        power = kwh(HOURS_PER_YEAR, self.kw, self.draw, self.pue)
        return parts | {"space": self.space, "power": power * self.usd_per_kwh}

    def usd_per_gpu_h(self, *, straight_line: bool = False) -> float:
        """Return dollars of a GPU-hour, used or not. [$]"""
        year = self.usd_per_node_year(straight_line=straight_line)
        return sum(year.values()) / (HOURS_PER_YEAR * self.gpus)

    def break_even(self, rent_usd_per_gpu_h: float) -> float:
        """Return the share of hours from which owning is cheaper; above 1, never."""
        return self.usd_per_gpu_h() / rent_usd_per_gpu_h


def capital_recovery(wacc: float, years: float) -> float:
    """Return the level yearly payment that repays 1 over some years.

    Examples
    --------
    >>> round(capital_recovery(0.08, 4), 5), capital_recovery(0, 4)
    (0.30192, 0.25)
    """
    return wacc / (1 - (1 + wacc) ** -years) if wacc > 0 else 1 / years


def kwh(node_hours: float, kw: float, draw: float, pue: float) -> float:
    """Return the energy of nodes that are on, with that of their site. [kWh]"""
    return node_hours * kw * draw * pue


def rated_kw(gpu: str, gpus: int) -> float | None:
    """Return the most power of a node by its GPUs' rated power, where known. [kW]"""
    if gpu not in gpu_names():
        return None
    return gpus * catalog_gpu(gpu).tdp_w * POWER_PER_TDP / 1000


def parse_owned(text: str) -> dict[str, float]:
    """Return the inputs of ``capex=300000,life=5``; of ``default``, none.

    Examples
    --------
    >>> parse_owned("capex=300000,life=5")
    {'capex': 300000.0, 'life': 5.0}
    """
    if text.strip() == "default":
        return {}
    given: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in (known := [each.name for each in fields(Owned)]):
            raise InputError(
                f"owned: {name!r} is no input{nearest(name, known)}; expected some "
                f"of {', '.join(known)}"
            )
        if name in given:
            raise InputError(f"owned: {name} is given twice")
        try:
            given[name] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"owned: {part!r}; expected a number, as in {name}=5")
    return given


def owned_node(given: Mapping[str, float], gpu: str, wacc: float) -> Owned:
    """Return a node of a GPU type, by what is given of it and the defaults."""
    if given.get("gpus", 8) % 1:
        raise InputError(f"owned: gpus is {given['gpus']:g}; expected a whole number")
    gpus = int(given.get("gpus", 8))
    kw = given.get("kw", rated_kw(gpu, gpus))
    if kw is None:
        raise InputError(f"owned: the power of {gpu or 'a GPU'}: give kw=KW")
    values: dict[str, Any] = {"wacc": wacc, **given, "gpus": gpus, "kw": kw}
    if "capex" not in values:
        if (gpu, gpus) != ("H100-SXM", 8):
            raise InputError(
                f"owned: no price of a node of {gpus} {gpu or 'such GPUs'} is known; "
                "give capex=DOLLARS"
            )
        values["capex"] = 300_000.0
    return Owned(**values)


def defaults_of(node: Owned, given: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Return name, value and source of each input that was not given."""
    return [
        (
            f"owned: {each.name}",
            f"{value:g} {each.metadata['unit']}".strip(),
            each.metadata["source"],
        )
        for each in fields(node)
        if each.name not in given and each.name != "gpus"
        if (value := getattr(node, each.name)) is not None
    ]
