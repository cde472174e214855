"""How each simulated replica count of the best candidate does, and its cost."""

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.probe import Probe
from capplan.planning.money.cost import usd_per_month
from capplan.report.columns import Column, format_count, format_share
from capplan.report.fields import fields
from capplan.report.page import FILES, Section, Table
from capplan.units import format_usd


def _result(probe: Probe) -> str:
    found = {True: "holds", False: "misses", None: "too close to call"}
    worst = "".join(
        f", {format_share(row.slo_attainment)} in the worst window"
        for row in probe.windows
        if row.is_judged
    )
    return f"{found[probe.meets]}{worst}{'' if probe.stable else ', backlog grows'}"


def _counts_of(probe: Probe) -> str:
    return " + ".join(map(format_count, probe.counts))


_PROBES = fields("probe", replica_count=_counts_of, result=_result)


def probes_section(best: Candidate) -> Section:
    """Return how each simulated count does, and its cost."""

    def style(probe: Probe) -> str:
        if probe.replica_count == best.replica_count:
            return "best"
        return "" if probe.meets else "fail"

    def month(probe: Probe) -> str | None:
        assert best.run is not None
        fleet = best.run.deployment.with_replicas(probe.replica_count)
        usd = usd_per_month(fleet.pools)
        return None if usd is None else format_usd(usd)

    first, *rest = _PROBES
    usd = () if best.pools else (Column("", month, "$ per month"),)
    table = Table((first, *usd, *rest), best.probes, style=style)
    return Section("Simulated replica counts", tables=[table], only=FILES)
