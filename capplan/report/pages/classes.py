"""How many requests of each class are in time, as a section and as CSV."""

from collections.abc import Iterable

from capplan.planning.evaluate.classes import ClassResult
from capplan.planning.evaluate.run import Run
from capplan.planning.evaluate.work import Work
from capplan.report.columns import Column, column, format_share
from capplan.report.fields import fields
from capplan.report.page import Section, Table

MOST_SHOWN = 20
"""Rows shown to people; all are in the files."""
_SHARES = "“cost share” is the share of GPU time"

COLUMNS = fields("class", attainment_of=lambda row: "; ".join(row.attainment_of))
"""Columns of a class; ``attainment`` may be asked of several classes together."""


def shown(classes: tuple[ClassResult, ...]) -> tuple[ClassResult, ...]:
    """Return the classes to show: all, or those closest to their target and below."""
    if len(classes) <= MOST_SHOWN:
        return classes
    near = sorted(classes, key=lambda row: row.slo_attainment - row.attainment)
    return tuple(near[:MOST_SHOWN])


COST_SHARE = "cost_share"


def cost_share(work: Work | None) -> Column:
    """Return the column of each class's share of the cost of a run."""
    shares = {} if work is None else work.class_shares
    return Column(
        COST_SHARE,
        lambda row: shares.get(row.class_name),
        "cost share" if shares else "",
        lambda share: f"{100 * share:.1f} %",
    )


def classes_section(
    classes: tuple[ClassResult, ...], work: Work | None = None
) -> Section:
    """Return how each class does; empty where there is one class."""
    columns = (*COLUMNS, cost_share(work))
    note = ". ".join(filter(None, (_note(classes), "" if work is None else _SHARES)))
    return Section("Classes", tables=[Table(columns, shown(classes), note=note)])


def classes_table(runs: Iterable[Run]) -> Table:
    """Return the classes of runs for CSV; no rows where there is one class."""
    rows = [(run, row) for run in runs for row in run.judgement.classes]
    of_run = (
        column("gpu", path="0.configuration.gpu"),
        column("tp", path="0.configuration.tp"),
        column("layout", path="0.configuration.key.1"),
        column("replica_count", path="0.replica_count"),
    )
    share = Column(COST_SHARE, _share_of_run)
    return Table((*of_run, *(each.within("1") for each in COLUMNS), share), rows)


def _share_of_run(row: tuple[Run, ClassResult]) -> float | None:
    run, result = row
    return None if run.work is None else run.work.class_shares.get(result.class_name)


def _note(classes: tuple[ClassResult, ...]) -> str:
    """Return what the table leaves out, or asks of several classes together."""
    parts = []
    if len(classes) > MOST_SHOWN:
        parts.append(
            f"{MOST_SHOWN} of {len(classes):,} classes, those closest to their target "
            "or below it; all are in classes.csv"
        )
    for group in dict.fromkeys(row.attainment_of for row in classes):
        if len(group) > 1:
            target = next(row.attainment for row in classes if row.class_name in group)
            of = "all classes" if len(group) == len(classes) else " and ".join(group)
            parts.append(f"{format_share(target)} is asked of {of} together")
    return "; ".join(parts)
