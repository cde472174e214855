"""Pages of profiles of ranks that step together, whose parts stand apart."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from capplan.latency.measurements import PHASES
from capplan.latency.rank_profile import PARTS, RankProfile
from capplan.latency.rank_tables import RankWork
from capplan.report.columns import Column, column, format_count, format_ms
from capplan.report.page import Page, Section, Table

_BATCHES = (1, 8, 32, 64, 128, 256)
_CONTEXT = 2048  # of each request [tokens]
_MOST_PROMPT = 1


def _error(part: str, row: dict[str, Any]) -> str | None:
    error = row[f"{part}_error"]
    return None if error is None else f"{error:.1%}"


_LISTED = (
    column("gpu", "GPU", justify="left"),
    column("llm", "LLM", justify="left"),
    column("layout", "layout", justify="left"),
    column("all_to_all", "all-to-all", justify="left", leaves=1),
    column("engine", "engine", justify="left", leaves=1),
    *(Column("", partial(_error, part), part) for part in (*PHASES, *PARTS)),
    *(column(f"{part}_error") for part in (*PHASES, *PARTS)),
    *(column(name) for name in ("dp", "ep", "tp", "nextn", "imbalance")),
)


def rank_table(profiles: Iterable[RankProfile]) -> Table:
    """Return a row per profile, with the errors of each part."""
    return Table(
        _LISTED,
        [_row(profile) for profile in profiles],
        title="ranks that step together, experts by EP",
        is_whole=True,
    )


def _row(profile: RankProfile) -> dict[str, Any]:
    names = ("gpu", "llm", "tp", "dp", "ep", "nextn", "all_to_all", "imbalance")
    row: dict[str, Any] = {name: getattr(profile, name) for name in names}
    row["layout"] = str(profile.layout)
    row["engine"] = f"{profile.engine} {profile.engine_version}".strip()
    for part in (*PHASES, *PARTS):
        row[f"{part}_error"] = profile.errors_of(part).held_out_mean_abs
    return row


_DECODES = (
    column("batch", "requests on each rank", format_count),
    column("alone_s", "a rank alone", format_ms),
    column("experts_s", "experts", format_ms),
    column("exchange_s", "all-to-all", format_ms),
    column("iteration_s", "together", format_ms),
)


def decodes_table(profile: RankProfile) -> Table:
    """Return decodes at several batches, part by part."""
    tables = profile.tables(max(_BATCHES), _MOST_PROMPT)
    rows = []
    for batch in _BATCHES:
        tokens = batch * tables.tokens_per_request
        work = [RankWork(batch, batch * _CONTEXT)] * tables.ranks
        experts_s = float(tables.experts_s[tables.ranks * tokens])
        exchange_s = float(tables.exchange_s[tokens])
        iteration_s = tables.iteration_time_s(work)
        rows.append(
            {
                "batch": batch,
                "alone_s": iteration_s - experts_s - exchange_s,
                "experts_s": experts_s,
                "exchange_s": exchange_s,
                "iteration_s": iteration_s,
            }
        )
    return Table(_DECODES, rows, title=f"decodes at {_CONTEXT:,} tokens of context")


_ERRORS = (
    column("part", "part", justify="left"),
    column("points", "points", format_count),
    column("mean_abs", "mean error", "{:.2%}".format),
    column("max_abs", "worst", "{:.2%}".format),
    column("held_out_mean_abs", "mean, held out", "{:.2%}".format),
    column("held_out_max_abs", "worst, held out", "{:.2%}".format),
    column("sigma"),
)


def part_errors(profile: RankProfile) -> Table:
    """Return the errors of each part, a row each."""
    rows = [
        {"part": part, **record.model_dump()} for part, record in profile.errors.items()
    ]
    return Table(_ERRORS, rows, title="errors of each part")


def rank_profile_page(profile: RankProfile) -> Page:
    """Return a profile's decodes part by part, and the errors of each part."""
    tables = [decodes_table(profile), part_errors(profile)]
    return Page(
        "profile",
        profile.name,
        "latency profile of ranks that step together",
        [Section("Parts", tables=tables)],
        values=partial(profile.model_dump, exclude_none=True),
        csv={"decodes.csv": tables[0], "profile.csv": tables[1]},
        lead=profile.note(),
    )
