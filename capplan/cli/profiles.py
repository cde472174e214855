"""``capplan profiles``: list, show, compare and validate latency profiles."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capplan.cli.answer import answering, note, show
from capplan.cli.help import GroupedCommand
from capplan.cli.parameters import flag
from capplan.errors import InputError

if TYPE_CHECKING:
    from capplan.latency.measurements import Points
    from capplan.latency.profile import Profile

profiles_app = typer.Typer(
    help="List, show, compare and validate latency profiles.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[
    list[Path] | None,
    flag(
        "",
        "A folder of your own profiles, before the shipped. May be repeated.",
        "--profiles",
    ),
]
Plot = Annotated[Path | None, flag("", "HTML file to draw into.")]
Which = Annotated[
    str,
    typer.Argument(
        help="A file, or GPU/LLM/TP; show also takes GPU/LLM/dp8-ep8.",
        show_default=False,
    ),
]


@profiles_app.command("list", cls=GroupedCommand)
@answering
def list_command(
    folder: Folder = None,
    llm: Annotated[str | None, typer.Option(help="Only of this LLM.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Only on this GPU type.")] = None,
) -> None:
    """List the profiles that plans can use, the user's own first."""
    from capplan.fleet.catalog import gpu as find_gpu
    from capplan.latency.catalog import (
        folders_of_tp,
        full_gpu_name,
        list_profiles,
        names_alike,
        rank_profiles,
    )
    from capplan.latency.profile_file import load_profile
    from capplan.llm.catalog import llm as find_llm
    from capplan.report.pages.profiles import profiles_page

    llms, at = llm and names_alike(llm), gpu and full_gpu_name(gpu)
    folders = folder or []
    found = [
        load_profile(listed.path)
        for listed in list_profiles(folders_of_tp(folders))
        if (llms is None or listed.llm in llms) and at in (None, listed.gpu)
    ]
    of_ranks = list(rank_profiles(folders, gpu=gpu, llm=llm))
    if not (found or of_ranks) and gpu:
        find_gpu(gpu)  # refuses a name that the catalog lacks
    if not (found or of_ranks) and llm:
        find_llm(llm)
    show(profiles_page(found, of_ranks))


@profiles_app.command("show", cls=GroupedCommand)
@answering
def show_command(which: Which, folder: Folder = None, plot: Plot = None) -> None:
    """Show a profile's coefficients, errors, range and source."""
    from capplan.latency.profile_file import profile_text
    from capplan.latency.rank_profile import RankProfile
    from capplan.report.pages.profiles import capacity_lines, profile_page

    profile = _named(which, folder, or_ranks=True)
    if plot is not None and isinstance(profile, RankProfile):
        raise InputError(
            f"--plot is {plot}; curves are drawn of profiles of TP alone, so leave it "
            "out"
        )

    def told() -> Iterable[str]:
        yield profile.note()
        yield from (f"# {line}" for line in capacity_lines(profile))
        yield profile_text(profile).rstrip("\n")

    show(profile_page(profile), told=told)
    _plot(profile, plot)


@profiles_app.command("compare", cls=GroupedCommand)
@answering
def compare_command(first: Which, second: Which, folder: Folder = None) -> None:
    """Compare two profiles: time of the same iterations."""
    from capplan.latency.with_engine import as_planned
    from capplan.profiling.compare import compare
    from capplan.report.pages.profiles import comparison_page

    left, right = (as_planned(_named(which, folder)) for which in (first, second))
    show(comparison_page(left, right, compare(left, right)))


@profiles_app.command("validate", cls=GroupedCommand)
@answering
def validate_command(
    which: Which,
    against: Annotated[Path, flag("", "Fresh points, in a format of capplan fit.")],
    folder: Folder = None,
    where: Annotated[
        list[str] | None,
        flag("COLUMN=VALUE", "Take only these rows of a table. May be repeated."),
    ] = None,
    plot: Plot = None,
) -> None:
    """Print the errors of a profile on points that it was not fitted to."""
    from capplan.calibration.settings import column_values
    from capplan.latency.importers import ImportOptions, read_measurements
    from capplan.latency.served_run import ServedRun
    from capplan.latency.validate import validate
    from capplan.latency.with_engine import as_planned
    from capplan.report.pages.profiles import validation_page

    profile = as_planned(_named(which, folder))
    points = read_measurements(against, ImportOptions(column_values(where or [])))
    if isinstance(points, ServedRun):
        raise InputError(f"{against}: holds served requests; expected points")
    show(validation_page(profile, validate(profile, points), points))
    _plot(profile, plot, points)


def _plot(
    profile: "Profile", path: Path | None, points: "Points | None" = None
) -> None:
    if path is not None:
        from capplan.report.pages.profiles import write_plot

        write_plot(profile, path, points)
        note(f"plot: {path}")


def _named(which: str, folders: list[Path] | None, or_ranks: bool = False) -> "Profile":
    """Return the profile of a file, of GPU/LLM/TP or, of ranks, of GPU/LLM/LAYOUT."""
    from capplan.latency.catalog import named_profile, named_rank_profile, says_it_is
    from capplan.latency.profile_file import load_profile, load_rank_profile
    from capplan.latency.rank_profile import RankProfile

    path = Path(which)
    if path.is_file():
        is_of_ranks = or_ranks and says_it_is(path, RankProfile)
        return load_rank_profile(path) if is_of_ranks else load_profile(path)
    for named in (named_rank_profile, named_profile) if or_ranks else (named_profile,):
        with suppress(InputError):
            profile = named(which, folders or [])
            if profile is not None:
                return profile
    raise InputError(
        f"{which!r} is no profile; expected a file or GPU/LLM/TP such as "
        "H100-SXM/Llama-3.1-8B/1 (capplan profiles list names them)"
    )
