"""Read a plan.json: its schema, whether it is as it was sealed, and its settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan.bounds.certificate import PLAN_SCHEMA, check_document
from capplan.errors import InputError
from capplan.input_file import parse_json, read_text


def plan_path(path: Path) -> Path:
    """Return a plan file, or the plan.json in a folder."""
    return path / "plan.json" if path.is_dir() else path


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


def settings_now(
    document: Mapping[str, Any], path: Path, given: Path | None
) -> tuple[dict[str, Any], Path | None]:
    """Return a document's settings, and where the trace lies if not where they say."""
    settings = dict(document["settings"])
    named = settings.get("trace")
    if not isinstance(named, str | None):
        raise InputError(f"{path}: settings.trace is {named!r}; expected a path")
    found = _trace_now(named, path, given)
    return settings if found is None else {**settings, "trace": str(found)}, found


def _trace_now(named: str | None, path: Path, given: Path | None) -> Path | None:
    """Return where the trace lies now, if not where the plan names it."""
    if given is not None:
        return given
    if named is None or Path(named).exists():
        return None
    beside = path.parent / Path(named).name
    return beside if beside.exists() else None
