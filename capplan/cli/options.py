"""Make the flags of a command from its settings."""

import inspect
import types
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BeforeValidator

from capplan.cli.completion import completer
from capplan.cli.parameters import COMMON, flag, named_parameters, operand, take
from capplan.report.kind_rows import KIND_OF
from capplan.settings import Settings


def with_settings(
    model: type[Settings], only: Collection[str] | None = None, argument: str = ""
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add a flag for every setting that is not a parameter of the command.

    With ``only``, for these of them; ``argument`` is one that stands without a flag.
    The command receives them as ``**flags``; a flag that is not given is None.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        own = named_parameters(command)
        taken = {parameter.name for parameter in own}
        names = [x for x in model.model_fields if only is None or x in only]
        taken.add(argument)
        flags = [_flag(model, name) for name in names if name not in taken]
        if argument:
            flags.insert(0, _argument(model, argument))
        take(command, [*own, *flags])
        return command

    return decorate


def _flag(model: type[Settings], name: str) -> inspect.Parameter:
    field = model.model_fields[name]
    shown = field.json_schema_extra
    assert isinstance(shown, dict)
    repeated = bool(shown.get("repeated"))
    kind = list[str] if repeated else _kind(field.annotation)
    if any(isinstance(check, BeforeValidator) for check in field.metadata):
        kind = list[str] if repeated else str  # the settings parse the text
    dashed = "--" + name.replace("_", "-")
    flags = shown.get("flags") or [
        f"{dashed}/--no-{dashed[2:]}" if kind is bool else dashed
    ]
    assert isinstance(flags, list)
    required = field.is_required()
    text = field.description or ""
    untold = not required and "(default" not in text
    if untold and field.default not in (None, (), {}, False, True, ""):
        default = field.default
        shown_default = (
            ",".join(map(str, default)) if isinstance(default, tuple) else default
        )
        text = f"{text[:-1]} (default {shown_default})."
    if repeated:
        text += " May be repeated."
    option = flag(
        str(shown["metavar"]),
        text,
        *map(str, flags),
        rich_help_panel=str(shown["panel"]) or None,
        autocompletion=completer(KIND_OF[name]) if name in KIND_OF else None,
    )
    kind = Annotated[kind if required else kind | None, option]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[kind, COMMON] if shown["common"] else kind,
    )


def _argument(model: type[Settings], name: str) -> inspect.Parameter:
    field = model.model_fields[name]
    shown = field.json_schema_extra
    assert isinstance(shown, dict)
    several = str(shown["metavar"]).endswith("...")
    argument = operand(str(shown["metavar"]), field.description or "")
    kind: Any = list[Path] if several else Path | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if several else None,
        annotation=Annotated[kind, argument, COMMON],
    )


def _kind(annotation: Any) -> Any:
    """Return the type that typer parses; str where the settings parse the text."""
    if isinstance(annotation, types.UnionType):
        annotation = next(
            part for part in get_args(annotation) if part is not types.NoneType
        )
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation if annotation in (bool, int, float) else str
