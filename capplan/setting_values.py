"""Values of settings as users write them: on the command line and in YAML."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from capplan.errors import InputError, nearest

NAMES_FILE = "names a file"
"""Mark of the type of a setting that may name one."""

ALL = "all"
"""Key of the share that holds for classes without one of their own."""


def path_text(value: Any) -> Any:
    """Return a path as a text; a list or a mapping is none."""
    if isinstance(value, list | tuple | Mapping | set | bool):
        raise ValueError(f"{value!r} is no text; expected one")
    return None if value is None else str(value)


Text = Annotated[str, BeforeValidator(path_text)]
"""A text; a number is one too."""
PathText = Annotated[Text, NAMES_FILE]
"""A text that may name a file."""


def file_settings(model: type[BaseModel]) -> list[str]:
    """Return the settings of a command that may name files."""
    fields = model.model_fields.items()
    return [x for x, of in fields if NAMES_FILE in f"{of.annotation} {of.metadata}"]


def json_object(text: str, where: str, example: str) -> dict[str, Any]:
    """Return the object that a flag's JSON is.

    Examples
    --------
    >>> json_object('{"method":"mtp"}', "--speculative-config", '{"method": ...}')
    {'method': 'mtp'}
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InputError(f"{where} is {text}; expected {example}")
    return given


def check_keys(given: Iterable[str], keys: Sequence[str], where: str) -> None:
    """Refuse keys of a flag's JSON that are none; name the nearest."""
    for key in given:
        if key not in keys:
            raise InputError(
                f"{where}: {key!r} is not a key{nearest(key, keys)}; "
                f"expected one of {', '.join(keys)}"
            )


def parts(value: Any) -> Any:
    """Return the parts of ``A,B``; a number stands for a list of one."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return (value,) if isinstance(value, int | float) else value


def as_json(value: Any) -> Any:
    """Return a mapping, as a scenario has it, as the flag's text."""
    return json.dumps(value) if isinstance(value, dict) else value


def listed(value: Any) -> Any:
    """Return the text ``A,B`` of a list; any other value as it is."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def pairs_text(value: Any) -> Any:
    """Return the text ``A=1,B=2`` of a mapping; any other value as it is."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return value


def policy_texts(value: Any, example: str, *, is_bare: bool = False) -> list[Any]:
    """Return the policies of ``A,B:x=1,y=2``: two, the second with two settings.

    With ``is_bare`` a setting may follow a name without any, as in ``A,x=1``.
    ``example`` is a list of them for who gives a mapping.
    """
    if isinstance(value, Mapping):
        raise ValueError(f"expected a list such as {example}")
    found: list[Any] = []
    for part in parts(value):
        is_setting = isinstance(part, str) and "=" in part and ":" not in part
        before = found[-1] if found and isinstance(found[-1], str) else ""
        if is_setting and (":" in before or (is_bare and before)):
            found[-1] = f"{before}{',' if ':' in before else ':'}{part}"
        else:
            found.append(part)
    return list(dict.fromkeys(found))


def slo_texts(value: Any) -> Any:
    """Return the texts of SLOs; in YAML they may be ``{ttft: 1s}`` or by class."""
    if not isinstance(value, Mapping):
        return (value,) if isinstance(value, str) else value
    own = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
    texts = [pairs_text(own)] if own else []
    for name, limits in value.items():
        if isinstance(limits, Mapping):
            texts.append(f"{name}:{pairs_text(limits)}")
    return tuple(texts)


def prices_by_gpu(value: Any) -> Any:
    """Return the mapping that ``GPU=PRICE`` texts stand for."""
    if isinstance(value, Mapping):
        return {gpu: str(price) for gpu, price in value.items()}
    if value is None:
        return {}
    prices: dict[str, str] = {}
    for text in value if isinstance(value, list | tuple) else [value]:
        for part in str(text).split(","):
            gpu, equals, price = part.partition("=")
            if not (equals and gpu.strip() and price.strip()):
                raise ValueError(f"{part!r} is not a price; expected GPU=USD_PER_H")
            prices[gpu.strip()] = price.strip()
    return prices


def targets_by_class(value: Any) -> Any:
    """Return the shares that ``0.99`` and ``CLASS=0.999`` stand for, by class."""
    if isinstance(value, Mapping):
        return {ALL: 0.99, **value}
    targets: dict[str, Any] = {ALL: 0.99}
    for part in value if isinstance(value, list | tuple) else [value]:
        for text in str(part).split(","):
            name, equals, share = text.rpartition("=")
            try:
                targets[name.strip() if equals else ALL] = float(share)
            except ValueError:
                raise ValueError(
                    f"{text!r} is not a share; expected 0.99 or CLASS=0.999"
                ) from None
    return targets


def day(value: Any) -> Any:
    """Return a day such as 2026-11-21 as text."""
    return None if value is None else date.fromisoformat(str(value)).isoformat()


def columns_by_name(value: Any) -> Any:
    """Return the mapping that ``NAME=COLUMN,NAME=COLUMN`` texts stand for."""
    if isinstance(value, Mapping):
        return {name: "" if text is None else text for name, text in value.items()}
    columns: dict[str, str] = {}
    for text in value if isinstance(value, list | tuple) else [value]:
        for part in filter(None, str(text).split(",")):
            name, equals, column = (piece.strip() for piece in part.partition("="))
            if not equals or not name:
                raise ValueError(f"{part!r} names no column; expected NAME=COLUMN")
            if name in columns:
                raise ValueError(f"{name} is named twice; expected once")
            columns[name] = column
    return columns
