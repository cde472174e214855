"""Write the times of the requests, at the end of a run or while it goes on."""

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np

from capplan.files import new_file
from capplan.planning.load.traffic import is_streamed
from capplan.planning.settings.plan import SimulateSettings
from capplan.report.render.csv_table import write_csv_file
from capplan.simulator.results.request_times import RequestTimes

REQUEST_COLUMNS: tuple[str, ...] = ("arrival_s", "scheduled_s", "first_token_s")
REQUEST_COLUMNS += ("finish_s", "longest_gap_s", "ttft_s", "tpot_s", "e2e_s", "wait_s")
REQUEST_COLUMNS += ("prompt_tokens", "output_tokens", "replica", "preemptions")
REQUEST_COLUMNS += ("cached_tokens", "swaps", "paused_s", "late_gaps")
APPENDED_COLUMNS = ("row", *REQUEST_COLUMNS)
"""Requests of a streamed run, as they finish: ``row`` is the index in the trace."""


def write_requests(times: RequestTimes, path: str | Path, *more: str) -> Path:
    """Write one row per request, in the order of the trace; return the path.

    ``more``: further columns.
    """
    names = (*REQUEST_COLUMNS, *more)
    rows = _rows(getattr(times, name) for name in names)
    return write_csv_file(path, names, rows)


def appending(
    settings: SimulateSettings,
) -> AbstractContextManager[Callable[[np.ndarray], None] | None]:
    """Open the request file of a streamed run; None where none is to be written."""
    if settings.per_request is None or not is_streamed(settings):
        return nullcontext()
    return appended_requests(settings.per_request)


@contextmanager
def appended_requests(path: str | Path) -> Iterator[Callable[[np.ndarray], None]]:
    """Open a request file; yield the function that appends finished requests."""
    with new_file(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(APPENDED_COLUMNS)

        def append(finished: np.ndarray) -> None:
            times = RequestTimes.of(finished)
            columns = (getattr(times, name) for name in REQUEST_COLUMNS)
            writer.writerows(_rows([finished["row"], *columns]))

        yield append


def _rows(columns: Iterable[np.ndarray]) -> Iterator[list[object]]:
    """Yield the rows of columns; NaN, which differs from itself, is an empty cell."""
    # A comparison is much faster than math.isnan over millions of requests.
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield ["" if value != value else value for value in values]
