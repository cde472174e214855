"""The parameters of a command, which typer reads as its arguments and flags."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer

COMMON = "common"
"""In the annotation of a parameter: most people use it, so that ``-h`` shows it."""


def flag(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Return a flag with the form of its value, empty of a switch, and its help."""
    shown = {"metavar": metavar or None, "help": text, "show_default": False}
    return typer.Option(*names, **shown | more)


def operand(metavar: str, text: str, **more: Any) -> Any:
    """Return what stands without a flag, with its form and its help."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, **more)


def named_parameters(command: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a command without its ``**flags``."""
    return [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def take(command: Any, parameters: Sequence[inspect.Parameter]) -> None:
    """Make a command take these parameters, by its signature and its annotations."""
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
