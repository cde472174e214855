"""Owned nodes: what an hour of a GPU costs over their life, and its energy."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
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

SOURCES = {
    "capex": ("$ of a node", "270,000 to 350,000 for 8 x H100: SemiAnalysis 2023-05"),
    "network": ("share of capex", "0.10 to 0.15; a weak page of 2026"),
    "life": ("years", "3 to 6: Amazon 5, Meta 5.5, Microsoft and Alphabet 6"),
    "residual": ("share of capex", "0 to 0.25, assumed"),
    "wacc": ("a year", "assumed"),
    "support": ("share of capex a year", "not included unless given"),
    "staff": ("$ a year and node", "not included unless given"),
    "space": ("$ a year and node", "not included unless given"),
    "kw": ("kW of a node at most", "10.2 for a DGX H100; else rated power x 1.82"),
    "draw": ("share of it", "assumed"),
    "pue": ("", "1.1 to 1.8; Uptime Institute's survey of 2025, 1.54 in the mean"),
    "usd_per_kwh": ("$", "0.08 to 0.22; US commercial, EIA Electric Power Monthly"),
    "colocation": ("$ a month and kW", "150 to 250; in place of space and power"),
    "gpus": ("GPUs of a node", ""),
}
"""Unit of each input; range and source of its default."""


@dataclass(frozen=True)
class Owned:
    """A node that is bought, and what it takes to run it."""

    capex: float  # of a node [$]
    gpus: int
    kw: float  # most power of a node [kW]
    network: float = 0.12  # on top of the capex, as a share of it
    life: float = 5.0  # [years]
    residual: float = 0.0  # of the capex at the end of its life
    wacc: float = 0.08  # cost of capital, a year
    support: float = 0.0  # of the capex, a year
    staff: float = 0.0  # [$ a year and node]
    space: float = 0.0  # [$ a year and node]
    draw: float = DRAW  # of the most power
    pue: float = PUE
    usd_per_kwh: float = 0.146
    colocation: float | None = None  # of each kW and month; None: own site [$]

    def __post_init__(self) -> None:
        """Refuse a node that nobody can buy."""
        for name, low, high in (
            ("capex", 0, 1e9),
            ("gpus", 1, 10_000),
            ("kw", 0, 10_000),
            ("network", 0, 10),
            ("life", 0.25, 50),
            ("residual", 0, 1),
            ("wacc", 0, 1),
            ("support", 0, 1),
            ("staff", 0, 1e9),
            ("space", 0, 1e9),
            ("draw", 0, 1),
            ("pue", 1, 5),
            ("usd_per_kwh", 0, 10),
            ("colocation", 0, 1e6),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InputError(
                    f"owned: {name} is {value:g}; expected {low:g} to {high:g}"
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
        """Return the share of the hours from which on owning is cheaper than renting.

        Above 1, never.
        """
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
    """Return the most power of a node by the rated power of its GPUs. [kW]

    None where the catalog does not have them.
    """
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
        if name not in SOURCES:
            raise InputError(
                f"owned: {name!r} is no input{nearest(name, SOURCES)}; expected some "
                f"of {', '.join(SOURCES)}"
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
    found = []
    for field in fields(node):
        value = getattr(node, field.name)
        if field.name in given or value is None or field.name == "gpus":
            continue
        unit, source = SOURCES[field.name]
        found.append((f"owned: {field.name}", f"{value:g} {unit}".strip(), source))
    return found
