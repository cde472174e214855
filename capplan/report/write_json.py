"""A plan as JSON: the same plan gives the same bytes."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from capplan.bounds.certificate import seal
from capplan.deployment.policy import Policy
from capplan.planning.cost import HOURS_PER_MONTH, HOURS_PER_YEAR, CostLine
from capplan.planning.result import Candidate, Plan
from capplan.report.bill import bill

_FIRST: tuple[str, ...] = ("schema", "status", "best", "best_by_gpus", "best_estimated")
_FIRST += ("infeasible_reason", "candidates")
_QUANTILES: tuple[str, ...] = ("quantile_levels", "ttft_quantiles_s")
_QUANTILES += ("tpot_quantiles_s", "e2e_quantiles_s")

_CANDIDATE: tuple[str, ...] = ("gpu", "tp", "status", "replica_count")
_CANDIDATE += ("replica_count_range", "gpu_count", "latency_source")
_CANDIDATE += ("carried", "sweeps", "kv_dtype")
_CANDIDATE += ("lower_bound_gpu_count", "slo_attainment", "slo_attainment_interval")
_CANDIDATE += ("attainment_by_class", "classes", "counted_request_count")
_CANDIDATE += ("sample_count", "warmup_s", "decided", "undecided_reason", "too_close")
_CANDIDATE += ("coarse", "utilisation", "settled", "recovery_s")
_CANDIDATE += ("ttft_p99_s", "tpot_p99_s")
_CANDIDATE += ("usd_per_h", "usd_per_month", "usd_per_year")
_CANDIDATE += ("usd_per_million_output_tokens", "usd_per_million_total_tokens")
_CANDIDATE += ("binding", "router", "scheduler", "caching_unused", "launch_line")
_CANDIDATE += ("launch_notes", "infeasible_reason", "pruned_reason", "price")
_CANDIDATE += (
    "limits",
    "estimated",
    "doubts",
    "times_of",
    "profile_note",
    "latency_error",
    "probes",
)
_CANDIDATE += (*_QUANTILES, "series", "bound", "bound_note")
"""Keys of a candidate, in order."""


def plan_json(plan: Plan) -> str:
    """Return the plan as JSON under the names of its fields.

    Only ``candidates`` holds the distributions and series, ``best`` and
    ``best_by_gpus`` do not repeat them. ``runtime_s`` is left out, so that the same
    plan gives the same bytes. A number that is not finite is null.
    """
    document: dict[str, Any] = {}
    for name in dict.fromkeys([*_FIRST, *(field.name for field in fields(plan))]):
        value = getattr(plan, name)
        if name == "candidates":
            document[name] = [candidate_values(row) for row in value]
        elif isinstance(value, Candidate):
            document[name] = candidate_values(value, brief=True)
        else:
            document[name] = plain(value)
    del document["runtime_s"]
    document["costs"] = [_cost_values(line) for line in bill(plan)]
    if document["certificate"] is not None:
        document = seal(document)
    return render(document) + "\n"


def render(value: Any, indent: str = "") -> str:
    """Return indented JSON with lists of plain values on one line each."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        parts = [
            f"{deeper}{json.dumps(key, ensure_ascii=False)}: {render(item, deeper)}"
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    # A series of 100 numbers takes one line, a list of candidates many.
    if isinstance(value, list) and any(isinstance(row, dict | list) for row in value):
        parts = [f"{deeper}{render(item, deeper)}" for item in value]
        return "[\n" + ",\n".join(parts) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def candidate_values(candidate: Candidate, brief: bool = False) -> dict[str, Any]:
    """Return a candidate as JSON values, ``brief`` without distributions and series."""
    usd_per_h = candidate.usd_per_h
    other = {  # not attributes of a candidate
        "limits": candidate.engine,
        "launch_notes": candidate.launch and candidate.launch.notes,
        "usd_per_month": None if usd_per_h is None else usd_per_h * HOURS_PER_MONTH,
        "usd_per_year": None if usd_per_h is None else usd_per_h * HOURS_PER_YEAR,
    }
    return {
        name: plain(other[name] if name in other else getattr(candidate, name))
        for name in _CANDIDATE
        if not (brief and name in (*_QUANTILES, "series"))
    }


def _cost_values(line: CostLine) -> dict[str, Any]:
    values = plain(line)
    estimated = values.pop("estimated")  # after the amount, as in earlier plans
    return {**values, "amount_usd": line.amount_usd, "estimated": estimated}


def plain(value: Any) -> Any:
    """Return dataclasses, tuples and arrays as values that JSON has."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Policy):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value
