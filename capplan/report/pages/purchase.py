"""What a plan's nodes cost: scenarios, ways to pay, and one replica more or fewer."""

from capplan.planning.plan.purchase import PLANNED_COUNT, CountCost, Purchase
from capplan.planning.plan.result import Plan
from capplan.report import sentences
from capplan.report.columns import format_list, format_usd_change
from capplan.report.fields import fields
from capplan.report.page import FILES, Fact, Section, Table
from capplan.units import format_usd

BILLS = fields("bill")
WAYS = fields("way", usd_change=format_usd_change)
COUNTS = fields(
    "count_cost",
    usd_change=format_usd_change,
    outcome=lambda meets: "holds" if meets else "misses",
)


def money_tables(plan: Plan) -> dict[str, Table]:
    """Return the tables for CSV, by file name."""
    bought = plan.purchase or Purchase()
    return {
        "bills.csv": Table(BILLS, bought.bills),
        "ways.csv": Table(WAYS, bought.ways),
        "counts.csv": Table(COUNTS, bought.count_costs),
    }


def bill_section(bought: Purchase) -> Section:
    """Return scenarios of the bill and ways to pay."""
    notes = []
    if bought.bills and bought.no_ways:
        notes.append(f"Other ways to pay are not shown: {bought.no_ways}.")
    if bought.bills:
        notes.append(
            "The same nodes at all hours of a month of 730 h. `capplan budget` follows "
            "the hours of a week and 12 to 36 months of growth, and finds the cheapest "
            "commitments."
        )
    left_out = f" Left out: {', '.join(bought.left_out)}." if bought.left_out else ""
    bills = Table(
        BILLS,
        bought.bills,
        title="What each provider bills for these replicas",
        note="Each with its cheapest whole nodes; you choose. The plan takes the bill "
        f"at the lower quartile.{left_out}",
        style=lambda row: "best" if row.is_planned else "",
    )
    ways = Table(
        WAYS, bought.ways, title="Ways to pay for these nodes", note=_of_ways(bought)
    )
    return Section(
        "Nodes, months and commitments",
        tables=[bills, ways],
        facts=_sources(bought),
        notes=notes,
        only=FILES,
        topic="price",
    )


def billed(bought: Purchase) -> str:
    """Return whose bill it is, of how many, and who is left out."""
    told = []
    for gpu in dict.fromkeys(row.gpu for row in bought.bills):
        of = [row for row in bought.bills if row.gpu == gpu]
        at = next((i for i, row in enumerate(of) if row.is_planned), None)
        if at is None or len(of) == 1:
            continue
        low, high = (format_usd(of[i].usd_per_month) for i in (0, -1))
        told.append(
            f"{of[at].provider}, the {_ordinal(at + 1)} cheapest of {len(of)} "
            f"providers' bills for {gpu}, {low} to {high} a month"
        )
    if told and bought.left_out:
        told.append(f"left out: {', '.join(bought.left_out)}")
    return "; ".join(told)


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number in (11, 12, 13) else ending}"


def paid_anyway(bought: Purchase, planned: int) -> str:
    """Return which replicas fit the nodes paid for beside those needed, if any."""
    more = bought.paid_anyway
    if more is None:
        return ""
    beside = sentences.plural(more.replica_count - planned, "more replica")
    verb = "fits" if more.replica_count == planned + 1 else "fit"
    return (
        f"{beside} {verb} the nodes that are paid for: run {more.replica_count:,} "
        f"({more.attained}) for the same bill; {planned:,} are needed"
    )


def _sources(bought: Purchase) -> list[Fact]:
    """Return where the prices are from, each source once."""
    of_source: dict[str, list[str]] = {}
    for way in bought.ways:
        of_source.setdefault(way.source, []).append(way.name)
    return [(format_list(names), source) for source, names in of_source.items()]


def _of_ways(bought: Purchase) -> str:
    parts = []
    if any(way.break_even is not None for way in bought.ways):
        parts.append(
            "“pays from”: a commitment is paid used or not, and is cheaper than on "
            "demand if used for more than this share of the hours."
        )
    if any(way.is_assumed for way in bought.ways):
        parts.append("Starred: assumed (nobody quotes it for these nodes), or old.")
    return " ".join(parts)


def replicas_section(bought: Purchase) -> Section:
    """Return what replica counts beside the planned one cost, and which hold."""

    def style(row: CountCost) -> str:
        if row.name == PLANNED_COUNT:
            return "best"
        return "fail" if row.meets is False else ""

    note = (
        "Counts that were simulated, one replica more than planned, and the range that "
        "80 % of measured engines needed: be ready to pay for any of these."
    )
    if any(row.attainment_with_one_lost is not None for row in bought.count_costs):
        note += " “with one lost”: in time while one replica is gone."
    return Section(
        "Replicas against cost",
        tables=[Table(COUNTS, bought.count_costs, note=note, style=style)],
        only=FILES,
        topic="count",
    )
