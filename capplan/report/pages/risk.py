"""What a plan's page says of its risk: the distribution of replicas, nodes and $."""

from collections.abc import Callable, Sequence

from capplan.planning.risk.draws import DrawnInput
from capplan.planning.risk.result import CountShare, Risk, RiskLevel, Swing
from capplan.report.charts.svg_bars import Bar, bars
from capplan.report.columns import format_count, format_share
from capplan.report.fields import fields
from capplan.report.page import Fact, Figure, Section, Table
from capplan.report.sentences import plural
from capplan.units import format_usd

_KNOWING = {
    "days": "a second week of trace",
    "profile": "measuring your own profile",
    "lengths": "more requests of your own",
    "growth": "a surer forecast of the rate",
    "output": "a surer forecast of answer lengths",
    "all": "all of it",
}
_MOST_BARS = 24
"""Bars of a histogram; with more counts, several share one."""


def risk_section(risk: Risk) -> Section:
    """Return the distribution of a plan's replicas."""

    def style(row: RiskLevel) -> str:
        return "best" if row is risk.at_quantile else ""

    table = Table(_LEVELS, levels_of(risk), style=style)
    return Section(
        f"Risk: {plural(risk.draw_count, 'draw')}",
        facts=_facts(risk),
        tables=[table, Table(_SWINGS, risk.swings, title="One input at a time")],
        figures=lambda: [histogram(risk), *([tornado(risk)] if risk.swings else [])],
        notes=[
            f"{plural(risk.run_count, 'fleet')} simulated. All counts of a draw use "
            "the same random seed. The proof is of the plan, not of the draws."
        ],
    )


def draws_table(risk: Risk | None) -> Table:
    """Return a row for each draw; none where nothing was drawn."""
    return Table(_DRAWS, risk.rows if risk else ())


def levels_of(risk: Risk) -> list[RiskLevel]:
    """Return the quantiles that are told, the one asked for among them."""
    asked = risk.at_quantile
    others = [level for level in risk.levels if level.quantile != asked.quantile]
    return sorted([*others, asked], key=lambda level: level.quantile)


def level_name(quantile: float) -> str:
    """Return ``P90``.

    Examples
    --------
    >>> level_name(0.9), level_name(0.995)
    ('P90', 'P99.5')
    """
    return f"P{100 * quantile:.6g}"


def _facts(risk: Risk) -> list[Fact]:
    asked = risk.at_quantile.replica_count
    needed = "none found" if asked is None else format_count(asked)
    served = f"the planned {risk.planned_replica_count:,} hold in "
    served += f"{format_share(risk.planned_share)} of the draws"
    of_draws = f"in {format_share(risk.quantile)} of the draws"
    attained = f"{format_share(risk.planned_attainment)} or more in time {of_draws}"
    none = risk.unserved_draw_count
    return [
        ("replicas", f"{level_name(risk.quantile)} {needed} (asked); {served}"),
        ("planned fleet", attained),
        *((f"drawn: {each.name}", _drawn(each)) for each in risk.inputs),
        ("knowing more", worth(risk)),
        ("no count holds in", plural(none, "draw") if none else ""),
    ]


def worth(risk: Risk) -> str:
    """Return what knowing each input is worth in a month, or why it is not told."""
    if risk.unused_usd_per_month is None or risk.missing_usd_per_month is None:
        return f"not known: {risk.unknown_worth}"
    (what, usd), *others = [
        (_KNOWING.get(row.name, row.name), format_usd(row.usd_per_month, 0))
        for row in risk.worth
    ]
    answer = f"{what.capitalize()} is worth up to {usd} a month"
    answer = "; ".join([answer, *(f"{what} {usd}" for what, usd in others)])
    unit = "node" if risk.at_quantile.node_count is not None else "GPU"
    unused, missing = risk.unused_usd_per_month, risk.missing_usd_per_month
    return (
        f"{answer}. A {unit} not needed costs {format_usd(unused)} a month, one "
        f"missing {format_usd(missing)}"
    )


def _drawn(each: DrawnInput) -> str:
    what = {"profile": "of the planned load a replica", "growth": "of the rate"}
    if each.between is None:
        return each.how
    low, high = each.between
    of = what.get(each.name, "of the answer lengths")
    return f"{low:.3g} to {high:.3g} {of}, in 80 % of the draws, {each.how}"


def histogram(risk: Risk) -> Figure:
    """Return the draws by the replicas that they need, the asked quantile marked."""
    asked, planned = risk.at_quantile.replica_count, risk.planned_replica_count
    marked = (("planned", planned), (level_name(risk.quantile), asked))
    rows = []
    for group in _grouped(risk.counts):
        low, high = group[0].replica_count, group[-1].replica_count
        draws = sum(row.draw_count for row in group)
        marks = [name for name, at in marked if at is not None and low <= at <= high]
        counts = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        name = ", ".join([*marks, counts])
        text = f"{draws:,} ({format_share(group[-1].share_at_most)})"
        is_asked = asked is not None and low <= asked <= high
        rows.append(Bar(name, float(draws), text, stands_out=is_asked))
    if draws := risk.unserved_draw_count:
        rows.append(Bar("none found", float(draws), f"{draws:,}"))
    title = "Draws by the replicas that they need"
    caption = (
        "Each bar: the draws that need this many replicas, and in brackets the share "
        f"that they serve. {level_name(risk.quantile)} was asked for."
    )
    return Figure(title, bars(title, rows), caption=caption)


def tornado(risk: Risk) -> Figure:
    """Return what each input alone does to the bill, or without prices to replicas."""
    in_usd = all(None not in row.usd_per_month for row in risk.swings)
    rows = []
    for row in risk.swings:
        pair = row.usd_per_month if in_usd else row.replica_counts
        known = sorted(float(value) for value in pair if value is not None)
        if len(known) < 2:
            rows.append(Bar(row.name, None, "no count found"))
            continue
        low, high = known
        rows.append(Bar(row.name, high, _span(row), start=low))
    of = "$ per month" if in_usd else "replicas"
    title = f"What each input alone does to the {of}"
    caption = (
        "Each input from its low to its high end (80 % of the draws lie between); all "
        "others as planned."
    )
    return Figure(title, bars(title, rows), caption=caption)


def _span(row: Swing) -> str:
    """Return from how many to how many nodes a swing goes, or replicas."""
    for noun, pair in (("nodes", row.node_counts), ("replicas", row.replica_counts)):
        known = sorted(value for value in pair if value is not None)
        if len(known) == 2:
            if known[0] == known[1]:
                return f"{known[0]:,.6g} {noun} at both ends"
            return f"{known[0]:,.6g}–{known[1]:,.6g} {noun}"
    return ""


def _grouped(counts: Sequence[CountShare]) -> list[list[CountShare]]:
    """Return the counts, neighbours together where there are many."""
    if not counts:
        return []
    first, last = counts[0].replica_count, counts[-1].replica_count
    width = -(-(last - first + 1) // _MOST_BARS)
    groups: dict[int, list[CountShare]] = {}
    for row in counts:
        groups.setdefault((row.replica_count - first) // width, []).append(row)
    return list(groups.values())


def _pair(
    pair: tuple[float | None, float | None], show: Callable[[float], str] = format_count
) -> str:
    return " and ".join("none" if value is None else show(value) for value in pair)


_LEVELS = fields("risk_level", level=level_name)
_SWINGS = fields(
    "swing", nodes=_span, pair=_pair, usd_pair=lambda pair: _pair(pair, format_usd)
)
_DRAWS = fields("draw", blocks=lambda row: " ".join(map(str, row.draw.blocks)))
