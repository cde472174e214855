"""Read and write the state of a fleet at one moment, as JSON or CSV.

JSON holds the replica, the parameters of the constraints and the requests. CSV holds
the requests, one per line; the replica and the SLO come from settings.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.files import new_file
from capplan.input_file import parse_json, read_text
from capplan.placement.problem import COLUMNS, DEFAULTS, PlacementProblem
from capplan.placement.replica import PlacementReplica, affine_replica
from capplan.workload.slo import RequestSlo

SCHEMA = "capplan.snapshot/1"

_AFFINE = ("fixed_s", "request_s", "context_s", "max_batch")
_WHOLE = {
    "kv_capacity_tokens": 10**12,
    "block_tokens": 65_536,
    "max_batch": 65_536,
    "max_replicas": 10**7,
    "replica_count": 10**7,
}
"""Whole numbers of a snapshot, and the largest that one may be."""

_PREFILL = ("prefill_fixed_s", "prefill_s_per_token", "prefill_s_per_token2")
_CONSTRAINTS = ("gamma", "theta", "max_replicas", "replica_count")


def read_snapshot(
    path: Path,
    template: PlacementReplica | None = None,
    slo: RequestSlo | None = None,
    **constraints: Any,
) -> PlacementProblem:
    """Return the placement problem of a .json or .csv snapshot.

    The template, the SLO of requests without their own, and ``gamma``, ``theta``,
    ``max_replicas`` and ``replica_count`` override those of the file.
    """
    if path.suffix == ".json":
        rows, template, own, slo = _from_json(path, template, slo)
        constraints = {**own, **constraints}
    elif path.suffix == ".csv":
        rows = _from_csv(path)
    else:
        raise InputError(f"{path}: suffix is {path.suffix!r}; expected .json or .csv")
    if template is None:
        raise InputError(
            f"{path}: no replica; give --llm, --gpu and --tp, or a .json with a replica"
        )
    return _problem(path, rows, template, slo, constraints)


Row = tuple[str, Mapping[str, Any]]
"""Line or index of a request in the file, for messages, and its fields."""


def _from_csv(path: Path) -> list[Row]:
    names, table = read_rows(path)
    known = {*COLUMNS, "name"}
    for name in names:
        if name not in known:
            raise InputError(
                f"{path}:1: column {name!r} is not known; expected {', '.join(known)}"
            )
    return [
        (f"{path}:{line}", {name: text for name, text in cells.items() if text})
        for line, cells in table
    ]


def _from_json(
    path: Path, template: PlacementReplica | None, slo: RequestSlo | None
) -> tuple[list[Row], PlacementReplica | None, dict[str, Any], RequestSlo | None]:
    content = parse_json(path, read_text(path))
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        schema = content.get("schema") if isinstance(content, dict) else None
        raise InputError(f"{path}: schema is {schema!r}; expected {SCHEMA!r}")
    known = {"schema", "replica", "requests", "slo", *_CONSTRAINTS}
    for name in content:
        if name not in known:
            raise InputError(f"{path}: {name!r} is not known")
    requests = content.get("requests")
    if not isinstance(requests, list):
        raise InputError(f"{path}: requests is not a list")
    rows: list[Row] = []
    for index, fields in enumerate(requests):
        if not isinstance(fields, dict):
            raise InputError(f"{path}: requests[{index}] is not a table of fields")
        rows.append((f"{path}: requests[{index}]", fields))
    if template is None and "replica" in content:
        template = _replica(path, content["replica"])
    if slo is None and "slo" in content:
        slo = _limits(path, content["slo"])
    own = {name: content[name] for name in _CONSTRAINTS if name in content}
    for name, value in own.items():
        if value is None:
            continue
        number = _number(f"{path}", name, value)
        largest = _WHOLE.get(name, 1)
        if not 0 <= number <= largest or (name in _WHOLE and number != int(number)):
            raise InputError(f"{path}: {name} is {value}; expected 0 to {largest:,}")
    return rows, template, own, slo


def _limits(path: Path, content: Any) -> RequestSlo:
    if not isinstance(content, dict) or set(content) - {"ttft_s", "tpot_s"}:
        raise InputError(f"{path}: slo is not a table of ttft_s and tpot_s")
    return RequestSlo(
        **{name: _number(f"{path}: slo", name, content[name]) for name in content}
    )


def _replica(path: Path, content: Any) -> PlacementReplica:
    where = f"{path}: replica"
    if not isinstance(content, dict):
        raise InputError(f"{where} is not a table of fields")
    known = {"kv_capacity_tokens", "block_tokens", *_PREFILL}
    tables = ("decode_s", "decode_context_s")
    # Eq. 3 by its coefficients, or a measured table: one of them, not both.
    kind: tuple[str, ...] = tables if "decode_s" in content else _AFFINE
    for name in content:
        if name not in known | set(kind):
            raise InputError(f"{where}: {name!r} is not known")
    for name in ("kv_capacity_tokens", *kind):
        if name not in content:
            raise InputError(f"{where}: {name} is missing")
    given: dict[str, Any] = {}
    for name, value in content.items():
        if name in tables:
            if not isinstance(value, list):
                raise InputError(f"{where}: {name} is not a list")
            given[name] = np.array(
                [_number(f"{where}: {name}[{i}]", name, v) for i, v in enumerate(value)]
            )
        else:
            number = _number(where, name, value)
            given[name] = number
            if name in _WHOLE:
                if not 1 <= number <= _WHOLE[name] or number != int(number):
                    raise InputError(
                        f"{where}: {name} is {number:g}; expected a whole number from "
                        f"1 to {_WHOLE[name]:,}"
                    )
                given[name] = int(number)
    capacity = given.pop("kv_capacity_tokens")
    if kind is tables:
        return PlacementReplica(capacity, **given)
    return affine_replica(capacity, **given)


def _number(where: str, name: str, value: Any) -> float:
    try:
        # A bool is an int of Python, but no number of a snapshot.
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        shown = repr(value)[:40]
        raise InputError(f"{where}: {name} is {shown}; expected a number") from None
    if math.isnan(number):
        raise InputError(f"{where}: {name} is not a number")
    return number


def _problem(
    path: Path,
    rows: list[Row],
    template: PlacementReplica,
    slo: RequestSlo | None,
    constraints: dict[str, Any],
) -> PlacementProblem:
    if not rows:
        raise InputError(f"{path}: no requests; expected at least one")
    names = [str(fields.get("name", index)) for index, (_, fields) in enumerate(rows)]
    seen: dict[str, str] = {}
    for (where, _), name in zip(rows, names, strict=True):
        if name in seen:
            raise InputError(f"{where}: the name {name!r} is also that of {seen[name]}")
        seen[name] = where
    defaults = dict(DEFAULTS)
    if slo is not None:
        # An SLO is the default of rows without their own, so that a file may mix.
        defaults |= {"ttft_slo_s": slo.ttft_s, "tpot_slo_s": slo.mean_gap_s}
    columns: dict[str, Any] = {name: _column(rows, name, defaults) for name in COLUMNS}
    given = {name: value for name, value in constraints.items() if value is not None}
    # Replicas are counted from 0: those that hold requests exist, and all before them.
    given.setdefault("replica_count", int(columns["replica"].max()) + 1)
    return PlacementProblem(
        template, names=tuple(names), source=str(path), **columns, **given
    )


def _column(rows: list[Row], name: str, defaults: Mapping[str, Any]) -> np.ndarray:
    dtype, low, high = COLUMNS[name]
    values = []
    for where, fields in rows:
        if name not in fields or fields[name] is None:
            if name not in defaults:
                wanted = "--slo" if name.endswith("slo_s") else "a value"
                raise InputError(f"{where}: {name} is missing; give {wanted}")
            values.append(defaults[name])
            continue
        value = _number(where, name, fields[name])
        if not low <= value <= high or (dtype is np.int64 and value != int(value)):
            whole = " and a whole number" if dtype is np.int64 else ""
            bound = f"<= {high:,}" if value > high else f">= {low}"
            raise InputError(
                f"{where}: {name} is {fields[name]}; expected {bound}{whole}"
            )
        values.append(value)
    return np.array(values)


def write_snapshot(problem: PlacementProblem, path: Path) -> None:
    """Write a problem as JSON, all of it, or as CSV, its requests."""
    rows = [
        {"name": problem.names[row]}
        | {name: getattr(problem, name)[row].item() for name in COLUMNS}
        for row in range(len(problem))
    ]
    if path.suffix == ".csv":
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        text = "\n".join(",".join(map(str, cells)) for cells in lines)
    elif path.suffix == ".json":
        template = problem.template
        content = {
            "schema": SCHEMA,
            **{name: getattr(problem, name) for name in _CONSTRAINTS},
            "replica": {
                "kv_capacity_tokens": template.kv_capacity_tokens,
                "block_tokens": template.block_tokens,
                "decode_s": template.decode_s.tolist(),
                "decode_context_s": template.decode_context_s.tolist(),
                **{name: getattr(template, name) for name in _PREFILL},
            },
            "requests": rows,
        }
        text = json.dumps(content, indent=1)
    else:
        raise InputError(f"{path}: suffix is {path.suffix!r}; expected .json or .csv")
    with new_file(path) as stream:
        stream.write(text + "\n")
