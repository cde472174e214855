"""The page of two plans: what the cost moved by, which inputs, which configurations."""

from collections.abc import Callable, Sequence
from typing import Any

from capplan.report.columns import (
    DASH,
    at,
    format_cents,
    format_count,
    format_share,
    plural,
    record,
    sign,
)
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table
from capplan.report.received.diff_causes import Cause, price_text
from capplan.report.received.plan_diff import (
    CandidateChange,
    Effects,
    LineChange,
    PlanDiff,
    Row,
)
from capplan.report.render.markdown import markdown

SCHEMA = "capplan.diff/1"

MOST_CHARACTERS = 65_536
"""Characters that a comment on GitHub may have."""

_MOST_CAUSES = 4
"""Inputs that a sentence names."""


def diff_page(diff: PlanDiff) -> Page:
    """Return the page of two plans, whose Markdown has ``MOST_CHARACTERS`` at most.

    Where not all rows fit, half of them are tried, and so on; JSON and CSV have all.
    """
    rows = max(len(diff.candidates), len(diff.causes))
    while True:
        page = _page(diff, rows)
        if len(markdown(page)) <= MOST_CHARACTERS or not rows:
            return page
        rows //= 2


def _page(diff: PlanDiff, most_rows: int) -> Page:
    best = diff.new.best or diff.old.best
    return Page(
        "diff",
        _headline(diff),
        f"{diff.new.llm} on {best.pools[0].gpu}" if best and best.pools else "",
        lead=_lead(diff),
        warnings=_warnings(diff),
        is_failure=diff.new.best is None,
        is_alone=True,
        sections=[
            _answers(diff),
            _effects(diff.effects),
            _causes(diff.causes, most_rows),
            _candidates(diff, most_rows),
        ],
        values=lambda: {"schema": SCHEMA, **record(fields("diff"), diff)},
        csv={"diff.csv": Table(fields("diff_row"), diff.candidates)},
    )


def signed_usd(amount_cents: int) -> str:
    """Return an amount to the cent with its sign.

    Examples
    --------
    >>> signed_usd(4017950), signed_usd(-5), signed_usd(0)
    ('+$40,179.50', '−$0.05', '$0.00')
    """
    return f"{sign(amount_cents)}{format_cents(abs(amount_cents) / 100)}"


def _headline(diff: PlanDiff) -> str:
    before, after = diff.old.usd_per_month, diff.new.usd_per_month
    if not diff.has_changed:
        return "Nothing changed"
    if diff.old.best is None and diff.new.best is None:
        return "No configuration holds the SLO, before or now"
    if diff.old.best is None:
        cost = "" if after is None else f", at {format_cents(after)} a month"
        return f"Feasible now{cost}; no configuration held the SLO before"
    if diff.new.best is None:
        cost = "" if before is None else f"; it cost {format_cents(before)} a month"
        return f"No configuration holds the SLO now{cost}"
    effects = diff.effects
    if effects is None or before is None or after is None:
        gpus = _arrow(diff.old.best.gpu_count, diff.new.best.gpu_count)
        return f"GPUs {gpus}; costs cannot be compared without a price on both sides"
    if not effects.total_cents:
        return f"Monthly cost unchanged at {format_cents(after)}"
    share = (
        "" if diff.share is None else f" ({100 * diff.share:+.1f} %)".replace("-", "−")
    )
    arrow = "↑" if effects.total_cents > 0 else "↓"
    return (
        f"Monthly cost {signed_usd(effects.total_cents)}{share} {arrow} "
        f"({format_cents(before)} → {format_cents(after)})"
    )


def _lead(diff: PlanDiff) -> str:
    if not diff.has_changed:
        return ""
    inputs = plural(len(diff.causes), "input")
    count, changed = len(diff.candidates), len(diff.changed_candidates)
    of = f"{changed:,} of {plural(count, 'configuration')}"
    return f"{inputs} changed, and with them {of}."


def _warnings(diff: PlanDiff) -> list[str]:
    texts = []
    for name, plan in (("OLD", diff.old), ("NEW", diff.new)):
        if plan.is_spoiled:
            texts.append(f"{name} was changed after capplan wrote it")
        if plan.document.get("interrupted"):
            texts.append(f"{name} was interrupted: not all of it was simulated")
        if plan.best is None and (why := plan.document.get("infeasible_reason")):
            texts.append(f"{name} is infeasible: {str(why)[:300]}")
    return texts


def _arrow(old: Any, new: Any) -> str:
    """Return ``2 → 3``; one of them where they are the same."""
    texts = [_known(value, str) for value in (old, new)]
    return texts[0] if texts[0] == texts[1] else " → ".join(texts)


def _answers(diff: PlanDiff) -> Section:
    """Return a table for each pool of the answers."""
    tables = []
    what, *values = fields("diff_answer")
    for line in diff.lines:
        columns = (what._replace(heading=f"{line.sign} {line.either}"), *values)
        tables.append(Table(columns, _rows(diff, line), note=_because(diff, line)))
    return Section("Answer", tables=tables)


def _because(diff: PlanDiff, line: LineChange) -> str:
    """Return what was asked differently, and what else differs of a pool."""
    asked = [str(cause) for cause in diff.causes[:_MOST_CAUSES]]
    if more := len(diff.causes) - len(asked):
        asked.append(f"{plural(more, 'more input')} that changed")
    texts = [] if line.sign == "=" else asked
    texts += [str(cause) for cause in line.causes]
    price = line.either.price
    if line.old and line.new and price and line.old.price == price:
        texts.append(f"price unchanged ({price_text(price)})")
    because = "because: " if line.sign != "=" and texts else ""
    return because + "; ".join(texts)


def _rows(diff: PlanDiff, line: LineChange) -> list[Row]:
    """Return what a pool is before and after; the last rows are of the whole plan."""
    pools = (line.old, line.new)

    def counts(what: str, of: str) -> Row:
        before, after = (pool and getattr(pool, of) for pool in pools)
        change = (after or 0) - (before or 0)
        texts = _known(before), _known(after)
        return Row(what, *texts, f"{change:+,g}" if change else "")

    rows = [counts("replicas", "replica_count"), counts("GPUs", "gpu_count")]
    known = [p for p in pools if p is not None and p.node_count is not None]
    if known:
        rows.append(counts(_nodes(line), "node_count"))
    if any(pool.stranded_gpus for pool in known):
        rows.append(counts("GPUs idle", "stranded_gpus"))
    change = ""
    if line.price_cents is not None and line.volume_cents is not None:
        moved = line.price_cents + line.volume_cents
        change = signed_usd(moved) if moved else ""
    before, after = (_known(p and p.usd_per_month, format_cents) for p in pools)
    rows.append(Row("$ per month", before, after, change))
    bests = (diff.old.best, diff.new.best)
    before, after = (_known(b and b.attained, format_share) for b in bests)
    plans = (diff.old, diff.new)
    asked = _arrow(*(plan.asked or None for plan in plans))
    what = "in time" + (f", asked {asked}" if any(p.asked for p in plans) else "")
    rows.append(Row(what, before, after))
    before, after = (_known(best and best.lower_bound_gpu_count) for best in bests)
    return [*rows, Row("GPUs, at least", before, after)]


def _nodes(line: LineChange) -> str:
    """Return the label of nodes, with the GPUs of each."""
    pools = [pool for pool in (line.old, line.new) if pool is not None]
    gpus = [round(p.gpus_paid / p.node_count) for p in pools if p.node_count]
    return f"nodes ({_arrow(gpus[0], gpus[-1])} GPUs)" if gpus else "nodes"


def _known(value: Any, show: Callable[[Any], str] = format_count) -> str:
    return DASH if value is None else show(value)


def _effects(effects: Effects | None) -> Section:
    if effects is None or not any(vars(effects).values()):
        return Section()
    parts = {
        "price, at the old count": effects.price_cents,
        "number of GPUs, at the new price": effects.volume_cents,
        "configurations added or removed": effects.rest_cents,
        "together": effects.total_cents,
    }
    rows = [Row(what, "", signed_usd(cents)) for what, cents in parts.items()]
    table = Table(fields("diff_effect"), rows)
    return Section("Why the cost moved", tables=[table])


def _left(count: int, most: int, what: str) -> str:
    left = count - most
    return "" if left <= 0 else f"{left:,} more {what}: --format json has all."


def _causes(causes: Sequence[Cause], most_rows: int) -> Section:
    note = _left(len(causes), most_rows, "inputs")
    table = Table(fields("diff_cause"), causes[:most_rows], note=note)
    return Section("Causes", tables=[table], is_folded=True)


def _candidates(diff: PlanDiff, most_rows: int) -> Section:
    rows = diff.changed_candidates
    best = diff.new.best.name if diff.new.best else None

    def style(row: CandidateChange) -> str:
        return "best" if row.name == best else ""

    note = _left(len(rows), most_rows, "configurations changed")
    table = Table(_CANDIDATE, rows[:most_rows], note=note, style=style)
    return Section("Configurations", tables=[table])


def _both(name: str) -> Any:
    def of(row: CandidateChange) -> str:
        values = [part and getattr(part, name) for part in (row.old, row.new)]
        return _arrow(*values)

    return of


def _moved(row: CandidateChange) -> str:
    before, after = (at(row, f"{side}.usd_per_month") for side in ("old", "new"))
    if before is None or after is None:
        return ""
    return signed_usd(round(100 * after) - round(100 * before))


_CANDIDATE = fields(
    "diff_change",
    status=_both("status"),
    GPUs=_both("gpu_count"),
    nodes=_both("node_count"),
    change=_moved,
)
"""Columns of the configurations that changed."""
