"""Pages of latency profiles: a list, one, a comparison, errors on fresh points."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from capplan.errors import InputError
from capplan.files import write_texts
from capplan.latency.capacity import LEVELS, capacity_range, capacity_ratio
from capplan.latency.measurements import Points
from capplan.latency.profile import ErrorRecord, Profile
from capplan.latency.rank_profile import RankProfile
from capplan.latency.validate import Validation
from capplan.latency.with_engine import as_planned
from capplan.profiling.compare import Comparison
from capplan.profiling.scenes import Point
from capplan.report.charts.profile import profile_figures
from capplan.report.columns import Column, column, format_count, format_ms
from capplan.report.page import Page, Section, Table
from capplan.report.pages.rank_profiles import rank_table
from capplan.report.render.documents import document

_PHASES = ("prefill", "decode", "mixed")
_SCHEMA = "capplan.profiles/1"


def format_error(share: float) -> str:
    """Return a relative error in percent, two decimals."""
    return f"{share:.2%}"


def _told(phase: str, row: dict[str, Any]) -> str | None:
    error, sigma = row[f"{phase}_error"], row[f"{phase}_sigma"]
    if error is not None:
        return f"{error:.1%}"
    return f"± {sigma:.0%}" if sigma else None


def _users(row: dict[str, Any]) -> str | None:
    low, high = row["users_low"], row["users_high"]
    return None if low is None else f"{low:.2f}–{high:.2f}"


_LISTED = (
    column("gpu", "GPU", justify="left"),
    column("llm", "LLM", justify="left"),
    column("tp", "TP"),
    column("how", "how", justify="left"),
    column("engine", "engine", justify="left", leaves=1),
    *(Column("", partial(_told, phase), phase) for phase in _PHASES),
    Column("", _users, "users"),
    *(column(f"{phase}_{part}") for phase in _PHASES for part in ("error", "sigma")),
    column("users_low"),
    column("users_high"),
)


def profiles_page(
    profiles: Iterable[Profile], of_ranks: Iterable[RankProfile] = ()
) -> Page:
    """Return a row per profile, with the errors of each phase and in users.

    Those of ranks that step together have a table of their own.
    """
    rows = list(map(_row, profiles))
    table = Table(_LISTED, rows, is_whole=True)
    ranks = rank_table(of_ranks)
    tables = [shown for shown in (table, ranks) if shown.rows or shown is table]
    count = f"{len(rows)} latency profile{'' if len(rows) == 1 else 's'}"
    if ranks.rows:
        count += f", {len(ranks.rows)} of ranks that step together"
    notes = (
        "Users: what 80 % of such engines sustain within 1.25 times the lowest TPOT, "
        "as shares of the predicted.",
        "Errors are means over points not fitted to.",
    )
    return Page(
        "profiles",
        count,
        "",
        [Section(tables=tables, notes=notes)],
        values=lambda: {
            "schema": _SCHEMA,
            "profiles": rows,
            "rank_profiles": list(ranks.rows),
        },
        csv={"profiles.csv": table, "rank_profiles.csv": ranks},
    )


def _row(profile: Profile) -> dict[str, Any]:
    users = capacity_ratio(as_planned(profile), 0.5) or (None, None)
    row: dict[str, Any] = {
        "gpu": profile.gpu,
        "llm": profile.llm,
        "tp": profile.tp,
        "how": profile.how,
        "engine": f"{profile.engine} {profile.engine_version}".strip(),
        "users_low": users[0],
        "users_high": users[1],
    }
    for phase in _PHASES:
        record = profile.errors.get(phase) or ErrorRecord()
        row[f"{phase}_error"] = record.held_out_mean_abs
        row[f"{phase}_sigma"] = record.sigma
    return row


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


ERRORS = (
    column("phase", "phase", justify="left"),
    column("points", "points", format_count),
    column("mean_abs", "mean error", format_error),
    column("max_abs", "worst", format_error),
    column("held_out_mean_abs", "mean, held out", format_error),
    column("held_out_max_abs"),
    column("sigma"),
)


_OF = column("of", "of", justify="left")


def errors_table(
    profile: Profile, title: str = "", of: Mapping[str, str] | None = None
) -> Table:
    """Return a profile's errors, a row per phase; ``of`` says what they are of."""
    rows = [
        {"phase": phase, "of": (of or {}).get(phase, ""), **record.model_dump()}
        for phase, record in profile.errors.items()
    ]
    columns = ERRORS if of is None else (ERRORS[0], _OF, *ERRORS[1:])
    return Table(columns, rows, title=title)


def profile_page(profile: Profile, points: Points | None = None) -> Page:
    """Return a profile's errors and curves and, given points, its residuals on them."""
    table = errors_table(profile)
    return Page(
        "profile",
        profile.name,
        "latency profile",
        [
            Section("Errors of the fit", tables=[table], notes=capacity_lines(profile)),
            Section("Curves", figures=partial(profile_figures, profile, points)),
        ],
        values=partial(profile.model_dump, exclude_none=True),
        csv={"profile.csv": table},
        lead=profile.note(),
    )


def write_plot(profile: Profile, path: Path, points: Points | None = None) -> None:
    """Write the page of a profile as HTML."""
    check_plot(path)
    page = profile_page(profile, points)
    write_texts({path.name: document(page, "html")}, path.parent)


def check_plot(path: Path | None) -> None:
    """Refuse a plot whose name is none of an HTML page."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path}: a plot is an HTML page; expected a name in .html")


def _described(row: Comparison) -> str:
    phase, batch, tokens, context = row.iteration
    if phase == "prefill":
        return f"prefill of {tokens:,} tokens"
    beside = f" beside {tokens - batch:,} tokens" if phase == "mixed" else ""
    return f"{phase}: {batch} requests of {context:,} tokens{beside}"


def comparison_page(
    first: Profile, second: Profile, rows: Iterable[Comparison]
) -> Page:
    """Return the times of the same iterations by two profiles, and their sources."""
    compared = list(rows)
    columns = (
        Column("", _described, "iteration", justify="left"),
        *(column(name, path=f"iteration.{name}") for name in Point._fields),
        column("first_s", first.name, format_ms),
        column("second_s", second.name, format_ms),
        Column(
            "",
            lambda row: row.second_s / row.first_s,
            "second / first",
            "{:.2f}".format,
        ),
    )
    table = Table(columns, compared, is_whole=True)
    return Page(
        "comparison",
        f"{first.name} and {second.name}",
        "the same iterations by two profiles",
        [Section(tables=[table], notes=[first.note(), second.note()])],
        values=lambda: {
            "schema": "capplan.profiles-compare/1",
            "first": first.name,
            "second": second.name,
            "iterations": [
                {
                    **row.iteration._asdict(),
                    "first_s": row.first_s,
                    "second_s": row.second_s,
                }
                for row in compared
            ],
        },
        csv={"comparison.csv": table},
    )


def validation_page(
    profile: Profile, validation: Validation, points: Points | None = None
) -> Page:
    """Return the errors of a profile on points, by phase and by region."""
    rows = [
        {
            "phase": phase,
            "points": validation.points_by_phase[phase],
            "mean_abs": mean,
            "max_abs": validation.max_abs_error_by_phase[phase],
            "bias": validation.bias_by_phase[phase],
        }
        for phase, mean in validation.mean_abs_error_by_phase.items()
    ]
    columns = (*ERRORS[:4], column("bias", "bias", "{:+.2%}".format))
    table = Table(columns, rows)
    regions = [
        (region, format_error(mean))
        for region, mean in validation.mean_abs_error_by_region.items()
    ]
    return Page(
        "validation",
        profile.name,
        "errors on points not fitted to",
        [
            Section(tables=[table]),
            Section("Mean error by region", regions),
            Section("Curves", figures=partial(profile_figures, profile, points)),
        ],
        values=validation._asdict,
        csv={"validation.csv": table},
        lead=profile.note(),
    )
