"""Why bills of a what-if differ: what each step of a lever costs, the dearest first."""

from collections import Counter
from itertools import pairwise

from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report.columns import at, format_list, plural, sign
from capplan.report.first_screen import dollars
from capplan.report.page import Fact
from capplan.report.sentences import limited
from capplan.report.what_if_answer import chosen, varied

_USD, _GPUS = "best.cost.usd_per_month", "best.gpu_count"


def what_if_why(result: WhatIf) -> list[Fact]:
    """Return which lever moves the answer most and which not, each step, and the limit.

    Of one lever at a time: the others stay as in the plan against which rows are told.
    """
    base, held = chosen(result), [cell for cell in result.cells if cell.best]
    if base is None:
        return []
    path = _GPUS if any(at(cell, _USD) is None for cell in held) else _USD
    levers = {name: _along(result, base, name) for name in varied(result)}
    spans = {name: _span(cells, path) for name, cells in levers.items()}
    still = [
        name
        for name, cells in levers.items()
        if not spans[name] and all(cell.best for cell in cells)
    ]
    ranked = sorted((x for x in levers if x not in still), key=lambda x: -spans[x])
    most = ""
    if ranked and len(levers) > 1 and spans[ranked[0]]:
        most = f"{ranked[0]}, by {_amount(spans[ranked[0]], path)}"
    return [
        ("moves the answer most", most),
        *((name, _steps(levers[name], name, path)) for name in ranked),
        ("moves nothing", format_list(still)),
        ("limited by", _limits(held)),
    ]


def _along(result: WhatIf, base: Cell, name: str) -> list[Cell]:
    """Return the plans that differ from one in a lever alone, in its order."""
    others = {key: text for key, text in base.values.items() if key != name}
    return [cell for cell in result.cells if others.items() <= cell.values.items()]


def _span(cells: list[Cell], path: str) -> float:
    """Return how far the bills that a lever reaches are apart; under a dollar none."""
    known = [at(cell, path) for cell in cells if cell.best]
    apart = max(known) - min(known)
    return float(apart) if apart >= 1 else 0.0


def _amount(value: float, path: str) -> str:
    return f"{dollars(value)} a month" if path == _USD else plural(int(value), "GPU")


def _steps(cells: list[Cell], name: str, path: str) -> str:
    """Return what each value costs beside the one before; of those that hold."""
    texts = []
    for before, after in pairwise(cell for cell in cells if cell.best):
        change, gpus = (at(after, x) - at(before, x) for x in (path, _GPUS))
        text = f"{sign(change)}{_amount(abs(change), path)}"
        if path == _USD and gpus:
            text += f" ({sign(gpus)}{plural(abs(gpus), 'GPU')})"
        texts.append(f"{before.values[name]} → {after.values[name]}: {text}")
    for cell in cells:
        if cell.best is None:
            status = "misses" if cell.status == "infeasible" else cell.status
            texts.append(f"{cell.values[name]}: {status}")
    return "; ".join(texts)


def _limits(held: list[Cell]) -> str:
    """Return what keeps plans from fewer GPUs, and how many of them."""
    found = Counter(limited(at(cell, "best.binding") or "") for cell in held)
    del found[""]
    if len(found) == 1 and found.total() == len(held):
        return next(iter(found))
    return "; ".join(f"{text} ({plural(n, 'plan')})" for text, n in found.items())
