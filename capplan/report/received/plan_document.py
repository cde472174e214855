"""Read a plan.json: its schema, and whether it is as it was sealed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capplan.bounds.certificate import PLAN_SCHEMA, check_document
from capplan.errors import InputError
from capplan.input_file import parse_json, read_text


def plan_path(path: Path, names: Sequence[str] = ("plan.json",)) -> Path:
    """Return a file, or the one in a folder that has one of these names."""
    if not path.is_dir():
        return path
    there = [name for name in names if (path / name).exists()] or list(names)
    if len(there) > 1:
        known = " or ".join(there)
        raise InputError(f"{path}: is a folder; expected one with {known}, or the file")
    return path / there[0]


def read_plan(path: Path) -> dict[str, Any]:
    """Return the JSON object of a plan file."""
    return plan_in(path, read_text(path))


def plan_in(path: Path, text: str) -> dict[str, Any]:
    """Return the JSON object of the text of a plan file."""
    document = parse_json(path, text, finite=True)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != PLAN_SCHEMA and str(schema).startswith("capplan.plan/"):
        raise InputError(
            f"{path}: its schema is {schema!r}; this release reads {PLAN_SCHEMA!r}: "
            "plan again"
        )
    if schema != PLAN_SCHEMA or not isinstance(document.get("settings"), dict):
        raise InputError(
            f"{path}: expected a JSON object, a plan that capplan wrote ({PLAN_SCHEMA})"
        )
    return dict(document)


def read_made_by(command: str, path: Path, expected: str) -> dict[str, Any]:
    """Return the JSON object that a command wrote, of the schema that is expected."""
    document = parse_json(path, read_text(path), finite=True)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != expected or not isinstance(document.get("settings"), dict):
        raise InputError(
            f"{path}: its schema is {schema!r}; this release reads {expected!r}: run "
            f"capplan {command} again"
        )
    return dict(document)


def refuse_changed(path: Path, document: Mapping[str, Any]) -> None:
    """Refuse a plan that is not as it was sealed, or contradicts its certificate."""
    if reasons := check_document(document):
        raise InputError(f"{path}: {reasons[0]}; plan again")


def kind_of(path: Path) -> str:
    """Return what a JSON file says it is, such as ``plan``; it need not be valid."""
    document = parse_json(path, read_text(path), finite=True)
    schema = document.get("schema") if isinstance(document, dict) else None
    return str(schema).removeprefix("capplan.").partition("/")[0]
