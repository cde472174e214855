"""The factor on iteration times that a backtest found of a fleet that runs."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from capplan.errors import InputError
from capplan.input_file import parse_json, read_text

SCHEMA = "capplan.backtest/1"
_FORM = re.compile(r"([\d.]+)\[([\d.]+),([\d.]+)\]@(.*)")


class MeasuredFactor(NamedTuple):
    """Times of iterations that were measured over those assumed, with its interval."""

    value: float
    low: float
    high: float
    of: str = ""  # LLM, GPU and layout; empty: of any

    def __str__(self) -> str:
        return f"{self.value:.6g}[{self.low:.6g},{self.high:.6g}]@{self.of}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what stands in a backtest.json, or in such a text.

        Examples
        --------
        >>> str(MeasuredFactor.parse("1.12[1.04,1.19]@L/H100-SXM/tp1"))
        '1.12[1.04,1.19]@L/H100-SXM/tp1'
        """
        if found := _FORM.fullmatch(text):
            value, low, high = (float(found[k]) for k in (1, 2, 3))
            factor = cls(value, low, high, found[4])
        else:
            path = Path(text, "backtest.json") if Path(text).is_dir() else Path(text)
            factor = cls._read(path, parse_json(path, read_text(path)))
        if not 0.05 <= factor.low <= factor.value <= factor.high <= 20:
            raise InputError(
                f"{text}: φ is {factor}; expected low ≤ value ≤ high, near 1"
            )
        return factor

    @classmethod
    def _read(cls, path: Path, document: Any) -> Self:
        if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
            raise InputError(f"{path}: expected a backtest.json of capplan backtest")
        try:
            phi, of = document["phi"], document["deployment"]
            if phi is None:
                raise InputError(f"{path}: every window was saturated, so it has no φ")
            names = of["llm"], of["gpu"], of["layout"]
            value = float(phi["value"])
            low, high = (float(phi[name] or value) for name in ("low", "high"))
            return cls(value, low, high, "/".join(names))
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path}: its phi or deployment is malformed") from None


def factor_text(text: str) -> str:
    """Return a backtest as the settings of a result hold it, without the file."""
    return str(MeasuredFactor.parse(text))


def is_factor(text: str) -> bool:
    """Return whether a text is such a one, and names no file."""
    return _FORM.fullmatch(text) is not None
