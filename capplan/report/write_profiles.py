"""Print latency profiles: a list, a comparison, errors on fresh points."""

import json
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from capplan.latency.capacity import LEVELS, capacity_range, capacity_ratio
from capplan.latency.profile import Profile
from capplan.latency.validate import Validation
from capplan.latency.with_engine import as_planned
from capplan.profiling.compare import Comparison
from capplan.profiling.scenes import Point
from capplan.report.console import console

_PHASES = ("prefill", "decode", "mixed")


def print_profiles(profiles: Iterable[Profile]) -> None:
    """Print a row per profile, with the errors of each phase and in users."""
    table = Table("GPU", "LLM", "TP", "how", "engine", *_PHASES, "users")
    for profile in profiles:
        table.add_row(
            profile.gpu,
            profile.llm,
            str(profile.tp),
            profile.how,
            f"{profile.engine} {profile.engine_version}".strip(),
            *(_error(profile, phase) for phase in _PHASES),
            _users(profile),
        )
    out = console()
    out.print(table)
    out.print(
        "Users: what 80 % of such engines carry within 1.25 times the lowest TPOT, as "
        "shares of the predicted."
    )
    out.print("Errors are means over points not fitted to.")


def _users(profile: Profile) -> str:
    found = capacity_ratio(as_planned(profile), 0.5)
    return "–" if found is None else "{:.2f}–{:.2f}".format(*found)


def capacity_lines(profile: Profile) -> list[str]:
    """Return the engine's time, and the error in users at the usual TPOT limits."""
    planned = as_planned(profile)
    lines = []
    if planned.engine_time is not None:
        lines.append(f"engine's own time: {planned.engine_time}")
    for level in LEVELS:
        low, high = capacity_range(planned, level)
        if low < high:
            lines.append(
                f"users within {level:g} times the TPOT of one alone: {low:.2f} to "
                f"{high:.2f} of the predicted, in 80 % of such engines"
            )
    return lines


def _error(profile: Profile, phase: str) -> str:
    record = profile.errors.get(phase)
    if record is None:
        return "–"
    if record.held_out_mean_abs is None:
        return f"± {record.sigma:.0%}" if record.sigma else "–"
    return f"{record.held_out_mean_abs:.1%}"


def print_comparison(
    first: Profile, second: Profile, rows: Iterable[Comparison]
) -> None:
    """Print the times of the same iterations by two profiles, and their sources."""
    table = Table("iteration", first.name, second.name, "second / first")
    for iteration, first_s, second_s in rows:
        table.add_row(
            _described(iteration),
            f"{1e3 * first_s:.2f} ms",
            f"{1e3 * second_s:.2f} ms",
            f"{second_s / first_s:.2f}",
        )
    Console().print(table)
    print(first.note())
    print(second.note())


def _described(iteration: Point) -> str:
    phase, batch, tokens, context = iteration
    if phase == "prefill":
        return f"prefill of {tokens:,} tokens"
    beside = f" beside {tokens - batch:,} tokens" if phase == "mixed" else ""
    return f"{phase}: {batch} requests of {context:,} tokens{beside}"


def print_validation(profile: Profile, validation: Validation, as_json: bool) -> None:
    """Print the errors by phase and by region, as text or JSON."""
    if as_json:
        print(json.dumps(validation._asdict(), indent=2))
        return
    print(profile.note())
    for phase, mean in validation.mean_abs_error_by_phase.items():
        print(
            f"{phase}: mean error {mean:.2%}, worst "
            f"{validation.max_abs_error_by_phase[phase]:.2%}, bias "
            f"{validation.bias_by_phase[phase]:+.2%}, "
            f"{validation.points_by_phase[phase]} points"
        )
    for region, mean in validation.mean_abs_error_by_region.items():
        print(f"  {region}: {mean:.2%}")
