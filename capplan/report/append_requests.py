"""Write the times of requests as they finish, for runs that do not keep them."""

import csv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np

from capplan.files import new_file
from capplan.planning.run import is_streamed
from capplan.planning.settings import SimulateSettings
from capplan.report.write_schedule import REQUEST_COLUMNS
from capplan.simulator.times import RequestTimes

APPENDED_COLUMNS = ("row", *REQUEST_COLUMNS)
"""``row`` counts the requests of the trace from 0; they come as they finish."""


def appending(
    settings: SimulateSettings,
) -> AbstractContextManager[Callable[[np.ndarray], None] | None]:
    """Open the file of requests of a streamed run, where one is named."""
    if settings.per_request is None or not is_streamed(settings):
        return nullcontext()
    return appended_requests(settings.per_request)


@contextmanager
def appended_requests(path: str | Path) -> Iterator[Callable[[np.ndarray], None]]:
    """Open a file of requests; yield a function that appends finished ones."""
    with new_file(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(APPENDED_COLUMNS)
        yield lambda done: writer.writerows(_rows(done))


def _rows(done: np.ndarray) -> Iterator[list[object]]:
    times = RequestTimes.of(done)
    columns = [done["row"], *(getattr(times, name) for name in REQUEST_COLUMNS)]
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield ["" if value != value else value for value in values]
