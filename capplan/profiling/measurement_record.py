"""How a profile was measured: the YAML beside its points."""

from pathlib import Path
from typing import Any

import yaml

from capplan.errors import InputError
from capplan.files import write_texts

SAME_ENGINE = (
    "device",
    "backend",
    "backend_version",
    "torch_version",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "block_size",
)
"""Facts that must not change between the runs of one profile."""


def record_path(out: Path, gpu: str, llm: str, tp: int) -> Path:
    """Return the path of a measurement's record in a folder of profiles."""
    return out / gpu / llm / f"meta-tp{tp}.yaml"


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write the record, whole or not at all."""
    text = yaml.safe_dump(record, sort_keys=False, width=88, allow_unicode=True)
    write_texts({path.name: text}, path.parent)


def read_record(path: Path) -> dict[str, Any]:
    """Return the record; empty when there is none."""
    if not path.exists():
        return {}
    try:
        record = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as YAML: {reason}") from error
    if not isinstance(record, dict):
        raise InputError(f"{path}: expected the record of a measurement")
    return record


def check_same_engine(
    path: Path, recorded: dict[str, Any], now: dict[str, Any]
) -> None:
    """Refuse to add points of one engine to those of another."""
    differs = [
        f"{name} was {recorded[name]} and is {now[name]}"
        for name in SAME_ENGINE
        if name in recorded and recorded[name] != now[name]
    ]
    if differs:
        raise InputError(
            f"{path}: cannot continue with another engine: {'; '.join(differs)}; "
            "measure into another folder with -o"
        )
