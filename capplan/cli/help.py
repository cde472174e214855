"""Help of a command in two lengths: settings by group, with an example to copy."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any, get_args

import typer
from typer.core import TyperCommand

from capplan.cli.commands import EXAMPLES
from capplan.cli.parameters import COMMON
from capplan.errors import InputError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

EXPLAIN, HELP_ALL = "--explain", "--help-all"
BARE = {EXPLAIN: "all", HELP_ALL: ""}
"""Flags that may stand without a value, and the value that they then have."""

LONG = 40
"""Settings above which ``-h`` shows the common ones alone."""

HEADINGS = {
    "Workload": "What arrives",
    "Objective": "What is promised",
    "LLM, GPUs and prices": "What may be rented",
    "Engine (vLLM's names)": "How it is served",
    "Method": "How it is served",
    "Latency": "How it is served",
    "Output": "What you get",
    "Answer": "What you get",
}
"""Heading of ``-h`` of a group of settings; those of others are the command's own."""


def _completed(args: Sequence[str]) -> Iterator[str]:
    """Yield arguments, with a value behind each flag of ``BARE`` that has none."""
    for arg, after in zip_longest(args, args[1:]):
        yield arg
        other = after is None or after.startswith("-") or "." in after
        if arg in BARE and (after is None if arg == HELP_ALL else other):
            yield BARE[arg]


def help_all(ctx: typer.Context, word: str | None) -> None:
    """Print the help of all settings, or of those that mention a word, and exit."""
    if word is not None and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = word
        typer.echo(ctx.get_help().rstrip("\n"))
        raise typer.Exit


class GroupedCommand(TyperCommand):
    """A command with help in two lengths, each by groups and with an example first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a flag of ``BARE`` may stand without its value."""
        return super().parse_args(ctx, list(_completed(args)))

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what it does, the first line for ``-h``, and its examples unwrapped."""
        if ctx.meta.get(HELP_ALL):
            return
        text = inspect.cleandoc(self.help or "")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(
                text.partition("\n")[0] if self._is_short(ctx) else text
            )
        formatter.write("\n")
        examples = EXAMPLES.get(ctx.command_path.removeprefix("capplan "), "")
        for example in examples.splitlines():
            whole = re.sub(r"(--\S+) (?!-)", "\\1\N{NO-BREAK SPACE}", example)
            lines = wrap(whole, formatter.width - 6, break_on_hyphens=False)
            told = "  $ " + " \\\n      ".join(lines) + "\n"
            formatter.write(told.replace("\N{NO-BREAK SPACE}", " "))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the settings by group: the common ones, all, or those with a word."""
        if self._is_short(ctx):
            write_groups(formatter, self._common(ctx.info_name.capitalize()))
            return
        word = ctx.meta.get(HELP_ALL, "")
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            plain = f"{each.param_type_name.capitalize()}s"
            group = getattr(each, "rich_help_panel", None) or plain
            record = each.get_help_record(ctx)
            if record and _mentions(word, group, *record):
                groups.setdefault(group, []).append(record)
        if not groups:
            raise InputError(f"no setting of {ctx.command_path} mentions {word!r}")
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def _is_short(self, ctx: Any) -> bool:
        """Return whether this is ``-h`` of more settings than a screen has room for."""
        return HELP_ALL not in ctx.meta and len(self.params) > LONG

    def _common(self, own: str) -> dict[str, list[tuple[str, str]]]:
        """Return flag and first sentence of the common settings, the own ones first."""
        groups: dict[str, list[tuple[str, str]]] = {own: []}
        groups |= {name: [] for name in HEADINGS.values()}
        parameters: list[Any] = self.params
        given = inspect.signature(self.callback or help_all).parameters.items()
        common = {x for x, each in given if COMMON in get_args(each.annotation)}
        rest = f"The other {len(parameters) - len(common)}"
        for each in parameters:
            if each.name in common:
                text = each.help.split(". ")[0].removesuffix(".").replace("All", rest)
                heading = HEADINGS.get(each.rich_help_panel, own)
                groups[heading].append((_term(each), text))
        return groups


def write_groups(formatter: Any, groups: Mapping[str, list[tuple[str, str]]]) -> None:
    """Write rows under their headings, all in the same two columns."""
    widest = max(len(term) for rows in groups.values() for term, _ in rows)
    formatter.write("\n")
    for name, rows in groups.items():
        if rows:
            formatter.write_heading(name)
            with formatter.indentation():
                formatter.write_dl([(term.ljust(widest), text) for term, text in rows])


def _term(parameter: Any) -> str:
    """Return one name of a setting, with the first form of its value."""
    value = parameter.metavar or ""
    if parameter.param_type_name == "argument":
        return value
    flag = min((x for x in parameter.opts if x.startswith("--")), key=len)
    return f"{flag} {value.partition('|')[0] if value.isupper() else value}".rstrip()


def _mentions(word: str, group: str, *texts: str) -> bool:
    """Return whether the help of a setting has a word, or its group is the word."""
    said, wanted = (text.lower().replace("_", "-") for text in (" ".join(texts), word))
    return wanted in said or wanted == group.lower()
