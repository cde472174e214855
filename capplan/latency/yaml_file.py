"""Read YAML files of capplan's own schemas, with one line for what is wrong."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from capplan.errors import InputError, ProfileError
from capplan.input_file import parse_yaml, read_text


class Strict(BaseModel):
    """Content of a file: no unknown key, and frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


Content = TypeVar("Content", bound=BaseModel)


def read_yaml(path: Path, model: type[Content], schema: str, what: str) -> Content:
    """Return the content of a file; ``what`` it should be, such as ``a profile``."""
    try:
        content, _ = parse_yaml(path, read_text(path))
    except InputError as error:
        raise ProfileError(f"{error}; expected {what}") from None
    if not isinstance(content, dict):
        raise ProfileError(
            f"{path}: is a {type(content).__name__}; expected the keys of {what}"
        )
    found = content.pop("schema", None)
    if found != schema:
        raise ProfileError(f"{path}: schema is {found!r}; expected {schema!r}")
    return checked(str(path), model, content, ProfileError)


def checked(
    where: str, model: type[Content], content: Any, kind: type[Exception] = InputError
) -> Content:
    """Return a part of a file; an error tells the first problem, with its key."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise kind(f"{where}: {_first_problem(error)}") from None


def read_once(path: Path, read: Callable[[Path], Content]) -> Content:
    """Return what ``read`` makes of a file; it is read again only when it changes."""
    try:
        return _read_at(path, path.stat().st_mtime_ns, read)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None


@lru_cache(maxsize=1024)
def _read_at(path: Path, changed_ns: int, read: Callable[[Path], Content]) -> Content:
    return read(path)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    kind, given = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        return f"unknown key {key}"
    if kind == "missing":
        return f"key {key} is missing"
    if kind == "greater_than_equal":
        return f"{key} is {given}; expected >= {problem['ctx']['ge']}"
    message = problem["msg"].removeprefix("Value error, ")
    if not key:  # of several keys together
        return str(message)
    shown = f" is {given!r}" if isinstance(given, int | float | str) else ""
    return f"{key}{shown}: {message[0].lower()}{message[1:]}"
