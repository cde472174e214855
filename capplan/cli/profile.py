"""``capplan profile``: measure an engine on the machine at hand."""

from typing import Annotated, Any

import typer

from capplan.cli.answer import is_quiet, show
from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from
from capplan.profiling.settings import ProfileSettings

NOTHING_MEASURED = 2


@with_settings(ProfileSettings)
def profile_command(
    llm: Annotated[
        str,
        typer.Argument(
            help="Model name, or a folder with its config.json.", show_default=False
        ),
    ],
    **flags: Any,
) -> int:
    """Measure iteration times on this machine and fit a latency profile to them.

    One process per TP degree. Points are saved as they are measured: `--resume`
    continues after an interruption. Exit code 2 when no degree gave a profile.
    """
    settings = settings_from(ProfileSettings, None, {"llm": llm, **flags})
    from capplan.report.pages.profiling import expected_page, measured_page
    from capplan.report.writers.profiling import (
        expected_lines,
        print_notes,
        profiling_progress,
    )

    if settings.dry_run:
        from capplan.profiling.expected import expected_runs

        expected = expected_runs(settings)
        show(expected_page(expected), told=lambda: expected_lines(expected))
        return 0
    from capplan.profiling.fitted import profile_and_fit

    with profiling_progress(settings.tp, quiet=is_quiet()) as progress:
        runs = profile_and_fit(settings, progress)
    print_notes(runs)
    paths = [str(run.profile_path) for run in runs if run.profile_path is not None]
    show(measured_page(runs), told=lambda: paths)
    return 0 if paths else NOTHING_MEASURED
