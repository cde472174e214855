"""The first screen of a what-if: what each plan costs, against the one asked first."""

from typing import Any

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.plan.throughput import WITHIN_SLO
from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report.columns import (
    at,
    format_count,
    format_fine_usd,
    format_share,
    plural,
)
from capplan.report.first_screen import (
    Way,
    dollars,
    held,
    in_few_words,
    is_assumed,
    is_unsure,
    no_answer,
    sure,
    test_one,
    unknown_price,
    ways,
)
from capplan.report.page import Answer, Said
from capplan.report.render.terminal import MOST_ROWS

_TRAFFIC = {
    "rate",
    "scale",
    "users",
    "sessions",
    "arrivals",
    "attainment",
    "slo",
    "slo-scale",
}
"""What is asked of a service; all else is chosen by who runs it."""
_WIDEST_REASON = 40
"""Letters of a reason in a row."""
_SURENESS = ("estimated", "checked", "measured")


def what_if_title(result: WhatIf) -> str:
    """Return the least and the most that plans cost, in a line of a fixed form."""
    ordered = _ordered(result)
    if not ordered:
        return f"None of {plural(len(result.cells), 'plan')} holds."
    low, high = ordered[0], ordered[-1]
    if low is high:
        return f"{_bill(low)} at {_named(result, low)}."
    if _bill(low) == _bill(high):
        return f"{_bill(low)} in each of {plural(len(ordered), 'plan')}."
    ends = [f"{_bill(cell)} at {_named(result, cell)}" for cell in (low, high)]
    return f"{', '.join(ends)}."


def what_if_subject(result: WhatIf) -> str:
    """Return the LLM and the limits, where they are alike, and the requests."""
    plans = [cell.plan for cell in result.cells if cell.plan is not None]
    llms = dict.fromkeys(cell.llm for cell in result.cells)
    slos = dict.fromkeys(f"{x.slo_text} for {x.attainment_text}" for x in plans)
    parts = [", ".join(llms), result.trace_source.partition(":")[0]]
    return " · ".join([*parts, *slos] if len(slos) == 1 else parts)


def what_if_lead(result: WhatIf) -> str:
    """Return how many plans hold, and how far their bills are apart, in a sentence."""
    ordered, all_of = _ordered(result), plural(len(result.cells), "plan")
    if not ordered:
        return f"None of {all_of} holds: {result.cells[0].reason}."
    text = f"{len(ordered):,} of {all_of} hold"
    low, high = _usd(ordered[0]), _usd(ordered[-1])
    if low > 0 and high > low:
        text += f"; the dearest costs {high / low:.3g} times the cheapest"
    return f"{text}."


def what_if_answer(result: WhatIf) -> Answer:
    """Return the first screen of a what-if."""
    base, ordered = chosen(result), _ordered(result)
    rows = [_row(result, cell, cell is base) for cell in _shown(result, base)]
    left = len(result.cells) - len(rows)
    what = held(any(cell.plan and cell.plan.sessions for cell in result.cells))
    named = ways(rows, ", ".join(map(_heading, varied(result))), told=what)
    if not ordered or base is None:
        misses = Said("misses", "in each plan")
        return no_answer(misses, Said("relax what is missed"), named)
    more = (f"{plural(left, 'more plan')}: --explain candidates",) * bool(left)
    return Answer(
        _bought(ordered),
        _cost(ordered),
        _peak(result),
        _sure(ordered, base),
        _next(result, ordered, base),
        named,
        more,
        what,
    )


def varied(result: WhatIf) -> list[str]:
    """Return what takes several values; the only value is that of all plans."""
    return [name for name, texts in result.vary.items() if texts[1:]] or [*result.vary]


def _best(cell: Cell) -> Candidate:
    assert cell.best is not None
    return cell.best


def _ordered(result: WhatIf) -> list[Cell]:
    """Return the cells that hold, by their bill; by GPUs where one has no price."""
    held = [cell for cell in result.cells if cell.best is not None]
    by_usd = all(_best(cell).cost is not None for cell in held)
    return sorted(held, key=lambda x: _usd(x) if by_usd else _best(x).gpu_count or 0)


def _usd(cell: Cell) -> float:
    cost = _best(cell).cost
    return 0.0 if cost is None else cost.usd_per_month


def _bill(cell: Cell) -> str:
    best = _best(cell)
    if best.cost is None:
        return plural(best.gpu_count or 0, "GPU")
    return f"{dollars(best.cost.usd_per_month, is_assumed(best.cost))} a month"


def _heading(name: str) -> str:
    return {"rate": "requests/s", "llm": "LLM", "slo-scale": "limits"}.get(name, name)


def _told(name: str, text: str) -> str:
    """Return a value as people say it: "2 × the traffic", "300 requests/s"."""
    if text.startswith("x") and name in ("rate", "scale"):
        return f"{text[1:]} × the traffic"
    if name == "slo-scale":
        return f"limits × {text}"
    return f"{text} requests/s" if name == "rate" else f"{name} {text}"


def _named(result: WhatIf, cell: Cell) -> str:
    return ", ".join(_told(name, cell.values[name]) for name in varied(result))


def _is_base(result: WhatIf, cell: Cell) -> bool:
    """Return whether a cell is the plan that was asked before anything is varied."""
    return all(
        text == "x1"
        or (name == "slo-scale" and text == "1")
        or text == str(result.settings.get(name.replace("-", "_")))
        for name, text in cell.values.items()
    )


def chosen(result: WhatIf) -> Cell | None:
    """Return the cell against which others are told: what was asked, else the first."""
    held = [cell for cell in result.cells if cell.best is not None]
    base = [cell for cell in held if _is_base(result, cell)]
    return next(iter([*base, *held]), None)


def _shown(result: WhatIf, chosen: Cell | None) -> list[Cell]:
    shown = list(result.cells[:MOST_ROWS])
    if chosen is not None and chosen not in shown:
        shown[-1] = chosen
    return shown


def _row(result: WhatIf, cell: Cell, is_chosen: bool) -> Way:
    name, best = ", ".join(cell.values[name] for name in varied(result)), cell.best
    if best is None or best.run is None:
        return Way(
            name, "", None, f"misses: {in_few_words(cell.reason, _WIDEST_REASON)}"
        )
    attained = best.run.judgement.attainment
    share = "" if attained is None else f", {format_share(attained.share)} in time"
    usd = None if best.cost is None else best.cost.usd_per_month
    star = is_assumed(best.cost)
    gpus = f"{best.gpu_count:,}"
    return Way(name, gpus, usd, f"holds{share}", is_chosen, is_assumed=star)


def _span(low: Any, high: Any) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _bought(ordered: list[Cell]) -> Said:
    counts = sorted(_best(cell).gpu_count or 0 for cell in ordered)
    kinds = dict.fromkeys(str(_best(cell)) for cell in ordered)
    alike = f"{next(iter(kinds))} in all" if len(kinds) == 1 else ", ".join(kinds)
    gpus = "GPU" if counts[-1] == 1 else "GPUs"
    return Said(f"{_span(f'{counts[0]:,}', f'{counts[-1]:,}')} {gpus}", alike)


def _cost(ordered: list[Cell]) -> Said:
    usd = [at(cell, "best.cost.usd_per_month") for cell in ordered]
    if None in usd:
        return unknown_price(_best(ordered[0]).gpu)
    tokens = [at(cell, "best.cost.usd_per_million_output_tokens") for cell in ordered]
    known, per = [each for each in tokens if each is not None], ""
    if known:
        ends = map(format_fine_usd, (min(known), max(known)))
        per = f"{_span(*ends)} per million output tokens"
    return Said(f"{_span(dollars(usd[0]), dollars(usd[-1]))} a month", per)


def _peak(result: WhatIf) -> Said:
    missing = [cell for cell in result.cells if cell.best is None]
    if not missing:
        return Said(f"holds in all {len(result.cells):,}")
    first = f"{_named(result, missing[0])}: {in_few_words(missing[0].reason)}"
    return Said(f"misses in {len(missing):,} of {len(result.cells):,}", first)


def _sure(ordered: list[Cell], chosen: Cell) -> Said:
    """Return how sure the marked plan is, and the least sure of all."""
    said = sure(_best(chosen))
    least = min((_best(cell).sureness for cell in ordered), key=_SURENESS.index)
    others = "" if said.short.startswith(least) else f"another is {least}"
    return Said(said.short, " · ".join(filter(None, (said.more, others))))


def _next(result: WhatIf, ordered: list[Cell], chosen: Cell) -> Said:
    saved = _usd(chosen) - _usd(ordered[0])
    if saved >= 0.5 and not _TRAFFIC & set(varied(result)):
        return Said(
            f"take {_named(result, ordered[0])}", f"saves {dollars(saved)} a month"
        )
    rows = () if chosen.plan is None else chosen.plan.throughput
    carried = next((row.rate_per_s for row in rows if row.what == WITHIN_SLO), None)
    if carried is not None:
        said = f"plan again at {format_count(carried)} requests/s"
        return Said(said, "more than that takes another replica")
    if is_unsure(_best(chosen)):
        return test_one(_best(chosen))
    return Said("plan the one that you take", "capplan plan writes its proof and files")
