"""Sentences about how sure a count is: what real engines needed, and doubts."""

import shlex
from collections.abc import Mapping, Sequence

from capplan.deployment.configuration import UNMEASURED, Configuration
from capplan.engines.catalog import VLLM
from capplan.latency.capacity import LEVELS
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.plan.result import Plan
from capplan.report.columns import plural
from capplan.report.page import Said
from capplan.units import format_usd

LOAD_TEST = ": load-test before you buy"
EXPORTED = "capplan export plan.json --to loadtest"
"""The command that writes a plan's load test."""


def engines(candidate: Candidate) -> str:
    """Return how many replicas real engines need; empty where it is not known."""
    configuration, fleets = candidate.configuration, candidate.engine_fleets
    ratio, sweeps = candidate.capacity_ratio, candidate.sweep_count or 0
    slowdown = None if configuration is None else configuration.cautious_slowdown
    doubted = candidate.is_to_be_tested and fleets is None
    if doubted and configuration is not None and ratio:
        of = " of other LLM families" if configuration.is_unbacked else ""
        nine = f"reached {100 * ratio[0]:.0f} % of the predicted load"
        if slowdown is not None:
            nine = f"took at most {slowdown:.2f} times as long"
        tests = plural(sweeps, "load test")
        return f"nine of ten {nine} ({tests}{of}): {cautious(candidate)}"
    unmeasured = configuration is not None and configuration.is_unmeasured
    if unmeasured and not candidate.pools:
        return UNMEASURED
    if fleets is None or ratio is None:
        return ""
    low, high = ratio
    reached = f"reached {100 * low:.0f} % to {100 * high:.0f} % of the predicted load"
    if candidate.pools:
        needed = _needed(candidate.gpu_count_range, "GPU")
        return f"{reached} ({sweeps} load tests of two pools): {needed}"
    needed = _needed(candidate.replica_count_range, "replica")
    least = fleets[0].replica_count
    if candidate.bound is not None and least < candidate.bound.replica_count:
        needed += "; below the proven minimum, which is of the times planned with"
    if candidate.cautious_count is not None and slowdown is not None:
        times = f"{slowdown:.2f} times as long"
        needed += f", the most for the slowest of ten, which take {times}"
    if configuration is not None and configuration.backtested is not None:
        return f"within the interval of the backtest: {needed}"
    if not sweeps:
        return f"within the error of the profile's fit: {needed}"
    return f"{reached} ({plural(sweeps, 'load test')}): {needed}"


def _needed(ends: tuple[int, int] | None, of: str) -> str:
    if ends is None:
        return ""
    least, most = ends
    return plural(least, of) if least == most else f"{least:,} to {most:,} {of}s"


def known(configuration: Configuration, found: Sequence[str]) -> Said:
    """Return how a result without a range is known; ``found`` is what is assumed."""
    doubts, sweeps = [*found, *configuration.doubts], configuration.sweep_count
    word = "estimated" if doubts else configuration.sureness
    return Said(word, "; ".join(doubts) or plural(sweeps, "load test") * bool(sweeps))


def doubts(candidate: Candidate) -> str:
    """Return why a count may be far off, and what to do; empty without a reason."""
    if candidate.configuration is None or not candidate.configuration.doubts:
        return ""
    why = "; ".join(candidate.configuration.doubts)
    return f"{why}{LOAD_TEST}" if candidate.is_to_be_tested else why


def another_engine(candidate: Candidate) -> str:
    """Return what an older version of the engine would sustain; empty without one."""
    configuration = candidate.configuration
    older = None if configuration is None else configuration.older_engine
    if older is None or candidate.pools:
        return ""
    time, share = older
    version = time.engine_version.rpartition("–")[2]
    return (
        f"{time.engine_name} carries {share:.2f} times as many requests at "
        f"{LEVELS[0]:g} times the shortest TPOT: plan it with `--engine "
        f"{time.engine}@{version}`"
    )


def cautious(candidate: Candidate) -> str:
    """Return the fleet that suffices for nine of ten engines, and its bill."""
    fleet, usd = candidate.cautious, candidate.cautious_usd_per_month
    if candidate.cautious_fails:
        return "none: the slowest of ten engines miss the SLO at any count"
    if fleet is None:
        return ""
    count = plural(fleet.replica_count, "replica")
    if candidate.pools:
        count = plural(fleet.gpu_count, "GPU")
    return count if usd is None else f"{count}, {format_usd(usd)} a month"


def has_load_test(plan: Plan) -> bool:
    """Return whether a load test of the best candidate can be exported."""
    best = plan.best
    if best is None or best.configuration is None or best.launch is None:
        return False
    is_mixed = bool(best.pools) or (plan.mix is not None and plan.mix.offered)
    drafts = best.configuration.engine.speculation
    has_times = best.configuration.profile is not None
    is_vllm = best.launch.engine in (None, VLLM) and bool(best.launch.words)
    return is_vllm and has_times and not (is_mixed or drafts or plan.sessions)


def fit_command(which: str, plan: str, files: Mapping[str, str] | None = None) -> str:
    """Return the command that holds a load test's results against its plan.

    ``files`` are those that the user names in place of the plan's.
    """
    words = ["capplan", "fit", "--from", "results", "--onto", which, "--plan", plan]
    for name, value in (files or {}).items():
        words += [f"--{name.replace('_', '-')}", value]
    return shlex.join([*words, "--out", "mine.yaml"])


def settled_by(plan: Plan, candidate: Candidate) -> str:
    """Return the command that turns a load test into a profile of a candidate.

    Of the best also whether the plan stands.
    Empty for layouts of ranks or whole experts, onto which ``fit`` fits nothing.
    """
    layout = f"tp{candidate.tp}"
    if candidate.layout_name not in (None, layout):
        return ""
    which = f"{candidate.gpu}/{plan.llm}/{layout}"
    if candidate is plan.best and has_load_test(plan):
        return fit_command(which, "plan.json")
    return f"capplan fit --from sweep.csv --onto {which} --out mine.yaml"


def saving(plan: Plan, candidate: Candidate) -> str:
    """Return what a candidate in doubt would save a month, and how to find out."""
    best, cost = plan.best, candidate.cost
    if best is None or best.cost is None or cost is None:
        return ""
    saved = best.cost.usd_per_month - cost.usd_per_month
    if saved <= 0 or not candidate.is_to_be_tested:
        return ""
    command = settled_by(plan, candidate)
    then = f", then `{command}`" if command else ""
    return f"; it would save {format_usd(saved)} a month: measure it{then}"
