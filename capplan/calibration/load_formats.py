"""Load tests as tools write them: ``data/load_formats.yaml`` declares each format."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from capplan.errors import InputError
from capplan.input_file import parse_yaml, read_text
from capplan.latency.importers.aiperf import SECONDS
from capplan.records import flat
from capplan.workload.readers.wrong_header import listed

Fields = dict[str, Any]

NAMED = "the name of its folder"
"""Fields that are none of the file."""
_DATA = Path(__file__).parent / "data/load_formats.yaml"


class Format(NamedTuple):
    """The tests of one tool, as the head of ``_DATA`` says."""

    tool: str
    marks: Sequence[str]
    paths: Mapping[str, Sequence[str]]
    prepare: Callable[[Path, Fields], Fields] | None
    fixed: Mapping[str, float] = {}
    at_once: bool = False
    no_load: str = ""
    again: str = ""


_NO_CAP = 10_240
"""GuideLLM's setting ``max_concurrency``, which it writes where no limit is given."""


def _guidellm(path: Path, fields: Fields) -> Fields:
    """Leave out the report's version, which is none of the engine, and no cap."""
    caps = (f"{args}.strategy.max_concurrency" for args in ("config", "args"))
    no_cap = {name for name in caps if fields.get(name) == _NO_CAP}
    unused = {"metadata.version", "version"} | no_cap
    return {k: v for k, v in fields.items() if k not in unused}


def _guidellm_row(path: Path, fields: Fields) -> Fields:
    """Take ``concurrent@4`` apart, and the JSON in the cells of a run."""
    kind, _, load = str(fields["Benchmark.Strategy"]).partition("@")
    is_rate = kind in ("constant", "poisson")
    load = "" if load == "unlimited" else load
    inner = {"process": kind, "rate" if is_rate else "streams": load or None}
    for name in ("Run Info.Backend", "Run Info.Profile"):
        try:
            cell = json.loads(fields.get(name) or "null")
        except (ValueError, RecursionError):
            continue  # another version writes it as text
        inner |= flat({name: cell}) if isinstance(cell, dict) else {}
    cap = inner.get("Run Info.Profile.max_concurrency") if is_rate else None
    cap = None if cap == _NO_CAP else cap
    own = {k: v for k, v in fields.items() if k != "Run Info.Backend"}
    return own | inner | {"cap": cap}


def _aiperf(path: Path, fields: Fields) -> Fields:
    """Take the phase after the warm-up, the folder's load, and times by their units."""
    fields, phases = dict(fields), fields.get("input_config.phases")
    load = re.search(r"(concurrency|rate)[-_=]?([\d.]+)", path.parent.name)
    if load and not any(name.startswith("input_config") for name in fields):
        fields[f"{NAMED}.{load[1]}"] = load[2]
    if isinstance(phases, list):
        own = [p for p in phases if p.get("kind", p.get("name")) != "warmup"]
        if len(own) != 1:
            raise InputError(f"{path}: has {len(own)} phases of load; expected one")
        fields |= flat({"phase": own[0]})
    if "input_config.perf_analyzer.stimulus.request_rate" in fields:
        fields["phase.type"] = "constant"
    for name in ("inter_token_latency", "time_to_first_token"):
        unit = fields.get(f"{name}.unit", "ms")
        if unit not in SECONDS:
            raise InputError(
                f"{path}: {name} is in {str(unit)[:20]!r}; expected "
                f"{', '.join(SECONDS)}"
            )
        if unit != "ms" and f"{name}.avg" in fields:
            fields[f"{name}.avg"] = float(fields[f"{name}.avg"]) * SECONDS[unit] * 1e3
    return fields


def _inference_perf(path: Path, fields: Fields) -> Fields:
    """Leave out the rate at which a stage's users start; take the model beside it."""
    config = path.parent / "config.yaml"
    text = read_text(config) if config.is_file() else ""
    if model := re.search(r"^\s*model_name:\s*['\"]?([^\s'\"#]+)", text, re.MULTILINE):
        fields = {"model_name": model[1]} | fields
    users = fields.get("load_summary.concurrency") is not None
    return fields | ({"load_summary.requested_rate": None} if users else {})


def _trtllm(path: Path, fields: Fields) -> Fields:
    """State the engine, which the tool's name says, and the GPU."""
    return fields | {"engine": "trtllm", "gpu": fields.get("machine.name")}


_PREPARE = {
    "GuideLLM": _guidellm,
    "GuideLLM's CSV": _guidellm_row,
    "AIPerf or GenAI-Perf": _aiperf,
    "inference-perf": _inference_perf,
    "llmperf": _guidellm,
    "trtllm-bench": _trtllm,
}


@cache
def _data() -> dict[str, Any]:
    """Return the list of formats, and what other files are by a field of theirs."""
    content: dict[str, Any] = parse_yaml(_DATA, read_text(_DATA))[0]
    return content


@cache
def _formats() -> tuple[Format, ...]:
    """Return the formats; the first whose marks a test has is its."""
    entries = {entry["tool"]: entry for entry in _data()["formats"]}
    found = []
    for tool, entry in entries.items():
        told = entries.get(entry.get("like"), {}) | entry
        told["paths"] = {
            name: of if isinstance(of, list) else [of]
            for name, of in told["paths"].items()
        }
        told = {name: told[name] for name in Format._fields if name in told}
        found.append(Format(**told, prepare=_PREPARE.get(tool)))
    return tuple(found)


def format_of(fields: Fields) -> Format | None:
    """Return the format of a test; None of what is none."""
    return next(
        (f for f in _formats() if all(mark in fields for mark in f.marks)), None
    )


def known_other(fields: Fields) -> str:
    """Return what a record is that tools write beside load tests; else nothing."""
    others = _data()["others"].items()
    return next((f"is {what}" for of, what in others if of in fields), "")


def unknown(fields: Fields) -> str:
    """Return what is said of a record that is no load test."""
    if what := known_other(fields):
        return what
    near = max(_formats(), key=lambda f: sum(mark in fields for mark in f.marks))
    lacks = [mark for mark in near.marks if mark not in fields]
    shown = listed([str(name) for name in fields], 8) or "nothing"
    told = f"is no load test of a known format; it has {shown}"
    if len(lacks) < len(near.marks):
        told += f"; as of {near.tool} it lacks {', '.join(lacks)}"
    tools = ", ".join(f.tool for f in _formats()[:-1] if "CSV" not in f.tool)
    return (
        f"{told}; expected the file of {tools}, or a CSV of isl, osl, concurrency or "
        "rate_per_s, and tpot_ms"
    )
