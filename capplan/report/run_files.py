"""Write the files that were asked of a simulation."""

from collections.abc import Iterator
from pathlib import Path

from capplan.errors import InputError
from capplan.files import check_folder
from capplan.planning.deployment_run import DeploymentRun
from capplan.planning.settings import SimulateSettings
from capplan.planning.stream_run import StreamRun
from capplan.report.write_run import write_run
from capplan.report.write_schedule import (
    write_iterations,
    write_requests,
    write_trace_events,
)

_FILES = ("record_iterations", "per_request", "trace_events")


def check_run_files(request: SimulateSettings) -> None:
    """Refuse files that cannot be written, before the work is done.

    Raises
    ------
    InputError
        When a folder is missing or a file, or a file is a folder.
    """
    if request.out is not None:
        check_folder(request.out)
    for name in _FILES:
        path = getattr(request, name)
        if path is not None:
            if not Path(path).parent.is_dir():
                raise InputError(f"{path}: {Path(path).parent} is not a folder")
            if Path(path).is_dir():
                raise InputError(f"{path}: is a folder; expected a file")


def write_run_files(
    run: DeploymentRun | StreamRun, request: SimulateSettings
) -> tuple[Path, ...]:
    """Write what the request names; return where.

    A streamed run has written its requests already.

    Raises
    ------
    InputError
        When a file cannot be written.
    """
    written: list[Path] = []
    if isinstance(run, DeploymentRun):
        written += _tables(run, request)
    elif request.per_request is not None:
        written.append(Path(request.per_request))
    if request.out is not None:
        written += write_run(run, request.out)
    return tuple(written)


def _tables(run: DeploymentRun, request: SimulateSettings) -> Iterator[Path]:
    iterations, times = run.simulation.iterations, run.simulation.times
    if request.record_iterations is not None and iterations is not None:
        path = request.record_iterations
        yield write_iterations(iterations, path, run.replica_count)
    if request.per_request is not None:
        yield write_requests(times, request.per_request)
    if request.trace_events is not None and iterations is not None:
        yield write_trace_events(iterations, times, request.trace_events)
