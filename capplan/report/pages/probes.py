"""How each simulated replica count of the best candidate does."""

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.probe import Probe
from capplan.report.columns import format_count, format_share
from capplan.report.fields import fields
from capplan.report.page import FILES, Section, Table


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
    """Return how each simulated count does."""

    def style(probe: Probe) -> str:
        if probe.replica_count == best.replica_count:
            return "best"
        return "" if probe.meets else "fail"

    table = Table(_PROBES, best.probes, style=style)
    return Section("Simulated replica counts", tables=[table], only=FILES)
