"""Commands as tools of an assistant: settings as JSON in, text or a document out.

What an assistant asks may be what a stranger wrote: no tool has a setting that writes a
file or connects elsewhere, and a Python file is executed only where it is trusted.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capplan.cli.answer import FORMATS, TERMINAL, TITLE, checked_form, checked_topic
from capplan.cli.commands import COMMANDS
from capplan.cli.scenario import settings_of_source
from capplan.errors import InputError, collected_warnings, nearest, warn
from capplan.planning.plan.result import NOT_IN_THE_RESULT
from capplan.report.page import TOPICS, Page
from capplan.report.questions import QUESTIONS
from capplan.settings import Settings
from capplan.simulator.schedulers.own_file import file_of

ASKED = ("plan", "what-if", "capacity", "backtest")
"""Questions that are tools."""
_ALL = ", ".join(ASKED)
EXPLAIN, SETTINGS = "explain", "settings"
SOURCE = "scenario"
_SOURCE = (
    "Path of a scenario (YAML), or of a plan.json; the other settings override it."
)
_FORMAT = f"Default {TERMINAL}, one screen; or the whole as {', '.join(FORMATS)}."
_OTHERS = "Any other setting of the command; the tool `settings` describes them."
_KEPT = 16
"""Answers that can be explained: the last ones."""


def _fields(name: str) -> dict[str, Any]:
    """Return the settings that a tool takes, by name."""
    fields = QUESTIONS[name].model.model_fields
    return {key: each for key, each in fields.items() if key not in NOT_IN_THE_RESULT}


def _of_question(name: str) -> dict[str, Any]:
    """Return the schema of the settings that most people use; any other is taken."""
    shapes = QUESTIONS[name].model.model_json_schema()["properties"]
    found: dict[str, Any] = {
        SOURCE: {"type": "string", "description": _SOURCE},
        "format": {"enum": [TERMINAL, *FORMATS], "description": _FORMAT},
    }
    for key, each in _fields(name).items():
        if each.json_schema_extra["common"]:
            parts = [shapes[key], *shapes[key].get("anyOf", ())]
            kinds = {part.get("type", "null") for part in parts} | {"string"}
            told = {"type": sorted(kinds - {"null"}), "description": each.description}
            found[key] = told  # a text, as on the command line, is always one
    more = {"description": _OTHERS}
    return {"type": "object", "properties": found, "additionalProperties": more}


def _of_texts(**texts: str) -> dict[str, Any]:
    told = {key: {"type": "string", "description": x} for key, x in texts.items()}
    return {"type": "object", "properties": told, "additionalProperties": False}


def schemas() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what each tool does and the JSON schema of its arguments, by name."""
    return {
        **{
            name: (f"{COMMANDS[name].summary} As `capplan {name}`.", _of_question(name))
            for name in ASKED
        },
        EXPLAIN: (
            "Why and how, of an answer of this session.",
            _of_texts(
                answer="Its name, as plan-1 (default: the last one).",
                topic=f"{', '.join(TOPICS)} (default: all).",
            ),
        ),
        SETTINGS: (
            "Settings of a tool that mention a word, with what they mean.",
            _of_texts(tool=f"One of {_ALL}.", word="A word (default: all)."),
        ),
    }


@dataclass
class Tools:
    """Answers tools, and keeps the last answers for questions about them."""

    out: Path | None = None  # folder for the files of each answer; None: none
    trusts: bool = False  # executes a scheduler's file that an argument names
    pages: dict[str, Page] = field(default_factory=dict)
    _count: int = 0

    def call(self, name: str, given: Mapping[str, Any], *watched: Any) -> str:
        """Return the answer of a tool; ``watched`` as of ``to_files.answer``."""
        if name in ASKED:
            return self._answered(name, dict(given), *watched)
        own: dict[str, Callable[..., str]]
        own = {EXPLAIN: self._explained, SETTINGS: _described_settings}
        if name not in own:
            raise InputError(f"{name!r} is no tool{nearest(name, [*ASKED, *own])}")
        known = schemas()[name][1]["properties"]
        for key, value in given.items():
            if key not in known or not isinstance(value, str):
                raise InputError(
                    f"{key} is {value!r}; expected a text for {' or '.join(known)}"
                )
        return own[name](**given)

    def _answered(self, name: str, given: dict[str, Any], *watched: Any) -> str:
        from capplan.report.render.documents import document
        from capplan.report.shown import page_of
        from capplan.report.to_files import answer

        form = checked_form(given.pop("format", None))
        self._count += 1
        called = f"{name}-{self._count}"
        with collected_warnings() as texts:
            settings = self._settings(name, given, called)
            question = QUESTIONS[name]
            seen = watched[: bool(question.progress)]
            stops = watched[1:] if question.may_stop else ()
            result, written = answer(name, settings, *seen, *stops)
        page = self.pages[called] = page_of(result)
        while len(self.pages) > _KEPT:
            del self.pages[next(iter(self.pages))]
        if form is not None:
            return page.headline if form == TITLE else document(page, form)
        notes = [f"warning: {x}" for x in texts if x not in page.warnings]
        return "\n".join([_screen(page, written), *notes, f"answer: {called}"])

    def _settings(self, name: str, given: dict[str, Any], called: str) -> Settings:
        """Return the settings of a call, which neither write nor execute a file."""
        for key in NOT_IN_THE_RESULT & {*given}:
            raise InputError(f"{key} is not a tool's: files go where --out says")
        source = given.pop(SOURCE, None)
        if source is not None and not isinstance(source, str):
            raise InputError(f"{SOURCE} is {source!r}; expected the path of a file")
        path = None if source is None else Path(source)
        settings = settings_of_source(QUESTIONS[name].model, path, given)
        values = settings.model_dump()
        varied = values.get("vary", {}).get("scheduler", ())
        for file in map(file_of, (values["scheduler"] or "", *varied)):
            if file and not self.trusts:
                raise InputError(
                    f"scheduler {file} is executed; read it, then start the server "
                    "with --trust"
                )
        fields, update = type(settings).model_fields, {}
        for key in NOT_IN_THE_RESULT & settings.model_fields_set:
            warn(f"{source}: {key} has no effect on a tool")
            update[key] = fields[key].default
        if self.out is not None:
            update["out"] = str(self.out / called)
        return settings.model_copy(update=update)

    def _explained(self, answer: str = "", topic: str = "all") -> str:
        if not self.pages:
            raise InputError(f"no answer yet; ask one of {_ALL}")
        called = answer or next(reversed(self.pages))
        if called not in self.pages:
            raise InputError(f"{called} is no answer; expected {', '.join(self.pages)}")
        return _screen(self.pages[called], (), checked_topic(topic))


def _described_settings(tool: str = "plan", word: str = "") -> str:
    if tool not in ASKED:
        raise InputError(f"{tool} has no settings; expected one of {_ALL}")
    shown = [
        f"{key}: {each.description}"
        for key, each in _fields(tool).items()
        if word.lower() in f"{key} {each.description}".lower()
    ]
    return "\n".join(shown) or f"no setting of {tool} mentions {word!r}"


def _screen(page: Page, written: Sequence[Path], topic: str = "") -> str:
    """Return what the command prints."""
    from capplan.report.console import console
    from capplan.report.render.terminal import SCREEN_COLUMNS, print_result

    text = io.StringIO()
    out = console(file=text, width=SCREEN_COLUMNS)
    print_result(page, written, topic, out)
    return text.getvalue().rstrip("\n")
