"""LLMs by name, or from a local ``config.json``."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from capplan.errors import InputError
from capplan.input_file import parse_json, read_text
from capplan.llm.architecture import Architecture
from capplan.llm.config_fields import NAMES
from capplan.llm.hf_config import from_config

_DATA = Path(__file__).parent / "data" / "llms.yaml"

_TUNINGS = re.compile(
    r"instruct|chat|hf|it|base|thinking|reasoning|original|terminus|preview|8k|qat|ct|"
    r"unsloth|\d{4}|v0\.1"
)
_QUANTIZED = {
    words: dtype
    for dtype, spelt in NAMES["suffixes"].items()
    for words in spelt.split()
}
"""Weight dtypes by the last words of a name."""
_MIXED = ("mixer_dtype", "matrix_dtype", "head_dtype")


@cache
def _configs() -> dict[str, dict[str, Any]]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with _DATA.open(encoding="utf-8") as file:
        entries = yaml.load(file, loader)
    own = ("aliases", "checkpoints", "fp8_kv")  # whatever has the same shapes
    for name, entry in entries.items():
        if "like" in entry:
            shapes = entries[entry["like"]].items()
            entries[name] = {k: v for k, v in shapes if k not in own} | entry
    return entries


def llm_names() -> tuple[str, ...]:
    """Return the names of the LLMs in the catalog."""
    return tuple(_configs())


def listed_names() -> tuple[str, ...]:
    """Return the names of the LLMs, each with those of its checkpoints in others.

    Examples
    --------
    >>> [name for name in listed_names() if name.startswith("Qwen3-8B")]
    ['Qwen3-8B', 'Qwen3-8B-FP8']
    """
    return tuple(
        name if dtype is None else f"{name}-{dtype}"
        for name, config in _configs().items()
        for dtype in (None, *_other_dtypes(name, config))
    )


def _other_dtypes(name: str, config: Mapping[str, Any]) -> list[str]:
    """Return the suffixes of the checkpoints in another precision than an entry's."""
    suffixes = {
        config.get("fp8_checkpoint", "fp8"): "FP8",
        config.get("nvfp4_checkpoint", "nvfp4"): "NVFP4",
    }
    others = {"fp8": "FP8-dynamic"} | suffixes
    own = _listed(name).weight_dtype
    dtypes = [dtype for dtype in config.get("checkpoints", {}) if dtype != own]
    return [others.get(dtype, dtype.upper()) for dtype in dtypes]


def llm(name_or_path: str | Path) -> Architecture:
    """Return an LLM of the catalog, or of a local folder.

    The name is ``Llama-3.1-8B`` or a Hugging Face name such as
    ``meta-llama/Llama-3.1-8B-Instruct``, either with a suffix such as ``-FP8``,
    ``-NVFP4``, ``-INT8`` or ``-AWQ``; the path that of a ``config.json`` or of its
    folder. ``-FP8`` is FP8 with a scale per tensor or channel, or per block where the
    publisher's checkpoint of that name has it, and then named ``-FP8_BLOCK``;
    ``-FP8-dynamic`` and ``-FP8-block`` say which.

    Examples
    --------
    >>> llm("meta-llama/Llama-3.1-70B-Instruct-FP8").weight_dtype
    'fp8'
    """
    path = _config_file(name_or_path)
    if path is not None:
        return _from_file(path)
    found = _listed(*_found(name_or_path))
    return replace(found, kv_dtype=_kv_dtype(str(name_or_path), found))


class Published(NamedTuple):
    """Checkpoints of an entry of the catalog."""

    llm: str  # the entry
    checkpoints: Mapping[str, str]  # Hugging Face repositories by weight dtype
    serve_flags: tuple[str, ...]  # of ``vllm serve``, whatever the settings
    is_named: bool  # the name asked for is the entry's or a checkpoint's, no tuning's


def published(name_or_path: str | Path) -> Published | None:
    """Return the published checkpoints of an LLM; None for a path.

    Examples
    --------
    >>> published("Llama-3.1-70B").checkpoints["bf16"]
    'meta-llama/Llama-3.1-70B-Instruct'
    """
    if _config_file(name_or_path) is not None:
        return None
    entry, _ = _found(name_or_path)
    config = _configs()[entry]
    checkpoints = config.get("checkpoints", {})
    own = [_split_dtype(_words(x))[0] for x in (entry, *checkpoints.values())]
    is_named = _split_dtype(_words(str(name_or_path)))[0] in own
    flags = tuple(config.get("serve_flags", ()))
    return Published(entry, checkpoints, flags, is_named)


def _config_file(name_or_path: str | Path) -> Path | None:
    """Return the ``config.json`` that a path names; None for a name."""
    path = Path(name_or_path)
    if path.is_file():
        return path
    beside = path / "config.json"
    if beside.is_file():
        return beside
    if path.suffix == ".json" or path.is_dir():
        raise InputError(f"{name_or_path}: there is no config.json to read")
    return None


def _found(name_or_path: str | Path) -> tuple[str, str | None]:
    """Return the entry of a name, and the weight dtype where the name says one."""
    name = str(name_or_path)
    key, dtype = _resolved(name)
    full = _known().get(key)
    if full is None:
        near = difflib.get_close_matches(key, _known(), n=5, cutoff=0.5)
        names = ", ".join(dict.fromkeys(_known()[match] for match in near))
        meant = f"did you mean {names}?" if near else "see `capplan list llms`."
        raise InputError(
            f"unknown LLM {name!r}; {meant} The path of a config.json does as well"
        )
    if dtype in ("", "nvfp4"):  # as in the published checkpoint of that name
        named = dtype or "fp8"
        dtype = str(_configs()[full].get(f"{named}_checkpoint", named))
    return full, dtype


@cache
def _known() -> dict[str, str]:
    return {
        _squeeze(alias): name
        for name, config in _configs().items()
        for alias in (name, *config.get("aliases", ()))
    }


@cache
def _resolved(name: str) -> tuple[str, str | None]:
    """Return the key of a name, and the weight dtype where the name says one.

    From the end, words that state a precision, a date or a tuning are left out until
    an entry is found; the precision nearest to the end counts.
    """
    words, dtype = _words(name), None
    while (key := "".join(words)) not in _known() and len(words) > 1:
        undated = "".join(words[:-2] + words[-1:])
        if _TUNINGS.fullmatch(words[-2]) and undated in _known():
            return undated, dtype
        shorter, stated = _split_dtype(words)
        dtype = stated if dtype is None else dtype
        if stated is None and _TUNINGS.fullmatch(words[-1]):
            shorter = words[:-1]
        if shorter == words:
            break
        words = shorter
    return key, dtype


def _listed(name: str, dtype: str | None = None) -> Architecture:
    """Return an entry of the catalog with this weight dtype (default: its own)."""
    architecture = from_config(_configs()[name], name, f"catalog entry {name}")
    if dtype is None or dtype == architecture.weight_dtype:
        return architecture
    mixed: dict[str, Any] = dict.fromkeys(_MIXED, "")
    mixed |= _configs()[name].get("mixed", {}).get(dtype, {})
    of = f"{name}-{dtype.upper()}"
    return replace(architecture, name=of, weight_dtype=dtype, **mixed)


@cache
def twins(architecture: Architecture) -> tuple[str, ...]:
    """Return the other LLMs of the catalog with the same shapes and weight dtype.

    They take the same memory and, on the same engine, the same time; their longest
    context may differ.

    Examples
    --------
    >>> twins(llm("Llama-3.3-70B"))
    ('Llama-3-70B', 'Llama-3.1-70B')
    """
    shapes = _shapes(architecture)
    same = [name for name in llm_names() if _shapes(_listed(name)) == shapes]
    names = [_listed(name, architecture.weight_dtype).name for name in same]
    return tuple(name for name in names if name != architecture.name)


def same_shapes(one: Architecture, other: Architecture) -> bool:
    """Return whether two LLMs have the same shapes, in whatever weight dtype."""
    return _shapes(one) == _shapes(other)


def _shapes(architecture: Architecture) -> Architecture:
    plain: dict[str, Any] = dict.fromkeys(_MIXED, "")
    return replace(
        architecture,
        name="",
        source="",
        max_positions=0,
        mtp_layers=0,
        weight_dtype="bf16",
        kv_dtype="bf16",
        vision=None,
        **plain,
    )


def _kv_dtype(name: str, found: Architecture) -> str:
    """Return the KV dtype of a checkpoint by name, else of the one that is listed."""
    entry, _ = _found(name)
    own = _configs()[entry].get("checkpoints", {}).get(found.weight_dtype, "")
    maker = (name if "/" in name else own).split("/")[0].lower()
    states = found.weight_dtype in _configs()[entry].get("fp8_kv", ())
    return "fp8" if states and maker == "nvidia" else found.kv_dtype


def _words(name: str) -> list[str]:
    """Return the words of a name without who published it, in small letters."""
    name = re.sub(r"(?<=\d)_(?=\d)", ".", re.split(r"/|--", name.strip("/"))[-1])
    words = re.sub(r"[^a-z0-9.]+", " ", name.lower()).split() or [""]
    return words[1:] if words[:2] == ["meta", "llama"] else words


def _squeeze(name: str) -> str:
    return "".join(_words(name))


def _split_dtype(words: list[str]) -> tuple[list[str], str | None]:
    """Return the words before the last precision, which has one to three words."""
    for count in (3, 2, 1):
        dtype = _QUANTIZED.get("".join(words[-count:]))
        if dtype is not None and len(words) > count:
            return words[:-count], dtype
    return words, None


def _from_file(path: Path) -> Architecture:
    config = _read(path)
    beside = path.parent / "hf_quant_config.json"  # written by NVIDIA's ModelOpt
    if not config.get("quantization_config") and beside.is_file():
        quantized = _read(beside).get("quantization") or {}
        config["quantization_config"] = {"quant_method": "modelopt", **quantized}
    try:
        return from_config(config, path.resolve().parent.name, str(path))
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as bad:
        reason = " ".join(str(bad).split()) or type(bad).__name__
        raise InputError(f"{path}: not as a config.json is written: {reason}") from bad


def _read(path: Path) -> dict[str, Any]:
    try:
        config = parse_json(path, read_text(path))
    except InputError as error:
        raise InputError(f"{error}; expected a config.json") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: expected the object of a config.json")
    return config
