"""Flags made from a command's settings, so that each is written once."""

import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import typer

from capplan.settings import Settings

_REPEATED = frozenset({"slo", "price"})
_SHORT = {"out": ("-o",)}


def with_settings(
    model: type[Settings], without: tuple[str, ...] = ()
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command one flag for every field of its settings.

    The command takes them as ``**settings``; a flag that is not given is None.

    Parameters
    ----------
    model
        The settings whose fields become flags.
    without
        Fields that this command has no use for.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        own = [
            parameter
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        flags = [
            _flag(model, name) for name in model.model_fields if name not in without
        ]
        signature = inspect.Signature([*own, *flags])
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in [*own, *flags]}
        return command

    return decorate


def _flag(model: type[Settings], name: str) -> inspect.Parameter:
    field = model.model_fields[name]
    shown = field.json_schema_extra
    assert isinstance(shown, dict)
    kind = _kind(name, field.annotation)
    dashed = "--" + name.replace("_", "-")
    declared = f"{dashed}/--no-{dashed[2:]}" if kind is bool else dashed
    described = field.description or ""
    if field.default not in (None, (), {}, False, True):
        described = f"{described[:-1]} (default {field.default})."
    if kind == list[str]:
        described += " May be repeated."
    option = typer.Option(
        *_SHORT.get(name, ()),
        declared,
        help=described,
        metavar=str(shown["metavar"]) or None,
        show_default=False,
        rich_help_panel=str(shown["panel"]),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _kind(name: str, annotation: Any) -> Any:
    """Return what the command line reads: lists stand as one text, A,B."""
    if name in _REPEATED:
        return list[str]
    if isinstance(annotation, types.UnionType):
        annotation = next(
            part for part in get_args(annotation) if part is not types.NoneType
        )
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation if annotation in (bool, int, float) else str
