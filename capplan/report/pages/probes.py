"""What each simulated replica count of the best candidate attains and costs."""

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.probe import Probe
from capplan.planning.money.cost import usd_per_month
from capplan.report.columns import (
    Column,
    column,
    format_count,
    format_interval,
    format_share,
)
from capplan.report.page import FILES, Section, Table
from capplan.units import format_duration, format_usd


def _result(probe: Probe) -> str:
    found = {True: "meets the SLO", False: "misses the SLO", None: "too close to call"}
    worst = "".join(
        f", {format_share(row.slo_attainment)} in the worst window"
        for row in probe.windows
        if row.is_judged
    )
    return f"{found[probe.meets]}{worst}{'' if probe.stable else ', backlog grows'}"


def _counts_of(probe: Probe) -> str:
    return " + ".join(map(format_count, probe.counts))


_PROBES = (
    column("replica_count", "replicas", told=_counts_of),
    column("slo_attainment", "attainment", format_share),
    column("", "95 % interval", format_interval, path="slo_attainment_interval"),
    column("ttft_p99_s", "p99 TTFT", format_duration),
    column("tpot_p99_s", "p99 TPOT", format_duration),
    column("e2e_p99_s", "p99 e2e", format_duration),
    Column("", _result, "result", justify="left"),
)


def probes_section(best: Candidate) -> Section:
    """Return what each simulated count attains and costs."""

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
