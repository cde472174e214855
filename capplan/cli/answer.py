"""How a command answers: a text for people, or one document on standard output."""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from capplan.cli.outputs import say
from capplan.cli.parameters import named_parameters, take
from capplan.errors import InputError
from capplan.input_file import printable

if TYPE_CHECKING:
    from capplan.report.page import Page

TITLE = "title"
"""Names line 1 alone."""
FORMATS = ("json", "md", "csv", TITLE)
"""Documents that ``--format`` writes to standard output."""

TERMINAL = "terminal"
"""Names the text for people, which is the default."""

PANEL = "Answer"


class Asked(NamedTuple):
    """What the flags of every command ask for."""

    form: str | None = None  # one of FORMATS; None: a text for people
    quiet: bool = False
    topic: str = ""  # what to explain, in place of the first screen


_NOTHING = Asked()
_asked: ContextVar[Asked] = ContextVar("asked", default=_NOTHING)

Form = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="Print this document alone on standard output; title is line 1.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Short for --format json.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="No progress and no report: only errors, warnings and the document asked "
        "for.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
Explain = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="[TOPIC]",
        help="Why and how, in place of one screen: all of it, or count, peak, price, "
        "sure, run, candidates, assumptions, next.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]


def answering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags ``--format``, ``--json``, ``--quiet`` and ``--explain``."""

    def run(
        *,
        answer_as: Form = None,
        answer_as_json: Json = False,
        quiet: Quiet = False,
        explain: Explain = None,
        **given: Any,
    ) -> Any:
        form = _checked(answer_as, answer_as_json)
        asked = _asked.set(Asked(form, quiet, _topic(explain)))
        try:
            return command(**given)
        finally:
            _asked.reset(asked)

    flags = named_parameters(run)  # before it wraps the command, and has its own
    update_wrapper(run, command)
    take(run, [*named_parameters(command), *flags])
    return run


def _topic(topic: str | None) -> str:
    if topic is None:
        return ""
    from capplan.report.page import TOPICS
    from capplan.report.render.terminal import ALL

    if topic not in (ALL, *TOPICS):
        raise InputError(
            f"--explain {topic!r}; expected {', '.join(TOPICS)}, or no topic for all"
        )
    return topic


def _checked(form: str | None, as_json: bool) -> str | None:
    if form == TERMINAL:
        form = None
    if form is not None and form not in FORMATS:
        raise InputError(f"--format is {form!r}; expected {', '.join(FORMATS)}")
    if as_json and form not in (None, "json"):
        raise InputError(
            f"--json and --format {form} are both given; expected one of them"
        )
    return "json" if as_json else form


def show(
    page: "Page",
    written: Sequence[Path] = (),
    told: Callable[[], Iterable[str]] | None = None,
) -> None:
    """Print a page as asked for, and the paths of the files written.

    ``told`` returns the lines for people where they are not those of the page.
    """
    asked = _asked.get()
    if asked.form == TITLE:
        typer.echo(printable(page.headline))
    elif asked.form is not None:
        from capplan.report.render.documents import document

        typer.echo(printable(document(page, asked.form)), nl=False)
        if written:
            note(f"written: {', '.join(map(str, written))}")
    elif asked.quiet:
        return
    elif told is not None:
        for line in told():
            typer.echo(printable(line))
    else:
        from capplan.report.render.terminal import print_result

        print_result(page, written, asked.topic)


def note(text: str) -> None:
    """Print a notice on standard error, unless ``--quiet`` is given."""
    if not _asked.get().quiet:
        say(f"capplan: {text}")


def is_quiet() -> bool:
    """Return whether progress and reports are to be left out."""
    return _asked.get().quiet
