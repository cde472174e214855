"""Run a command and write its files, for the command line and for Python.

Paths that cannot be written are refused before the computation.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from capplan.errors import InputError
from capplan.files import check_folder
from capplan.planning.evaluate.inputs import Progress
from capplan.planning.evaluate.run import Run, simulate_deployment
from capplan.planning.evaluate.streaming import RequestProgress
from capplan.planning.plan.plan import plan as compute_plan
from capplan.planning.plan.result import Plan
from capplan.planning.settings.groups import OutputSettings
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.report.questions import QUESTIONS
from capplan.report.shown import page_of
from capplan.report.writers.metrics import parse_export, write_metrics
from capplan.report.writers.page_files import Written, plan_files, write_page
from capplan.report.writers.requests import appending, write_requests
from capplan.report.writers.schedule import write_iterations, write_trace_events
from capplan.simulator.fleet.fleet import Stopped

if TYPE_CHECKING:
    from capplan.planning.plan.placing import Placed
    from capplan.planning.settings.place import PlaceSettings
    from capplan.planning.what_if.what_if import WhatIf

Result = TypeVar("Result")


def _computed(
    compute: Callable[..., Result],
    settings: OutputSettings,
    *watched: object,
    also: Callable[[Result], Mapping[str, str | bytes]] = lambda result: {},
) -> tuple[Result, Written]:
    """Compute a result; write all files of its page into a folder, or none of them.

    ``watched`` is what else ``compute`` takes: a progress, what says when to stop.
    ``also`` returns further files by name. A text that is empty is no file: one of an
    earlier result is removed.
    """
    if settings.out is None:
        return compute(settings, *watched), ()
    check_folder(settings.out)
    result = compute(settings, *watched)
    return result, write_page(page_of(result), settings.out, also(result))


def plan(
    settings: PlanSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> tuple[Plan, Written]:
    """Plan, and write the files, with what exported deployments take from them."""
    if len(settings.llms) > 1:
        raise InputError(
            f"llm is {settings.llm}: a plan is of one LLM; in Python expected "
            "what_if(vary={'llm': [...]})"
        )
    _check_xlsx(settings)
    compute = partial(compute_plan, with_load=True)
    also = partial(plan_files, xlsx=settings.xlsx)
    return _computed(compute, settings, progress, stopped, also=also)


def _check_xlsx(settings: PlanSettings) -> None:
    if settings.xlsx and settings.out is None:
        raise InputError("--xlsx writes plan.xlsx into a folder; give --out DIR too")


def plan_each(
    settings: PlanSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> "tuple[WhatIf, Written]":
    """Plan for each LLM; write the files of each plan, and of all side by side.

    Each has a folder of its LLM's name within that of the settings.
    """
    _check_xlsx(settings)
    of_each: list[Path] = []
    folders: dict[str, Path] = {}
    if settings.out is not None:
        check_folder(settings.out)
        folders = _folders(settings.llms, Path(settings.out))
        for folder in folders.values():
            check_folder(folder)

    def compute(
        settings: PlanSettings, progress: Progress | None, stopped: Stopped | None
    ) -> "WhatIf":
        from capplan.planning.what_if.what_if import plan_each

        plans = plan_each(settings, progress, stopped)
        for cell in plans.cells if folders else ():
            if cell.plan is not None:
                also = plan_files(cell.plan, xlsx=settings.xlsx)
                folder = folders[cell.llm]
                of_each.extend(write_page(page_of(cell.plan), folder, also))
        return plans

    result, written = _computed(compute, settings, progress, stopped)
    return result, (*of_each, *written)


def _folders(llms: Sequence[str], out: Path) -> dict[str, Path]:
    """Return a folder for each LLM, of the last part of its name or path."""
    names = [re.sub(r"[^\w.-]+", "-", Path(llm).name).lstrip(".") for llm in llms]
    if len({name.lower() for name in names}) < len(names) or "" in names:
        names = [re.sub(r"[^\w.-]+", "-", llm).strip(".-") for llm in llms]
    return {llm: out / name for llm, name in zip(llms, names, strict=True)}


def answer(name: str, settings: Any, *watched: Any) -> tuple[Any, Written]:
    """Answer a question of ``QUESTIONS``, and write the files."""
    if name == "plan" and len(settings.llms) > 1:
        return plan_each(settings, *watched)
    if name == "plan":
        return plan(settings, *watched)
    if name == "simulate":
        return simulate(settings, *watched)
    if name == "place":
        return place(settings)
    return _computed(QUESTIONS[name].computed, settings, *watched)


def place(settings: "PlaceSettings") -> "tuple[Placed, Written]":
    """Place the requests of one moment; write the export and the files."""
    from capplan.placement.lp_export import write_model
    from capplan.placement.snapshot import write_snapshot

    _check_parent(settings.export)
    placed, written = _computed(QUESTIONS["place"].computed, settings)
    if settings.export is not None:
        path = Path(settings.export)
        write = write_model if path.suffix in (".lp", ".mps") else write_snapshot
        write(placed.problem, path)
    return placed, written


def _check_parent(path: str | None) -> None:
    """Refuse a file that cannot be written, before work that may take minutes."""
    if path is not None and not Path(path).parent.is_dir():
        raise InputError(f"{path}: {Path(path).parent} is not a folder")
    if path is not None and Path(path).is_dir():
        raise InputError(f"{path}: is a folder; expected a file")


def simulate(
    settings: SimulateSettings,
    progress: RequestProgress | None = None,
    stopped: Stopped | None = None,
) -> tuple[Run, Written]:
    """Simulate; write the tables of requests and iterations, and the files."""
    _check_parent(settings.record_iterations)
    _check_parent(settings.per_request)
    _check_parent(settings.trace_events)
    if settings.export_metrics is not None:
        check_folder(parse_export(settings.export_metrics)[0])

    def compute(settings: SimulateSettings) -> Run:
        with appending(settings) as append:
            return simulate_deployment(settings, progress, stopped, append)

    run, written = _computed(compute, settings)
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
            more = [] if run.simulation.pools[0].tier is None else ["tier_tokens"]
            yield write_requests(times, settings.per_request, *more)
    if settings.trace_events is not None and iterations is not None:
        assert times is not None  # a streamed run records no iterations
        yield write_trace_events(iterations, times, settings.trace_events)
    if settings.export_metrics is not None:
        yield from write_metrics(run, settings.export_metrics)
