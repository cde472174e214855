"""What a received file may name: of its settings, which files are opened, and code.

A file that somebody else wrote opens none of this machine's. Its settings have the
types that capplan writes; a trace or profiles lie beside it, with the digest that it
states, or are named by the user; all else ships with the version.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from pydantic import ConfigDict, PlainSerializer, TypeAdapter, ValidationError

from capplan.errors import InputError
from capplan.input_file import named_sha256
from capplan.llm.catalog import published
from capplan.planning.plan import NOT_IN_THE_RESULT
from capplan.setting_values import file_settings
from capplan.settings import Settings
from capplan.simulator.schedulers import SCHEDULERS
from capplan.simulator.schedulers.own_file import (
    file_of,
    named_by_content,
    names_content,
)
from capplan.workload.catalog import PACKAGED, shipped_workload_names

BESIDE = ("trace", "profiles")
"""Settings whose files may lie beside the file that names them, by their digest."""

_SHOWN = 60
"""Characters of a value that are shown."""


class NotThereError(InputError):
    """A file that a received one names does not lie beside it."""


class Received(NamedTuple):
    """Settings of a received file, and where what it names lies now."""

    settings: dict[str, Any]
    named: Mapping[str, str]  # the path that the file has, by the one that is opened


def received(
    document: Mapping[str, Any],
    path: Path,
    model: type[Settings],
    given: Mapping[str, str] | None = None,
    *,
    without: frozenset[str] = frozenset(),
    trust: bool = False,
) -> Received:
    """Return the settings of a received document, with files that may be opened.

    ``given`` are files that the user names in place of the document's, ``without``
    settings that are not read. A scheduler's Python file is taken only with ``trust``,
    and only with the content that the document names.

    Raises
    ------
    InputError
        When a setting has another type, or names a file that is not to be opened.
    """
    settings = {k: v for k, v in document["settings"].items() if k not in without}
    given = given or {}
    _check_types(path, settings, model)
    for name in given:
        if name not in settings:
            raise InputError(f"{path}: has no {name}; leave out {_flag(name)}")
    named: dict[str, str] = {}
    for name in file_settings(model):
        text = settings.get(name)
        if text is None:
            continue
        if name in given:
            found = Path(given[name])
            if not found.exists():
                raise InputError(f"{_flag(name)}: {found}: no such file")
        elif name in BESIDE:
            found = _beside(path, name, text, document.get(f"{name}_sha256"))
        else:
            _check_name(path, name, text, trust)
            continue
        # Absolute: no other text in what is made again is the same.
        settings[name] = str(found.absolute())
        named[settings[name]] = text
    return Received(settings, named)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_types(
    path: Path, settings: Mapping[str, Any], model: type[Settings]
) -> None:
    """Refuse a value of another type than the one that capplan writes."""
    kinds = _written(model)
    for name, value in settings.items():
        if name in NOT_IN_THE_RESULT:
            raise InputError(f"{path}: settings.{name} is none of a file's")
        try:
            if name in kinds:  # the model itself refuses the others
                kinds[name].validate_json(json.dumps(value))
        except ValidationError as error:
            expected = error.errors()[0]["msg"].replace("Input should be", "expected")
            raise InputError(
                f"{path}: settings.{name} is {json.dumps(value)[:_SHOWN]}; {expected}"
            ) from None


@cache
def _written(model: type[Settings]) -> dict[str, TypeAdapter[Any]]:
    """Return the type of each setting as JSON has it, before any validator."""
    kinds = get_type_hints(model)  # without their validators
    for name, field in model.model_fields.items():
        for how in field.metadata:
            if isinstance(how, PlainSerializer):
                kinds[name] = how.return_type
    strict = ConfigDict(strict=True)
    return {
        name: TypeAdapter(kinds[name], config=strict) for name in model.model_fields
    }


def _beside(path: Path, name: str, text: str, sha256: Any) -> Path:
    """Return the file of a name that lies beside a document, with this digest."""
    own = Path(text).name  # wherever it was
    beside = path.parent / own
    where = f"{path}: its {name} {own!r}"
    if own in ("", "..") or not beside.exists():
        raise NotThereError(
            f"{where} does not lie beside it; put it there or give {_flag(name)}"
        )
    if any(each.is_symlink() for each in (beside, *beside.rglob("*"))):
        raise InputError(f"{where} is a link or has one; give {_flag(name)}")
    if named_sha256(beside) != sha256:
        raise InputError(
            f"{where}, as it lies beside it, has another SHA-256 than it states; put "
            f"back the one of then or give {_flag(name)}"
        )
    return beside


def _check_name(path: Path, name: str, text: str, trust: bool) -> None:
    """Refuse the name of a file where only one that ships is taken."""
    if name == "scheduler" and (file := file_of(text)):
        if not trust:
            raise InputError(
                f"{path}: its scheduler is the Python file {file}, which is executed; "
                "read that file, then give --trust to `capplan verify`, or --scheduler "
                "to other commands"
            )
        if not names_content(text):
            raise InputError(
                f"{path}: does not name the content of its scheduler {file}; expected "
                "a plan as capplan wrote it"
            )
        named_by_content(text.partition(":")[0])
    elif not _ships(name, text):
        raise InputError(
            f"{path}: its {name} is {text[:_SHOWN]!r}, which does not ship with this "
            f"version; a file that a received one names is not opened: give "
            f"{_flag(name)}"
        )


def _ships(name: str, text: str) -> bool:
    """Return whether a text is a name that this version knows, and of no file here."""
    if any(map(_may_be_file, [text, *text.split(",")])):
        return False
    if name == "llm":
        return all(map(_is_published, text.split(",")))
    if name == "workload":
        known = (*shipped_workload_names(), *PACKAGED)
        return text in known or text.startswith("synthetic:")
    if name == "scheduler":
        return text.partition(":")[0] in SCHEDULERS
    return name == "engine_overhead" and text == "none"


def _may_be_file(text: str) -> bool:
    path = Path(text)
    try:
        return path.is_absolute() or ".." in path.parts or path.exists()
    except OSError:  # a name that is too long for one
        return True


def _is_published(text: str) -> bool:
    try:
        return published(text) is not None
    except InputError:
        return False
