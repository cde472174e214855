"""Run a command and write its files, for the command line and for Python.

Paths that cannot be written are refused before the computation.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from capplan.errors import InputError
from capplan.files import check_folder, write_texts
from capplan.planning.compare import Comparison
from capplan.planning.compare import compare as compute_comparison
from capplan.planning.compare_settings import CompareSettings
from capplan.planning.demand import Demand
from capplan.planning.demand import demand as compute_demand
from capplan.planning.demand_settings import DemandSettings
from capplan.planning.plan import plan as compute_plan
from capplan.planning.result import Plan
from capplan.planning.run import RequestProgress, Run, simulate_deployment
from capplan.planning.search import Search
from capplan.planning.search import search as compute_search
from capplan.planning.search_settings import SearchSettings
from capplan.planning.settings import (
    PlanSettings,
    SimulateSettings,
)
from capplan.report.write_compare import (
    compare_csv,
    compare_html,
    compare_json,
    rates_csv,
)
from capplan.report.write_csv import classes_csv, plan_classes_csv, plan_csv
from capplan.report.write_demand import demand_json
from capplan.report.write_html import plan_html
from capplan.report.write_json import plan_json
from capplan.report.write_requests import appending, write_requests
from capplan.report.write_run import run_csv, run_html, run_json
from capplan.report.write_schedule import write_iterations, write_trace_events
from capplan.report.write_search import search_csv, search_json
from capplan.simulator.fleet import Stopped

Result = TypeVar("Result")
Progress = Callable[[str], None]
Written = tuple[Path, ...]
"""Paths of the files written."""


_PLAN = {"plan.json": plan_json, "plan.csv": plan_csv, "report.html": plan_html}
_PLAN |= {"classes.csv": plan_classes_csv}
_SEARCH = {"search.json": search_json, "search.csv": search_csv}
_COMPARISON = {"compare.json": compare_json, "compare.csv": compare_csv}
_COMPARISON |= {"rates.csv": rates_csv, "report.html": compare_html}
_RUN = {"simulation.json": run_json, "simulation.csv": run_csv, "report.html": run_html}
_RUN |= {"classes.csv": lambda run: classes_csv([run])}


def _computed(
    compute: Callable[[], Result],
    writers: Mapping[str, Callable[[Result], str]],
    folder: str | None,
) -> tuple[Result, Written]:
    """Compute a result; write all its files into a folder, or none of them.

    A text that is empty is no file: one of an earlier result is removed.
    """
    if folder is None:
        return compute(), ()
    check_folder(folder)
    result = compute()
    texts = {name: writer(result) for name, writer in writers.items()}
    written = write_texts({name: text for name, text in texts.items() if text}, folder)
    for name in (name for name, text in texts.items() if not text):
        Path(folder, name).unlink(missing_ok=True)
    return result, written


def plan(
    settings: PlanSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> tuple[Plan, Written]:
    """Plan; write ``plan.json``, ``plan.csv``, ``classes.csv`` and ``report.html``."""
    return _computed(
        lambda: compute_plan(settings, progress, stopped), _PLAN, settings.out
    )


def search(settings: SearchSettings) -> tuple[Search, Written]:
    """Compare TP degrees; write ``search.json`` and ``search.csv``."""
    return _computed(lambda: compute_search(settings), _SEARCH, settings.out)


def compare(
    settings: CompareSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> tuple[Comparison, Written]:
    """Compare; write ``compare.json``, ``compare.csv``, ``rates.csv``, HTML."""
    return _computed(
        lambda: compute_comparison(settings, progress, stopped),
        _COMPARISON,
        settings.out,
    )


def demand(
    settings: DemandSettings, progress: Progress | None = None
) -> tuple[Demand, Written]:
    """Plan at several rates; write ``demand.json``."""
    writers = {"demand.json": demand_json}
    return _computed(lambda: compute_demand(settings, progress), writers, settings.out)


def simulate(
    settings: SimulateSettings,
    progress: RequestProgress | None = None,
    stopped: Stopped | None = None,
) -> tuple[Run, Written]:
    """Simulate; write the tables, ``simulation.json`` and ``.csv``, ``report.html``."""
    # A simulation may take minutes: find out before it that a file cannot be written.
    for path in (
        settings.record_iterations,
        settings.per_request,
        settings.trace_events,
    ):
        if path is not None and not Path(path).parent.is_dir():
            raise InputError(f"{path}: {Path(path).parent} is not a folder")
        if path is not None and Path(path).is_dir():
            raise InputError(f"{path}: is a folder; expected a file")

    def compute() -> Run:
        with appending(settings) as append:
            return simulate_deployment(settings, progress, stopped, append)

    run, written = _computed(compute, _RUN, settings.out)
    return run, (*_tables(run, settings), *written)


def _tables(run: Run, settings: SimulateSettings) -> Iterator[Path]:
    iterations, times = run.simulation.iterations, run.simulation.times
    if settings.record_iterations is not None and iterations is not None:
        path = settings.record_iterations
        yield write_iterations(iterations, path, run.replica_count)
    if settings.per_request is not None:
        if times is None:  # streamed: written as the requests finished
            yield Path(settings.per_request)
        else:
            yield write_requests(times, settings.per_request)
    if settings.trace_events is not None and iterations is not None:
        assert times is not None  # a streamed run records no iterations
        yield write_trace_events(iterations, times, settings.trace_events)
