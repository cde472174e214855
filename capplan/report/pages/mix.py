"""A mix of GPU types on the page of a plan."""

from operator import attrgetter

from capplan.planning.mix.result import Mix
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.report import sentences
from capplan.report.columns import (
    Column,
    column,
    format_count,
    format_interval,
    format_share,
)
from capplan.report.fields import fields
from capplan.report.page import FILES, Fact, Section, Table
from capplan.units import format_usd
from capplan.workload.trace import MAX_TOKENS


def mix_sections(mix: Mix) -> list[Section]:
    """Return the mix of GPU types that was found, or why none is offered."""
    heading = "Mix of GPU types"
    if not mix.offered:
        facts = [("mix", f"not offered: {mix.reason}")]
        return [Section(heading, facts=facts), _capacities(mix)]
    tables = [Table(_POOLS, mix.pools), Table(_bands(mix), mix.bands)]
    return [
        Section(heading, facts=_facts(mix), tables=tables, notes=[_ROUTED, _ALONE]),
        _capacities(mix),
        *(
            Section(f"Start each replica of {pool.name} with", command=pool.launch.line)
            for pool in mix.pools
            if pool.launch is not None
        ),
    ]


def mix_sentence(mix: Mix) -> str:
    """Return in a sentence what a mix would save; empty where none is offered."""
    if not mix.offered or mix.cost is None:
        return ""
    usd = format_usd(mix.cost.usd_per_month)
    named = " and ".join(
        f"{pool.replica_count:,} × {pool.gpu} {pool.layout_text}" for pool in mix.pools
    )
    if mix.saved_share is None:
        return f"A mix does: {named}, {usd} a month, each request sent by its size."
    return (
        f"A mix of {named} would cost {usd} a month, "
        f"{format_share(mix.saved_share)} less, each request sent by its size."
    )


_ROUTED = (
    "The router needs only a request's class and lengths. Each kind of replica is a "
    "pool with its own image, profile and quota."
)
_ALONE = (
    "`budget`, `export` and the certificate are of the best single type; deploy a mix "
    "with the commands below."
)


def _facts(mix: Mix) -> list[Fact]:
    assert mix.cost is not None
    hour = mix.cost.usd_per_h
    saved = ""
    if mix.saved_share is not None:
        saved = f", {format_share(mix.saved_share)} less than the best single type"
    interval = ""
    if mix.slo_attainment_interval is not None:
        interval = f" ({format_interval(mix.slo_attainment_interval)})"
    allocated = sum(pool.allocated_replica_count for pool in mix.pools)
    simulated = sum(pool.replica_count for pool in mix.pools)
    least = ""
    if mix.bound is not None:
        least = "nothing is known"
        if (bound := mix.bound.usd_per_h) > 0:
            least = (
                f"{format_usd(HOURS_PER_MONTH * bound)} a month, however requests are "
                f"routed; this one costs {100 * (hour / bound - 1):.0f} % more"
            )
    return [
        ("mix", f"{format_usd(mix.cost.usd_per_month)} a month{saved}"),
        ("nodes", sentences.nodes_paid(mix.cost.nodes)),
        (
            "in time",
            f"{format_share(mix.slo_attainment or 0.0)}{interval}"
            + ("" if mix.decided else ", not decided"),
        ),
        (
            "allocation",
            f"{allocated:,} replicas ({mix.allocation_status} for a model that adds up "
            f"the load of each size alone), {simulated:,} when simulated together "
            f"({mix.simulated_count:,} fleets tried)",
        ),
        ("estimated", "; ".join(mix.doubts)),
        ("no mix costs less than", least),
    ]


def _capacities(mix: Mix) -> Section:
    """Return what a replica of each kind sustains of each band."""
    if not mix.capacities:
        return Section()
    sizes = [
        column("", f"size {k + 1}", format_count, path=f"requests_per_s.{k}")
        for k in range(len(mix.capacities[0].requests_per_s))
    ]
    return Section(
        "What a replica holds of each size",
        tables=[Table([*fields("mix_kind"), *sizes], mix.capacities)],
        notes=["Requests/s within the SLO, of each size alone."],
        only=FILES,
        is_folded=True,
    )


def _bands(mix: Mix) -> list[Column]:
    """Return the columns of bands, with the share on each pool."""
    optional = ("class_name", "output_tokens")
    unknown = [x for x in optional if not any(getattr(row, x) for row in mix.bands)]
    declared = fields(
        "mix_band", size=lambda row: 1 + mix.bands.index(row), range=_range
    )
    shares = [
        column(
            "", f"on {pool.gpu} {pool.layout_text}", format_share, path=f"shares.{k}"
        )
        for k, pool in enumerate(mix.pools)
    ]
    return [*(each for each in declared if each.name not in unknown), *shares]


def _range(ends: tuple[int, int]) -> str:
    low, high = ends
    return f"{low:,} and more" if high >= MAX_TOKENS else f"{low:,} to {high:,}"


_POOLS = fields("mix_pool", pool=attrgetter("name"))
