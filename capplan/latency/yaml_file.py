"""Read YAML files of capplan's own schemas, with one line for what is wrong."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from capplan.errors import InputError, ProfileError
from capplan.input_file import parse_yaml, read_text


class Strict(BaseModel):
    """Content of a file: no unknown key, and frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """Return the mapping of a file; ``what`` it should hold, such as a profile."""
    try:
        content, _ = parse_yaml(path, read_text(path))
    except InputError as error:
        raise ProfileError(f"{error}; expected {what}") from None
    if not isinstance(content, dict):
        raise ProfileError(
            f"{path}: is a {type(content).__name__}; expected the keys of {what}"
        )
    return content


def first_problem(error: ValidationError, what: str) -> str:
    """Return the first problem, with its key."""
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"]) or what
    kind, given = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        return f"unknown key {key}"
    if kind == "missing":
        return f"key {key} is missing"
    if kind == "greater_than_equal":
        return f"{key} is {given}; expected >= {problem['ctx']['ge']}"
    message = problem["msg"].removeprefix("Value error, ")
    shown = f" is {given!r}" if isinstance(given, int | float | str) else ""
    return f"{key}{shown}: {message[0].lower()}{message[1:]}"
