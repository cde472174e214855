"""What a received file may name: of its settings, which files are opened, and code.

Its settings have the types that capplan writes. A trace or profiles lie beside it, with
the digest that it states, or the user names them; all else ships with the version.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ConfigDict, PlainSerializer, TypeAdapter, ValidationError

from capplan.errors import InputError
from capplan.input_file import named_sha256
from capplan.latency.measured_factor import is_factor
from capplan.planning.plan.result import NOT_IN_THE_RESULT
from capplan.setting_values import file_settings
from capplan.settings import Settings, expected
from capplan.simulator.schedulers.own_file import (
    file_of,
    named_by_content,
    names_content,
)

_BESIDE = ("trace", "profiles")
"""Settings whose files may lie beside the file that names them, by their digest."""
_NAMES = ("llm", "workload", "engine_overhead", "scheduler")
"""Settings whose text may be a name that ships, where no file has it."""


class NotThereError(InputError):
    """A file that a received one names does not lie beside it."""


def received(
    document: Mapping[str, Any],
    path: Path,
    model: type[Settings],
    given: Mapping[str, str] | None = None,
    *,
    without: frozenset[str] = frozenset(),
    trust: bool = False,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings of a document, and what it names each file that is opened.

    ``given`` are files that the user names in place of the document's, ``without``
    settings that are not read. A scheduler's Python file is taken only with ``trust``,
    and only with the content that the document names.
    """
    settings = {k: v for k, v in document["settings"].items() if k not in without}
    given, named = given or {}, {}
    _check_types(path, settings, model)
    for name in given:
        if name not in settings:
            raise InputError(f"{path}: has no {name}; leave out {_flag(name)}")
    if (text := settings.get("backtest")) is not None and not is_factor(text):
        raise InputError(f"{path}: settings.backtest is {text[:60]}; expected its φ")
    for name in file_settings(model):
        text = settings.get(name)
        if text is None:
            continue
        if name in given:
            found = Path(given[name])
            if not found.exists():
                raise InputError(f"{_flag(name)}: {found}: no such file")
        elif name in _BESIDE:
            found = _beside(path, name, text, document.get(f"{name}_sha256"))
        else:
            _check_name(path, name, text, trust)
            continue
        # Absolute: no other text in what is made again is the same.
        settings[name] = str(found.absolute())
        named[settings[name]] = text
    return settings, named


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_types(
    path: Path, settings: Mapping[str, Any], model: type[Settings]
) -> None:
    """Refuse a value of another type than the one that capplan writes."""
    kinds = get_type_hints(model)  # without their validators, which may open files
    for name, field in model.model_fields.items():
        if name not in settings:  # the model refuses what is none of its fields
            continue
        written = [how for how in field.metadata if isinstance(how, PlainSerializer)]
        kind = written[0].return_type if written else kinds[name]
        text = json.dumps(settings[name])
        if name in NOT_IN_THE_RESULT:
            raise InputError(f"{path}: settings.{name} is no setting of such a file")
        try:
            TypeAdapter(kind, config=ConfigDict(strict=True)).validate_json(text)
        except ValidationError as error:
            right = expected(error.errors()[0]["msg"])
            raise InputError(
                f"{path}: settings.{name} is {text[:60]}; {right}"
            ) from None


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
    """Refuse what is not a name that ships, and a Python file but with trust."""
    file = file_of(text) if name == "scheduler" else ""
    if file and trust and names_content(text):
        named_by_content(text.partition(":")[0])
    elif file and trust:
        raise InputError(
            f"{path}: does not name the content of its scheduler {file}; expected a "
            "plan as capplan wrote it"
        )
    elif file:
        raise InputError(
            f"{path}: its scheduler is the Python file {file}, which is executed; read "
            "it, then give `capplan verify` --trust, other commands --scheduler"
        )
    elif name not in _NAMES or any(map(_is_file, [text, *text.split(",")])):
        raise InputError(
            f"{path}: its {name} is {text[:60]!r}; a file that a received one names is "
            f"not opened: give {_flag(name)}"
        )


def _is_file(text: str) -> bool:
    path = Path(text.strip())
    try:
        return path.is_absolute() or ".." in path.parts or path.exists()
    except OSError:  # a name that is too long for one
        return True
