"""Read and write the state of a fleet at one moment, as JSON or CSV.

JSON holds the replica, the parameters of the constraints and the requests. CSV holds
the requests, one per line; the replica and the SLO come from settings.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, create_model

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.files import new_file
from capplan.input_file import parse_json, read_text
from capplan.latency.yaml_file import Strict, checked
from capplan.placement.problem import COLUMNS, DEFAULTS, PlacementProblem
from capplan.placement.replica import PlacementReplica, affine_replica
from capplan.workload.slo import RequestSlo

SCHEMA = "capplan.snapshot/1"

_PREFILL = ("prefill_fixed_s", "prefill_s_per_token", "prefill_s_per_token2")
_CONSTRAINTS = ("gamma", "theta", "max_replicas", "replica_count")


def _no_bool(value: Any) -> Any:
    """Refuse True and False, which would count as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


_Number = Annotated[float, BeforeValidator(_no_bool)]
_Share = Annotated[_Number, Field(ge=0, le=1)]
_Whole = Annotated[int, BeforeValidator(_no_bool)]
_Replicas = Annotated[_Whole, Field(ge=0, le=10**7)]
_Batch = Annotated[_Whole, Field(ge=1, le=65_536)]


class _Replica(Strict):
    kv_capacity_tokens: _Whole = Field(ge=1, le=10**12)
    block_tokens: _Batch = 1
    prefill_fixed_s: _Number = 0.0
    prefill_s_per_token: _Number = 0.0
    prefill_s_per_token2: _Number = 0.0


class _Measured(_Replica):
    decode_s: list[_Number]
    decode_context_s: list[_Number]


class _Affine(_Replica):
    """Eq. 3 by its coefficients."""

    fixed_s: _Number
    request_s: _Number
    context_s: _Number
    max_batch: _Batch


class _Snapshot(Strict):
    requests: list[dict[str, Any]]
    replica: dict[str, Any] | None = None
    slo: dict[Literal["ttft_s", "tpot_s"], _Number] | None = None
    gamma: _Share | None = None
    theta: _Share | None = None
    max_replicas: _Replicas | None = None
    replica_count: _Replicas | None = None


_COLUMN_TYPES: dict[str, Any] = {
    name: (_Whole if dtype is np.int64 else _Number, Field(ge=low, le=high))
    for name, (dtype, low, high) in COLUMNS.items()
}
_Request = create_model("_Request", **_COLUMN_TYPES)


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
        own = _from_json(path)
        rows = [(f"{path}: requests[{i}]", x) for i, x in enumerate(own.requests)]
        if template is None and own.replica is not None:
            template = _replica(f"{path}: replica", own.replica)
        if slo is None and own.slo is not None:
            slo = RequestSlo(**own.slo)
        constraints = own.model_dump(include={*_CONSTRAINTS}) | constraints
    elif path.suffix == ".csv":
        rows = _from_csv(path)
    else:
        raise InputError(f"{path}: suffix is {path.suffix!r}; expected .json or .csv")
    if template is None:
        raise InputError(
            f"{path}: no replica; give --llm, --gpu and --tp, or a .json with a replica"
        )
    return _problem(path, rows, template, slo, constraints)


Row = tuple[str, dict[str, Any]]
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


def _from_json(path: Path) -> _Snapshot:
    content = parse_json(path, read_text(path))
    schema = content.pop("schema", None) if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise InputError(f"{path}: schema is {schema!r}; expected {SCHEMA!r}")
    return checked(f"{path}", _Snapshot, content)


def _replica(where: str, content: dict[str, Any]) -> PlacementReplica:
    if "decode_s" in content:
        return PlacementReplica(**dict(checked(where, _Measured, content)))
    return affine_replica(**dict(checked(where, _Affine, content)))


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
    requests = [
        checked(where, _Request, defaults | _given(fields)) for where, fields in rows
    ]
    columns: dict[str, Any] = {
        name: np.array([getattr(request, name) for request in requests])
        for name in COLUMNS
    }
    given = _given(constraints)
    # Replicas are counted from 0: those that hold requests exist, and all before them.
    given.setdefault("replica_count", int(columns["replica"].max()) + 1)
    return PlacementProblem(
        template, names=tuple(names), source=str(path), **columns, **given
    )


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


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
