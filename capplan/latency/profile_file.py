"""Read and write profiles as YAML."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from capplan.errors import ProfileError
from capplan.files import write_texts
from capplan.latency.profile import Profile

SCHEMA = "capplan-profile/1"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_LEVELS = 100


def load_profile(path: Path) -> Profile:
    """Return the profile of a YAML file."""
    try:
        text = path.read_bytes()
        _refuse_nest(path, text)
        content = yaml.load(text, _LOADER)
    except (OSError, yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ProfileError(f"{path}: cannot be read as a profile: {reason}") from error
    if not isinstance(content, dict):
        raise ProfileError(
            f"{path}: is a {type(content).__name__}; expected the keys of a profile"
        )
    schema = content.pop("schema", None)
    if schema != SCHEMA:
        raise ProfileError(f"{path}: schema is {schema!r}; expected {SCHEMA!r}")
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        raise ProfileError(f"{path}: {_first_problem(error)}") from None


def _refuse_nest(path: Path, text: bytes) -> None:
    """Refuse a nest so deep that libyaml's loader would exhaust the stack."""
    level = 0
    for event in yaml.parse(text, _LOADER):
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > _MOST_LEVELS:
            raise ProfileError(f"{path}: nested too deeply; expected a profile")


def _first_problem(error: ValidationError) -> str:
    """Return the first problem, with its key."""
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"]) or "profile"
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


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes lists on one line."""


_Dumper.add_representer(
    list,
    lambda dumper, data: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", data, flow_style=True
    ),
)


def profile_text(profile: Profile) -> str:
    """Return the YAML of a profile, keys in the order of :class:`Profile`."""
    content = {"schema": SCHEMA, **profile.model_dump(exclude_none=True)}
    content = {
        key: value
        for key, value in content.items()
        if not (value == {} or (key in ("licence", "date") and value == ""))
    }
    for part in ("decode", "fused"):
        content[part] = {
            key: value
            for key, value in content[part].items()
            if not (value == [] or value == 0)
        }
    return yaml.dump(
        _rounded(content), Dumper=_Dumper, sort_keys=False, width=88, allow_unicode=True
    )


def _rounded(value: Any) -> Any:
    """Return the value with floats rounded to six significant digits."""
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() and abs(short) < 1e15 else short
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile and the folders above it; the file is complete or absent."""
    write_texts({path.name: profile_text(profile)}, path.parent)
