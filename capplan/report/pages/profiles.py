"""Pages of latency profiles: a list, one, a comparison, errors on fresh points."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from capplan.errors import InputError
from capplan.files import write_texts
from capplan.latency.capacity import LEVELS, capacity_range, capacity_ratio
from capplan.latency.measurements import PHASES, Points
from capplan.latency.profile import Profile
from capplan.latency.rank_profile import PARTS, RankProfile
from capplan.latency.rank_tables import RankWork
from capplan.latency.validate import Validation
from capplan.latency.with_engine import as_planned
from capplan.profiling.compare import Comparison
from capplan.profiling.scenes import Point
from capplan.report.charts.profile import profile_figures
from capplan.report.columns import Column, column, format_ms, plural, record
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table
from capplan.report.render.documents import document

_BATCHES = (1, 8, 32, 64, 128, 256)
_CONTEXT = 2048  # of each request [tokens]
_SCHEMA = "capplan.profiles/1"


def format_error(share: float) -> str:
    """Return a relative error in percent, two decimals."""
    return f"{100 * share:.2f} %"


def _told(phase: str, row: dict[str, Any]) -> str | None:
    error, sigma = row[f"{phase}_error"], row.get(f"{phase}_sigma")
    if error is not None:
        return f"{100 * error:.1f} %"
    return f"± {100 * sigma:.0f} %" if sigma else None


def _users(row: dict[str, Any]) -> str | None:
    low, high = row["users_low"], row["users_high"]
    return None if low is None else f"{low:.2f}–{high:.2f}"


_TOLD = {part: partial(_told, part) for part in (*PHASES, *PARTS)}
_LISTED = fields("profiles", users=_users, **_TOLD)
_OF_RANKS = fields("profiles_of_ranks", **_TOLD)


def profiles_page(
    profiles: Iterable[Profile], of_ranks: Iterable[RankProfile] = ()
) -> Page:
    """Return a row per profile, with the errors of each phase and in users.

    Those of ranks that step together have a table of their own.
    """
    rows = list(map(_row, profiles))
    table = Table(_LISTED, rows, is_whole=True)
    title = "ranks that step together, experts by EP"
    rank_rows = list(map(_row_of_ranks, of_ranks))
    ranks = Table(_OF_RANKS, rank_rows, title=title, is_whole=True)
    count = plural(len(rows), "latency profile")
    if rank_rows:
        count += f", {len(rank_rows)} of ranks that step together"
    notes = (
        "Users: what 80 % of such engines hold within 1.25 times the lowest TPOT, "
        "as shares of the predicted.",
        "Errors are means over points not fitted to.",
    )
    return Page(
        "profiles",
        count,
        "",
        [Section(tables=[table, ranks], notes=notes)],
        values=lambda: {
            "schema": _SCHEMA,
            "profiles": rows,
            "rank_profiles": rank_rows,
        },
        csv={"profiles.csv": table, "rank_profiles.csv": ranks},
    )


def _fields(profile: Profile, *names: str) -> dict[str, Any]:
    known = {
        "layout": str(profile.layout),
        "engine": f"{profile.engine} {profile.engine_version}".strip(),
    }
    return {name: known.get(name) or getattr(profile, name) for name in names}


def _row(profile: Profile) -> dict[str, Any]:
    users = capacity_ratio(as_planned(profile), 0.5) or (None, None)
    row = _fields(profile, "gpu", "llm", "tp", "how", "engine")
    row |= {"users_low": users[0], "users_high": users[1]}
    for phase in PHASES:
        errors = profile.errors_of(phase)
        row[f"{phase}_error"] = errors.held_out_mean_abs
        row[f"{phase}_sigma"] = errors.sigma
    return row


def _row_of_ranks(profile: RankProfile) -> dict[str, Any]:
    names = ("gpu", "llm", "tp", "dp", "ep", "nextn", "all_to_all", "imbalance")
    row = _fields(profile, *names, "layout", "engine")
    for part in (*PHASES, *PARTS):
        row[f"{part}_error"] = profile.errors_of(part).held_out_mean_abs
    return row


def capacity_lines(profile: Profile) -> list[str]:
    """Return the engine's time, and the error in users at the usual TPOT limits."""
    if isinstance(profile, RankProfile):
        return []
    planned = as_planned(profile)
    lines = []
    if planned.engine_time is not None:
        lines.append(f"engine's own time: {planned.engine_time}")
    if (of := planned.backtested) is not None:
        return [*lines, f"times of its fleet: {of.low:.3g} to {of.high:.3g} × assumed"]
    for level in LEVELS:
        low, high = capacity_range(planned, level)
        if low < high:
            lines.append(
                f"users within {level:g} times the TPOT of one alone: {low:.2f} to "
                f"{high:.2f} of the predicted, in 80 % of such engines"
            )
    return lines


def errors_table(
    profile: Profile, title: str = "", of: Mapping[str, str] | None = None
) -> Table:
    """Return a profile's errors, a row per phase or part.

    ``of`` says what those of the phases are of.
    """
    kind = next(iter(profile.ERRORS_OF))
    rows = [
        {kind: name, "of": (of or {}).get(name, ""), **errors.model_dump()}
        for name, errors in profile.errors.items()
    ]
    columns = fields("profile_errors", error=format_error)
    if kind == "part":
        columns = fields("profile_part_errors", error=format_error)
    shown = [each for each in columns if each.name != "of" or of is not None]
    return Table(shown, rows, title=title)


def decodes_table(profile: RankProfile) -> Table:
    """Return decodes at several batches, part by part."""
    tables = profile.rank_tables(max(_BATCHES), 1)
    rows = []
    for batch in _BATCHES:
        tokens = batch * tables.tokens_per_request
        work = [RankWork(batch, batch * _CONTEXT)] * tables.ranks
        experts_s = float(tables.experts_s[tables.ranks * tokens])
        exchange_s = float(tables.exchange_s[tokens])
        iteration_s = tables.iteration_time_s(work)
        alone_s = iteration_s - experts_s - exchange_s
        rows.append((batch, alone_s, experts_s, exchange_s, iteration_s))
    title = f"decodes at {_CONTEXT:,} tokens of context"
    return Table(fields("profile_decodes"), rows, title=title)


def profile_page(profile: Profile, points: Points | None = None) -> Page:
    """Return a profile's errors and curves and, given points, its residuals on them.

    Of ranks it has decodes part by part in place of curves.
    """
    what = "latency profile"
    if isinstance(profile, RankProfile):
        what += " of ranks that step together"
        table = errors_table(profile, "errors of each part")
        decodes = decodes_table(profile)
        sections = [Section("Parts", tables=[decodes, table])]
        csv = {"decodes.csv": decodes, "profile.csv": table}
    else:
        table = errors_table(profile)
        sections = [
            Section("Errors of the fit", tables=[table], notes=capacity_lines(profile)),
            Section("Curves", figures=partial(profile_figures, profile, points)),
        ]
        csv = {"profile.csv": table}
    return Page(
        "profile",
        profile.name,
        what,
        sections,
        values=profile.document,
        csv=csv,
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
            "iterations": [record(columns, row) for row in compared],
        },
        csv={"comparison.csv": table},
    )


def validation_page(
    profile: Profile, validation: Validation, points: Points | None = None
) -> Page:
    """Return the errors of a profile on points, by phase and by region."""
    rows = [
        (phase, count, *(errors[phase] for errors in validation[:3]))
        for phase, count in validation.points_by_phase.items()
    ]
    table = Table(fields("profile_validation", error=format_error), rows)
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
