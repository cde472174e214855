"""``capplan simulate``: what one given deployment does with a workload."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.interruption import interruptible
from capplan.cli.notices import say_if_compiling
from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from
from capplan.planning.settings import SimulateSettings

INTERRUPTED = 130


_UNUSED = ("solver", "tune", "executor", "ray_address", "extend")


@with_settings(SimulateSettings, without=_UNUSED)
def simulate_command(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO.yaml",
            help="Any of the settings below in a file; flags override it.",
            show_default=False,
        ),
    ] = None,
    **settings: Any,
) -> int:
    """Simulate one given deployment: latencies, attainment, use over time.

    The requests are taken as they are: a short trace is not extended. Ctrl-C
    answers for the requests that were served by then; exit code 130.
    """
    request = settings_from(SimulateSettings, scenario, settings)
    say_if_compiling()
    from capplan.report.run_files import check_run_files, write_run_files

    check_run_files(request)
    from capplan.planning.deployment_run import DeploymentRun, simulate_deployment
    from capplan.planning.stream_run import StreamRun, is_streamed, simulate_streamed
    from capplan.report.append_requests import appending
    from capplan.report.terminal import console, print_run, request_progress

    run: DeploymentRun | StreamRun
    with request_progress() as progress, interruptible() as stopped:
        if is_streamed(request):
            with appending(request.per_request) as append:
                run = simulate_streamed(request, progress, stopped, append)
        else:
            run = simulate_deployment(request, progress, stopped)
    written = write_run_files(run, request)
    out = console()
    print_run(run, out)
    if written:
        out.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
    return 0 if run.interrupted_of is None else INTERRUPTED
