"""How a command answers: a text for people, or one document on standard output."""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from capplan.cli.help import EXPLAIN, HELP_ALL, help_all
from capplan.cli.outputs import say
from capplan.cli.parameters import COMMON, flag, named_parameters, take
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


_flag = partial(flag, rich_help_panel=PANEL)
_FORM = f"Print this alone: {', '.join(FORMATS)} (line 1)."
Form = Annotated[str | None, _flag("FORM", _FORM, "--format"), COMMON]
Json = Annotated[bool, _flag("", "Short for --format json.", "--json")]
_QUIET = "No progress and no report: only errors, warnings and what was asked for."
Quiet = Annotated[bool, _flag("", _QUIET, "--quiet", "-q")]
_EXPLAIN = (
    "Why: count, peak, price, sure, run, candidates, assumptions or next. In place of "
    "one screen; without a topic all."
)
Explain = Annotated[str | None, _flag("[TOPIC]", _EXPLAIN, EXPLAIN), COMMON]
HelpAll = Annotated[
    str | None,
    _flag(
        "[WORD]",
        "All settings, or those that mention WORD.",
        HELP_ALL,
        callback=help_all,
        is_eager=True,
        expose_value=False,
    ),
    COMMON,
]


def answering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of every command: how it answers, and the help of all settings."""

    def run(
        *,
        answer_as: Form = None,
        answer_as_json: Json = False,
        quiet: Quiet = False,
        explain: Explain = None,
        all_settings: HelpAll = None,
        **given: Any,
    ) -> Any:
        form = checked_form(answer_as, answer_as_json)
        asked = _asked.set(Asked(form, quiet, checked_topic(explain)))
        try:
            return command(**given)
        finally:
            _asked.reset(asked)

    flags = named_parameters(run)  # before it wraps the command, and has its own
    update_wrapper(run, command)
    take(run, [*named_parameters(command), *flags])
    return run


def checked_topic(topic: str | None) -> str:
    """Return a topic that is explained; empty where none is asked for."""
    if topic is None:
        return ""
    from capplan.report.page import TOPICS
    from capplan.report.render.terminal import ALL

    if topic not in (ALL, *TOPICS):
        raise InputError(
            f"--explain {topic!r}; expected {', '.join(TOPICS)}, or no topic for all"
        )
    return topic


def checked_form(form: str | None, as_json: bool = False) -> str | None:
    """Return the document that is asked for; None for the text for people."""
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
    topic: str = "",
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

        print_result(page, written, topic or asked.topic)


def note(text: str) -> None:
    """Print a notice on standard error, unless ``--quiet`` is given."""
    if not _asked.get().quiet:
        say(f"capplan: {text}")


def is_quiet() -> bool:
    """Return whether progress and reports are to be left out."""
    return _asked.get().quiet
