"""Read and write profiles as YAML."""

from pathlib import Path
from typing import Any, TypeVar

import yaml

from capplan.errors import ProfileError
from capplan.files import write_texts
from capplan.latency.profile import Profile
from capplan.latency.rank_profile import RankProfile
from capplan.latency.yaml_file import read_yaml

_TIMES = {"decode", "fused", "engine_time", "request_s"}
_TIMES |= {"experts", "experts_prefill", "exchange", "exchange_prefill"}
_MOST = 1e7
"""Of a coefficient in seconds and of a knot in tokens."""

AnyProfile = TypeVar("AnyProfile", bound=Profile)


def load_profile(path: Path) -> Profile:
    """Return the profile of a YAML file."""
    return _load(path, Profile)


def load_rank_profile(path: Path) -> RankProfile:
    """Return the profile of ranks of a YAML file."""
    return _load(path, RankProfile)


def _load(path: Path, kind: type[AnyProfile]) -> AnyProfile:
    """Return a profile, of which no time is endless."""
    profile = read_yaml(path, kind, kind.SCHEMA, kind.WHAT)
    times = profile.model_dump(include=_TIMES)
    for name in sorted(times):
        _refuse_endless(path, name, times[name])
    return profile


def _refuse_endless(path: Path, name: str, value: object) -> None:
    """Refuse a time that no iteration comes near."""
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_endless(path, f"{name}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            _refuse_endless(path, name, item)
    elif isinstance(value, int | float) and value > _MOST:
        raise ProfileError(
            f"{path}: {name} is {str(value)[:20]}; expected at most {_MOST:g}"
        )


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes lists of plain values on one line."""


_Dumper.add_representer(
    list,
    lambda dumper, data: dumper.represent_sequence(
        "tag:yaml.org,2002:seq",
        data,
        flow_style=not any(isinstance(item, dict) for item in data),
    ),
)


def profile_text(profile: Profile) -> str:
    """Return the YAML of a profile."""
    content = {"schema": profile.SCHEMA, **profile.document()}
    if profile.how == "kernel-sum":
        content.pop("kernels_from", None)  # it says so
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
    return yaml_text(content)


def yaml_text(content: dict[str, Any]) -> str:
    """Return YAML with numbers of six digits."""
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
