"""``capplan trace``: describe, cut, scale and mix conversations by whole sessions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capplan.cli.answer import answering, note, show
from capplan.cli.help import GroupedCommand
from capplan.cli.parameters import flag, operand
from capplan.errors import InputError

if TYPE_CHECKING:
    from capplan.workload.trace import Trace

trace_app = typer.Typer(
    help="Describe, cut, scale and mix conversations: whole sessions, never rows.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FILE = (
    "Conversations: a recording, a CSV with id, parent and after, or "
    "agents-coding:n=200, chat-turns, support-bot."
)
File = Annotated[Path, operand("FILE", _FILE)]
Files = Annotated[list[Path], operand("FILE...", _FILE)]
Out = Annotated[Path, flag("FILE", "CSV to write.", "--out", "-o")]
Reader = Annotated[str | None, flag("NAME", "Trace format (default: detected).")]
Tokenizer = Annotated[Path | None, flag("FILE", "tokenizer.json to count text with.")]
Thinking = Annotated[
    str,
    flag(
        "RULE",
        "Thoughts of earlier answers: kept (default), dropped-at-user, dropped-always. "
        "Of reasoning_tokens.",
    ),
]
Seed = Annotated[int, flag("N", "Seed of the draws (default 0).")]


@trace_app.command("describe", cls=GroupedCommand)
@answering
def describe_command(
    file: File,
    block_size: Annotated[int, flag("N", "Tokens in a KV block (default 16).")] = 16,
    every: Annotated[
        str,
        flag("TIME", "Between the begins of sessions without times (default 60s)."),
    ] = "60s",
    seed: Seed = 0,
    thinking: Thinking = "kept",
    reader: Reader = None,
    tokenizer: Tokenizer = None,
) -> None:
    """Say what sessions are like: turns, waits, prefixes, hits, rates by hour."""
    from capplan.report.pages.trace import trace_page
    from capplan.units import parse_duration_s
    from capplan.workload.sessions import session_figures

    if block_size < 1:
        raise InputError(f"--block-size is {block_size}; expected 1 or more tokens")
    trace = _read(file, reader, tokenizer, thinking, seed)
    figures = session_figures(trace, block_size, parse_duration_s(every))
    show(trace_page(trace, figures))


@trace_app.command("cut", cls=GroupedCommand)
@answering
def cut_command(
    file: File,
    sessions: Annotated[int, flag("N", "Keep the first N sessions.")],
    out: Out,
    seed: Seed = 0,
    thinking: Thinking = "kept",
    reader: Reader = None,
    tokenizer: Tokenizer = None,
) -> None:
    """Write the first sessions of a trace, whole."""
    from capplan.workload.sessions import cut

    if sessions < 1:
        raise InputError(f"--sessions is {sessions}; expected 1 or more")
    _write(cut(_read(file, reader, tokenizer, thinking, seed), sessions), out)


@trace_app.command("scale", cls=GroupedCommand)
@answering
def scale_command(
    file: File,
    by: Annotated[float, flag("F", "Times the sessions: thinned, or with copies.")],
    out: Out,
    seed: Seed = 0,
    reader: Reader = None,
    tokenizer: Tokenizer = None,
) -> None:
    """Write F times the sessions at the same hours; the waits in them stay."""
    from capplan.workload.scale import scaled_traffic

    _write(scaled_traffic(_read(file, reader, tokenizer), by, seed), out)


@trace_app.command("mix", cls=GroupedCommand)
@answering
def mix_command(files: Files, out: Out, tokenizer: Tokenizer = None) -> None:
    """Write the sessions of several traces together; texts of the same name are one."""
    from capplan.workload.sessions import mixed

    _write(mixed([_read(file, None, tokenizer) for file in files]), out)


def _read(
    path: Path,
    reader: str | None,
    tokenizer: Path | None,
    thinking: str = "kept",
    seed: int = 0,
) -> "Trace":
    from capplan.workload.readers import read_trace
    from capplan.workload.sessions import with_thinking

    if not path.exists():
        from capplan.workload.catalog import open_workload

        return with_thinking(open_workload(str(path), seed=seed), thinking)
    given: dict[str, Any] = {"turns": True, "tokenizer": tokenizer}
    return with_thinking(read_trace(path, reader_name=reader, **given), thinking)


def _write(trace: "Trace", out: Path) -> None:
    from capplan.files import write_texts
    from capplan.report.pages.trace import written_page
    from capplan.workload.sessions import csv_text

    write_texts({out.name: csv_text(trace)}, out.parent)
    show(written_page(trace, out))
    note(f"written: {out}")
