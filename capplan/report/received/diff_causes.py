"""Inputs that differ between two plans: what was asked, and what it rests on."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from capplan.report.columns import format_count, format_fine_usd
from capplan.report.received.plan_figures import PlanFigures, PoolFigures, shortened

DEFAULT = "default"
"""Stands for a setting that is not given."""

_TRAFFIC = {
    "rate_per_s": "requests/s",
    "request_count": "requests",
    "mean_prompt_tokens": "mean prompt tokens",
    "mean_output_tokens": "mean output tokens",
}
_OF_RATE = ("rate_per_s", "request_count")
"""What follows from the rate, or the scale, that was asked for."""
_SHA_CHARACTERS = 12
_MOST_CHARACTERS = 60
_LARGEST = 1e15
"""Number that is written out in full."""


class Cause(NamedTuple):
    """An input that differs."""

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what} {self.old} → {self.new}"


def causes_of_plan(old: PlanFigures, new: PlanFigures) -> tuple[Cause, ...]:
    """Return what the plans were asked differently, and the requests if they differ."""
    settings = [plan.document["settings"] for plan in (old, new)]
    shas = [plan.document.get("trace_sha256") for plan in (old, new)]
    is_same_trace = shas[0] is not None and shas[0] == shas[1]
    rows = [
        row
        for row in _differing("", *settings)
        if not (row.what == "trace" and is_same_trace)  # moved, its content is the same
    ]
    if not is_same_trace and None not in shas:
        texts = [f"sha256 {str(sha)[:_SHA_CHARACTERS]}" for sha in shas]
        rows.append(Cause("content of the trace", *texts))
    named = {row.what for row in rows}
    rows += [
        _cause(words, *values)
        for name, words in _TRAFFIC.items()
        if not (name in _OF_RATE and named & {"rate", "scale"})
        and _differ(*(values := [p.document.get(name) for p in (old, new)]))
    ]
    return tuple(rows)


def causes_of_line(old: PoolFigures, new: PoolFigures) -> tuple[Cause, ...]:
    """Return how a pool's price, iteration times and engine differ."""
    rows = []
    if old.price != new.price:
        rows.append(Cause("price", price_text(old.price), price_text(new.price)))
    if old.node != new.node:
        rows.append(Cause("node", old.node or "not known", new.node or "not known"))
    rows += _differing("profile: ", old.profile, new.profile)
    rows += _differing("engine: ", old.engine, new.engine)
    return tuple(rows)


def price_text(price: Mapping[str, Any]) -> str:
    """Return a price with its source and its day."""
    usd = price.get("usd_per_gpu_h")
    if not isinstance(usd, int | float) or not abs(usd) < _LARGEST:
        return "none"
    rest = [str(price[key]) for key in ("source", "as_of") if price.get(key)]
    return shortened(", ".join([f"{format_fine_usd(usd)}/GPU-h", *rest]))


def _differing(
    prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterable[Cause]:
    """Return the keys of two objects under which their values differ."""
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        objects = [part for part in (before, after) if part is not None]
        if objects and all(isinstance(part, Mapping) for part in objects):
            name = f"{prefix}{shortened(str(key))} "
            yield from _differing(name, before or {}, after or {})
        elif _differ(before, after):
            yield _cause(prefix + shortened(str(key)), before, after)


def _cause(what: str, old: Any, new: Any) -> Cause:
    before, after = _text(old), _text(new)
    if before == after:  # they differ further on
        before, after = (_end(json.dumps(value)) for value in (old, new))
    return Cause(what, before, after)


def _end(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"…{text[-_MOST_CHARACTERS:]}"


def _differ(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return not math.isclose(old, new, rel_tol=1e-9)
    return bool(old != new)


def _text(value: Any) -> str:
    """Return a value of JSON as people read it."""
    if value is None:
        return DEFAULT
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float) and abs(value) < _LARGEST:
        return format_count(value)
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, list) and not any(isinstance(x, dict | list) for x in value):
        return shortened(", ".join(map(_text, value)))
    return shortened(json.dumps(value, ensure_ascii=False))
