"""GPUs by name."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.fleet.gpu import Gpu
from capplan.units import parse_usd_per_h

_DATA = Path(__file__).parent / "data"
_TEXTS = {"name", "architecture", "source", "confidence", "note"}
_NETWORK_RATE = "network_bytes_per_s_per_direction"


class OwnGpu(NamedTuple):
    """A GPU of the user's file, and what it costs there."""

    gpu: Gpu
    usd_per_gpu_h: float | None  # [$/h]


_OWN: dict[str, OwnGpu] = {}
"""GPUs of the settings that were made last, by name: names alone are passed on."""


@cache
def _gpus() -> dict[str, Gpu]:
    rates: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for _, row in read_rows(_DATA / "all_reduce.csv")[1]:
        rates[row["gpu"]].append((row["tp"], row["bytes_per_s"]))
    networks = {row["gpu"]: row for _, row in read_rows(_DATA / "network.csv")[1]}
    read, gpus = TypeAdapter(Gpu).validate_python, {}
    for _, row in read_rows(_DATA / "gpus.csv")[1]:
        name = row["name"]
        given: dict[str, Any] = {
            key: cell or None if key not in _TEXTS else cell
            for key, cell in row.items()
        }
        if (network := networks.get(name)) is not None:
            rate = network["bytes_per_s_per_direction"]
            given |= {"network": network["network"], _NETWORK_RATE: rate}
        gpus[name] = read({**given, "all_reduce_bytes_per_s": rates[name]})
    return gpus


def _squeeze(name: str) -> str:
    squeezed = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(r"^(nvidia|tesla|amd|instinct)+", "", squeezed)


@cache
def _known() -> dict[str, str]:
    """Return the names of the catalog by what identifies them.

    A bare chip means its usual data-center form.
    """
    aliases = {
        squeezed: row["gpu"]
        for _, row in read_rows(_DATA / "aliases.csv")[1]
        for squeezed in row["aliases"].split()
    }
    return {_squeeze(full): full for full in _gpus()} | aliases


def use_own(gpus: Iterable[OwnGpu]) -> None:
    """Know the user's own GPUs beside the catalog's, in place of earlier ones."""
    found, known = dict[str, OwnGpu](), dict(_known())
    for own in gpus:
        name = own.gpu.name
        if (same := known.get(_squeeze(name))) is not None:
            there = "named twice" if same in found else f"{same} of the catalog"
            raise InputError(f"{name} is {there}; expected another name")
        found[name], known[_squeeze(name)] = own, name
    _OWN.clear()
    _OWN.update(found)


def own_prices() -> dict[str, float]:
    """Return the prices of the user's own GPUs that have one. [$/h]"""
    prices = {name: own.usd_per_gpu_h for name, own in _OWN.items()}
    return {name: price for name, price in prices.items() if price is not None}


def architectures() -> tuple[str, ...]:
    """Return the architectures of the catalog."""
    return tuple(dict.fromkeys(gpu.architecture for gpu in _gpus().values()))


def gpu_names() -> tuple[str, ...]:
    """Return the names of the GPUs in the catalog, and of the user's own."""
    return (*_gpus(), *_OWN)


def gpu(name: str) -> Gpu:
    """Return a GPU of the catalog; case and punctuation are ignored.

    The name may be ``H100-SXM``, ``h100_sxm``, ``H100`` or what nvidia-smi prints.

    Examples
    --------
    >>> gpu("h100_sxm").name, gpu("NVIDIA A100-SXM4-80GB").name
    ('H100-SXM', 'A100-80GB-SXM')
    """
    known = _known() | {_squeeze(own): own for own in _OWN}
    key = _squeeze(name)
    if key not in known:
        near = difflib.get_close_matches(key, known, n=8, cutoff=0.5)
        names = list(dict.fromkeys(known[match] for match in near))[:3] or gpu_names()
        raise InputError(
            f"unknown GPU {name!r}; did you mean {', '.join(names)}? A GPU of your own "
            "is named in --gpu-file"
        )
    full = known[key]
    return _OWN[full].gpu if full in _OWN else _gpus()[full]


def parse_prices(texts: Mapping[str, str]) -> dict[str, float]:
    """Return dollars per GPU hour by GPU of texts by a name of it.

    Examples
    --------
    >>> parse_prices({"h100": "2.49", "L4": "$0.80/h"})
    {'H100-SXM': 2.49, 'L4': 0.8}
    """
    prices: dict[str, float] = {}
    for name, text in texts.items():
        full = gpu(name).name
        if full in prices:
            raise InputError(f"--price '{name}={text}': {full} is given twice")
        prices[full] = parse_usd_per_h(text)
        if prices[full] <= 0:
            raise InputError(
                f"--price '{name}={text}': expected more than 0 dollars per hour"
            )
    return prices
