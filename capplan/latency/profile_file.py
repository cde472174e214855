"""Read and write profiles as YAML."""

from pathlib import Path
from typing import Any

import yaml

from capplan.errors import ProfileError
from capplan.files import write_texts
from capplan.latency.profile import Profile
from capplan.latency.rank_profile import RankProfile
from capplan.latency.yaml_file import Content, read_yaml

SCHEMA = "capplan-profile/1"
RANK_SCHEMA = "capplan-rank-profile/1"

_TIMES = {"decode", "fused", "engine_time", "request_s"}
_RANK_TIMES = {
    "decode",
    "fused",
    "experts",
    "experts_prefill",
    "exchange",
    "exchange_prefill",
}
_MOST = 1e7
"""Of a coefficient in seconds and of a knot in tokens."""


def load_profile(path: Path) -> Profile:
    """Return the profile of a YAML file."""
    return _with_times(path, read_yaml(path, Profile, SCHEMA, "a profile"), _TIMES)


def load_rank_profile(path: Path) -> RankProfile:
    """Return the profile of ranks of a YAML file."""
    profile = read_yaml(path, RankProfile, RANK_SCHEMA, "a profile of ranks")
    return _with_times(path, profile, _RANK_TIMES)


def _with_times(path: Path, profile: Content, names: set[str]) -> Content:
    """Return a profile, of which these times are not endless."""
    times = profile.model_dump(include=names)
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


def profile_text(profile: Profile | RankProfile) -> str:
    """Return the YAML of a profile, keys in the order of its class."""
    schema = SCHEMA if isinstance(profile, Profile) else RANK_SCHEMA
    content = {"schema": schema, **profile.model_dump(exclude_none=True)}
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


def save_profile(profile: Profile | RankProfile, path: Path) -> None:
    """Write a profile and the folders above it; the file is complete or absent."""
    write_texts({path.name: profile_text(profile)}, path.parent)
