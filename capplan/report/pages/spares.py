"""What a plan's page says of its spare nodes."""

from capplan.fleet.node_failures import FAILURES_HIGH, FAILURES_LOW, FAILURES_SOURCE
from capplan.planning.plan.spare_nodes import SpareNodes
from capplan.report.columns import format_share
from capplan.report.fields import fields
from capplan.report.page import Fact, Section, Table
from capplan.report.sentences import plural
from capplan.units import format_duration, format_usd


def spares_section(found: SpareNodes) -> Section:
    """Return the spare nodes and what is attained without some."""
    if found.spare_nodes is None:
        return Section("Spare nodes", facts=[("not known", found.reason)])
    return Section(
        "Spare nodes",
        facts=_facts(found),
        tables=[Table(_GONE, found.gone)],
        notes=_notes(found),
    )


def _notes(found: SpareNodes) -> list[str]:
    notes = ["Spares add no capacity: they replace nodes that fail."]
    if found.nodes_per_replica > 1:
        notes.append(
            f"A replica takes {found.nodes_per_replica} nodes and is down while one of "
            "them is. Each failed node is assumed to be of another replica, and spares "
            "replace whole replicas."
        )
    if found.is_gone_throughout and found.gone:
        notes.append(
            "Nodes are gone from the first request on. The moment of failure is not "
            "simulated: no request is computed again."
        )
    return notes


def _facts(found: SpareNodes) -> list[Fact]:
    nodes = plural(found.spare_nodes or 0, "spare node")
    keep = "keeps" if found.spare_nodes == 1 else "keep"
    assert found.failures_per_node_day is not None
    share = format_share(found.availability)
    answer = (
        f"{nodes} ({format_usd(found.usd_per_month or 0.0)} a month) {keep} "
        f"{plural(found.node_count or 0, 'node')} up {share} of the time"
    )
    if not found.spare_nodes and found.node_count == 1:
        answer = f"a single node is up {share} of the time without spares"
    one = found.gone[1] if len(found.gone) > 1 else None
    if one is not None and not one.replica_count:
        answer = f"{_alone(found)}; {answer}"
    elif one is not None:
        when = "of requests at that rate"
        if found.busiest_s is not None:
            when = f"of the busiest {format_duration(found.busiest_s)}"
        or_one = ", or one without the spares," if found.spare_nodes else ""
        answer += (
            f"; with {plural(one.nodes_gone, 'node')} gone{or_one} "
            f"{format_share(one.slo_attainment)} {when} are in time"
        )
    failures = f"{1000 * found.failures_per_node_day:.3g} in 1,000 node-days"
    if found.spare_nodes_range is not None:
        low, high = found.spare_nodes_range
        spares = "as many spares" if low == high else f"{low} to {high} spares"
        failures += (
            f", {FAILURES_SOURCE}; {spares} at {FAILURES_LOW:g} to "
            f"{FAILURES_HIGH:g} of nodes with 8 GPUs"
        )
    return [
        ("spares", answer),
        ("failures", failures),
        ("repair", format_duration(3600 * found.repair_h)),
        ("not tested", found.untested),
    ]


def _alone(found: SpareNodes) -> str:
    """Return that nothing is served without one node, and what another costs."""
    nodes, usd = found.nodes_per_replica, found.usd_per_node_month or 0.0
    on = "on one node" if nodes == 1 else f"one, on {nodes} nodes"
    more = "a second node costs" if nodes == 1 else f"{nodes} nodes more cost"
    away_h = 365 * nodes * (found.failures_per_node_day or 0.0) * found.repair_h
    return (
        f"all replicas are {on}: if it fails, everything is down for the repair of "
        f"{format_duration(3600 * found.repair_h)} (expect {away_h:.2g} h a year); "
        f"{more} {format_usd(nodes * usd)} a month"
    )


_GONE = fields("nodes_gone")
