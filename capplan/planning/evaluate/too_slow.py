"""Whether requests meet the SLO even when each runs alone."""

from typing import Self

import numpy as np

from capplan.planning.evaluate.judged_windows import windows_of
from capplan.planning.load.load import Load
from capplan.planning.load.unbatched import Unbatched
from capplan.units import format_duration
from capplan.workload.slo import Group, Slo
from capplan.workload.trace import Trace


class Shortfall(str):
    """Why requests miss a limit even when each runs alone: which, and what it takes."""

    limit: str  # "tpot"
    limit_s: float  # as asked [s]
    needed_s: float  # that the share asked is within, alone [s]

    def __new__(cls, text: str, limit: str, limit_s: float, needed_s: float) -> Self:
        """Return the text with what it is of."""
        made = super().__new__(cls, text)
        made.limit, made.limit_s, made.needed_s = limit, limit_s, needed_s
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, float, float]]:
        return type(self), (str(self), self.limit, self.limit_s, self.needed_s)


def too_slow(alone: Unbatched, slo: Slo, load: Load) -> str | None:
    """Return why not even requests served one by one meet the SLO, or None.

    Names the limit that most of them miss, by how much, and the limit they need; or a
    window of time that is judged, in which too many miss.
    """
    trace, counted = load.trace, load.counted()
    for group in slo.groups(trace.class_names):
        rows = counted & np.isin(trace.request_class, group.indices)
        if rows.any():
            reason = _too_slow(trace, alone, slo, group, np.flatnonzero(rows))
            if reason is not None:
                return reason
    if trace.arrival_s is None or load.clock is None:
        return None
    columns = slo.columns(trace.request_class, trace.class_names)
    times_s = (alone.ttft_s, alone.tpot_s, alone.tbt_s, alone.e2e_s)
    met = [time_s <= limit_s for time_s, limit_s in zip(times_s, columns, strict=True)]
    of = trace.arrival_s, trace.request_class, np.logical_and.reduce(met)
    for row in windows_of(load, slo, *of, warmup_s=load.warmup_s).worst:
        if row.is_judged and not row.meets:
            whose = " and ".join(row.classes) or "requests"
            return (
                f"only {100 * row.slo_attainment:.4g} % of {whose} are in time in a "
                f"window ({row.when}) even when each runs alone, and "
                f"{100 * row.target:.6g} % is asked of each window; --attain-in trace "
                "asks it of all together"
            )
    return None


def _too_slow(
    trace: Trace, alone: Unbatched, slo: Slo, group: Group, rows: np.ndarray
) -> Shortfall | None:
    columns = slo.columns(trace.request_class[rows], trace.class_names)
    limits_s = dict(zip(("TTFT", "TPOT", "TBT", "e2e"), columns, strict=True))
    times_s = (alone.ttft_s, alone.tpot_s, alone.tbt_s, alone.e2e_s)
    alone_s = {
        name: time_s[rows] for name, time_s in zip(limits_s, times_s, strict=True)
    }
    met = {name: alone_s[name] <= limits_s[name] for name in limits_s}
    share = float(np.logical_and.reduce(list(met.values())).mean())
    if share >= group.target:
        return None
    name = min(met, key=lambda limit: float(met[limit].mean()))
    ratio = alone_s[name] / limits_s[name]
    slowest = float(np.quantile(ratio, group.target, method="higher"))
    row = int(np.argmin(np.abs(ratio - slowest)))
    whose = "requests"
    if len(trace.class_names) > 1:
        whose = f"requests of class {', '.join(group.names)}"
    needed_s, limit_s = slowest * limits_s[name][row], limits_s[name][row]
    text = (
        f"{name} takes {format_duration(needed_s)} at least, not "
        f"{format_duration(limit_s)}; with each request alone on a replica "
        f"{100 * float(met[name].mean()):.4g} % of {whose} are in time, and "
        f"{100 * group.target:.6g} % need {slowest:.3g} times the limit"
    )
    return Shortfall(text, name.lower(), float(limit_s), float(needed_s))
