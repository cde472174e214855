"""Commands that are a row of ``QUESTIONS``: settings in, page and exit code out."""

from collections.abc import Callable
from contextlib import ExitStack
from inspect import cleandoc
from typing import Any

from capplan.cli.answer import is_quiet, show
from capplan.cli.interruption import INTERRUPTED, interruptible
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.scenario import Scenario, Source, settings_from, settings_of_source
from capplan.report.questions import QUESTIONS, question_of
from capplan.settings import Settings

INFEASIBLE = 3


def command_of(name: str) -> Callable[..., int]:
    """Return the command of a question, with a flag for each of its settings."""
    question = QUESTIONS[name]

    def from_scenario(scenario: Scenario = None, **flags: Any) -> int:
        return answered(name, settings_from(question.model, scenario, flags))

    def from_settings(**flags: Any) -> int:
        return answered(name, settings_from(question.model, None, flags))

    def from_source(source: Source = None, **flags: Any) -> int:
        return answered(name, settings_of_source(question.model, source, flags))

    command: Callable[..., int] = from_source if question.takes_plan else from_scenario
    if question.argument:
        command = from_settings
    command.__doc__ = cleandoc(question.text)
    return with_settings(question.model, argument=question.argument)(command)


def answered(name: str, settings: Settings) -> int:
    """Answer a question, show its page and return the exit code."""
    question = QUESTIONS[name]
    if question.schedulers is not None:
        announce_compilation(question.schedulers(settings))
    from capplan.report import console
    from capplan.report.shown import page_of
    from capplan.report.to_files import answer

    with ExitStack() as stack:
        watched: list[Any] = []
        if question.progress:
            progress = getattr(console, question.progress)
            watched.append(stack.enter_context(progress(quiet=is_quiet())))
        if question.may_stop:
            watched.append(stack.enter_context(interruptible()))
        result, written = answer(name, settings, *watched)
        stopped = question.may_stop and watched[-1]()
    show(page_of(result), written)
    if stopped:
        return INTERRUPTED
    return INFEASIBLE if question_of(result).fails(result) else 0
