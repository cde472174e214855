"""What a plan's page says of its risk: the distribution of replicas, nodes and $."""

from collections.abc import Sequence

from capplan.planning.draws import DrawnInput
from capplan.planning.risk_result import CountShare, DrawnPlan, Risk, RiskLevel
from capplan.report.columns import Column, column, format_count, format_share
from capplan.report.page import Fact, Figure, Section, Table
from capplan.report.sentences import plural
from capplan.report.svg_bars import Bar, bars
from capplan.units import format_usd

_MOST_BARS = 24
"""Bars of a histogram; with more counts, several share one."""


def risk_section(risk: Risk | None) -> Section:
    """Return the distribution of a plan's replicas; empty where none was asked for."""
    if risk is None:
        return Section()
    table = Table(
        _LEVELS,
        levels_of(risk),
        style=lambda row: "best" if row is risk.at_quantile else "",
    )
    return Section(
        f"Risk: {plural(risk.draw_count, 'draw')}",
        facts=_facts(risk),
        tables=[table],
        figures=lambda: [histogram(risk)],
        notes=[
            f"{plural(risk.run_count, 'fleet')} simulated and judged, each draw with "
            "the same random numbers for every count. The lower bound is of the plan "
            "alone."
        ],
    )


def draws_table(risk: Risk | None) -> Table:
    """Return a row for each draw."""
    return Table(_DRAWS, () if risk is None else risk.rows)


def levels_of(risk: Risk) -> list[RiskLevel]:
    """Return the quantiles that are told, the one asked for among them."""
    others = [
        level for level in risk.levels if level.quantile != risk.at_quantile.quantile
    ]
    return sorted([*others, risk.at_quantile], key=lambda level: level.quantile)


def level_name(quantile: float) -> str:
    """Return ``P90``.

    Examples
    --------
    >>> level_name(0.9), level_name(0.995)
    ('P90', 'P99.5')
    """
    return f"P{100 * quantile:.6g}"


def _facts(risk: Risk) -> list[Fact]:
    serves = f"the planned {risk.planned_replica_count:,} meet the SLO in "
    serves += f"{format_share(risk.planned_share)} of the draws"
    facts = [
        ("replicas", f"{_replicas(risk)}; {serves}"),
        (
            "planned fleet",
            f"attains {format_share(risk.planned_attainment)} or more in "
            f"{format_share(risk.quantile)} of the draws",
        ),
        *((f"drawn: {each.name}", _drawn(each)) for each in risk.inputs),
    ]
    if risk.unserved_draw_count:
        facts.append(("without a count", plural(risk.unserved_draw_count, "draw")))
    return facts


def _replicas(risk: Risk) -> str:
    """Return the asked quantile of the replicas, then the others."""
    rows = [
        risk.at_quantile,
        *(row for row in levels_of(risk) if row is not risk.at_quantile),
    ]
    texts = []
    for row in rows:
        count = row.replica_count
        text = "none found" if count is None else format_count(count)
        asked = " (asked)" if row is risk.at_quantile else ""
        texts.append(f"{level_name(row.quantile)} {text}{asked}")
    return ", ".join(texts)


def _drawn(each: DrawnInput) -> str:
    what = {"profile": "of the planned load a replica", "growth": "of the rate"}
    if each.between is None:
        return each.how
    low, high = each.between
    of = what.get(each.name, "of the answer lengths")
    return f"{low:.3g} to {high:.3g} {of}, in 80 % of the draws, {each.how}"


def histogram(risk: Risk) -> Figure:
    """Return the draws by replicas that they need, with the asked quantile."""
    asked, planned = risk.at_quantile.replica_count, risk.planned_replica_count
    rows = []
    for group in _grouped(risk.counts):
        low, high = group[0].replica_count, group[-1].replica_count
        draws = sum(row.draw_count for row in group)
        marks = [
            name
            for name, count in (
                ("planned", planned),
                (f"{level_name(risk.quantile)}, asked", asked),
            )
            if count is not None and low <= count <= high
        ]
        text = f"{draws:,}, {format_share(group[-1].share_at_most)} with all above"
        rows.append(
            Bar(
                f"{low:,}" if low == high else f"{low:,} to {high:,}",
                float(draws),
                " · ".join([text, *marks]),
                stands_out=asked is not None and low <= asked <= high,
            )
        )
    if risk.unserved_draw_count:
        draws = risk.unserved_draw_count
        rows.append(Bar("none found", float(draws), f"{draws:,}"))
    return Figure(
        "Draws by the replicas that they need",
        bars("Draws by the replicas that they need", rows),
        caption=f"{plural(risk.draw_count, 'draw')}; replicas, and draws that need so "
        "many.",
    )


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


def _blocks(row: DrawnPlan) -> str:
    return " ".join(map(str, row.draw.blocks))


_LEVELS = (
    column("quantile", "draws", level_name),
    column("replica_count", "replicas", format_count),
    column("gpu_count", "GPUs", format_count),
    column("node_count", "nodes", format_count),
    column("usd_per_month", "$ per month", format_usd),
)

_DRAWS = (
    column("draw", path="draw.index"),
    Column("blocks", _blocks),
    column("capacity_ratio", path="draw.capacity_ratio"),
    column("growth", path="draw.growth"),
    column("output", path="draw.output"),
    column("offer", path="draw.offer"),
    column("replica_count"),
    column("usd_per_month"),
    column("planned_attainment"),
    column("planned_meets"),
)
