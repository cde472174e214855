"""Charts of sessions: where caches lose them, and the turns of one."""

import numpy as np

from capplan.planning.evaluate.of_sessions import PRESSURE
from capplan.planning.evaluate.run import Run
from capplan.planning.plan.result import Plan
from capplan.report.charts.fleet import time_axis
from capplan.report.charts.svg_chart import Axis, Line, Rule, figure
from capplan.report.columns import format_count, format_share, plural
from capplan.report.page import Figure

_HALF, _THIN = 0.32, 0.06
"""Half the height of a turn, and of the time between two, of that of a lane."""


def session_figures(run: Run, plan: Plan | None = None) -> list[Figure]:
    """Return where hits collapse among a plan's counts, its tiers, and one session."""
    of_plan = () if plan is None else (cliff_figure(plan), tier_figure(plan))
    found = (*of_plan, swimlane_figure(run))
    return [each for each in found if each is not None]


def cliff_figure(plan: Plan) -> Figure | None:
    """Return the hits at each count simulated; None of fewer than two counts."""
    best = plan.best
    probes = () if best is None else best.probes
    rows = [(probe, probe.sessions) for probe in probes if probe.sessions is not None]
    if best is None or plan.sessions is None or len(rows) < 2:
        return None
    x = np.array([probe.users_per_replica for probe, _ in rows])
    hits = np.array([found.hit_rate for _, found in rows])
    in_time = np.array([probe.slo_attainment for probe, _ in rows])
    chosen = [probe.replica_count == best.replica_count for probe, _ in rows]
    most = plan.sessions.running / (best.replica_count or 1)
    full = PRESSURE * most / max(plan.sessions.kv_pressure, 1e-9)
    title = f"{format_share(plan.sessions.hit_rate)} of prompts from caches"
    title += f" at {format_count(most)} sessions a replica"
    if plan.collapse is not None:
        title = str(plan.collapse).partition(":")[0].capitalize()
    told = "prompt tokens found in caches", "turns in time"
    return figure(
        title,
        Axis.around("sessions a replica", format_count, x),
        Axis("share", format_share, 0, 1),
        [
            Line(name, x, y, markers=True, filled=chosen)
            for name, y in zip(told, (hits, in_time), strict=True)
        ],
        [Rule(f"contexts take {format_share(PRESSURE)} of the KV", x=full)],
        caption=f"{best}. Each point is a number of replicas; the plan's is filled.",
    )


def tier_figure(plan: Plan) -> Figure | None:
    """Return the GPUs with each size of the tier; None of fewer than two that hold."""
    if plan.tiers_tried is None or plan.best is None:
        return None
    chosen_gib = plan.tiers_tried.chosen_gib
    rows = [row for row in plan.tiers_tried.rows if row.gpu_count is not None]
    rows.sort(key=lambda row: row.gib)
    if len({row.gib for row in rows}) < 2:
        return None
    gib = np.array([row.gib for row in rows])
    gpus = np.array([float(row.gpu_count or 0) for row in rows])
    title = f"{plan.best.gpu_count:,} GPUs with {format_count(chosen_gib)} GiB of host"
    return figure(
        f"{title} memory a replica",
        Axis("host memory a replica, GiB", format_count, 0, 1.1 * gib[-1]),
        Axis("GPUs", format_count, 0, 1.15 * gpus.max()),
        [Line("GPUs", gib, gpus, markers=True, filled=[*(gib == chosen_gib)])],
        caption=str(plan.tiers_tried),
    )


def swimlane_figure(run: Run) -> Figure | None:
    """Return when turns of a session wait, are computed and are answered, by agent."""
    shown = run.one_session
    if shown is None:
        return None
    times, agent = shown.times, shown.turns.agent.tolist()
    agents = sorted({*agent}, key=lambda each: (each < 0, abs(each)))
    lane = np.array([len(agents) - agents.index(each) for each in agent])
    from_s = times.arrival_s.min()
    edges_s = times.arrival_s, times.scheduled_s, times.first_token_s, times.finish_s
    at_s = [each - from_s for each in edges_s]
    before, after = _between(lane, at_s[0])
    spans = [
        ("tools and users", at_s[3][before], at_s[0][after], lane[before], _THIN),
        ("answer", at_s[2], at_s[3], lane, _HALF),
        ("prompt", at_s[1], at_s[2], lane, _HALF),
        ("front end and queue", at_s[0], at_s[1], lane, _HALF),
    ]
    spent_s = np.array([float((until - start).sum()) for _, start, until, *_ in spans])
    _, *shares = (f"{100 * x:.2g} %" for x in spent_s / max(spent_s.sum(), 1e-9))
    names = {k + 1.0: _name(each) for k, each in enumerate(reversed(agents))}
    return figure(
        f"Of a session's time answers take {shares[0]}, prompts {shares[1]}, front "
        f"end and queue {shares[2]}",
        time_axis(np.array([0.0, float(at_s[3].max())])),
        Axis("agent", lambda at: names[at], 0.4, len(agents) + 0.6, ticks=tuple(names)),
        [
            Line(name, start, y, y - half, y + half, until=until)
            for name, start, until, y, half in spans
        ],
        caption=f"{plural(len(times), 'turn')} in a row of a simulated session: of "
        "those with most agents one with a median number of turns.",
    )


def _name(agent: int) -> str:
    return "main" if agent == 0 else f"sub {agent}" if agent > 0 else f"apart {-agent}"


def _between(lane: np.ndarray, at_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of turns, and of those that come next of the same agent."""
    order = np.lexsort((at_s, lane))
    same = np.flatnonzero(np.diff(lane[order]) == 0)
    return order[same], order[same + 1]
