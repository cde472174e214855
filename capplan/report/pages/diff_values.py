"""Two plans by the keys of the JSON of ``capplan diff``."""

from typing import Any

from capplan.report.received.plan_diff import LineChange, PlanDiff
from capplan.report.received.plan_figures import (
    CandidateFigures,
    PlanFigures,
    PoolFigures,
)

SCHEMA = "capplan.diff/1"

_POOL: tuple[str, ...] = ("replica_count", "gpu_count", "gpus_paid", "stranded_gpus")
_POOL += ("node_count", "node", "usd_per_month")


def diff_values(diff: PlanDiff) -> dict[str, Any]:
    """Return two plans by the keys of the JSON; amounts are whole cents of dollars."""
    effects = diff.effects
    return {
        "schema": SCHEMA,
        "changed": diff.has_changed,
        "old": _plan_values(diff.old),
        "new": _plan_values(diff.new),
        "usd_per_month_change": effects and effects.total_cents / 100,
        "price_effect_usd_per_month": effects and effects.price_cents / 100,
        "volume_effect_usd_per_month": effects and effects.volume_cents / 100,
        "configuration_effect_usd_per_month": effects and effects.rest_cents / 100,
        "share_change": diff.share,
        "causes": [cause._asdict() for cause in diff.causes],
        "lines": [_line_values(line) for line in diff.lines],
        "candidates": [
            {
                "name": row.name,
                "changed": row.has_changed,
                "old": _candidate_values(row.old),
                "new": _candidate_values(row.new),
            }
            for row in diff.candidates
        ],
    }


def _plan_values(plan: PlanFigures) -> dict[str, Any]:
    values = {"path": plan.path, "llm": plan.llm, "status": plan.status}
    return values | {"best": _candidate_values(plan.best)}


def _candidate_values(row: CandidateFigures | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "name": row.name,
        "status": row.status,
        "gpu_count": row.gpu_count,
        "node_count": row.node_count,
        "usd_per_month": row.usd_per_month,
        "slo_attainment": row.attained,
        "lower_bound_gpu_count": row.lower_bound_gpu_count,
        "reason": row.reason,
    }


def _line_values(line: LineChange) -> dict[str, Any]:
    def of(pool: PoolFigures | None) -> dict[str, Any] | None:
        return None if pool is None else {name: getattr(pool, name) for name in _POOL}

    pool = line.either
    price, volume = line.price_cents, line.volume_cents
    return {
        "change": line.sign,
        "gpu": pool.gpu,
        "tp": pool.tp,
        "role": pool.role,
        "old": of(line.old),
        "new": of(line.new),
        "price_effect_usd_per_month": None if price is None else price / 100,
        "volume_effect_usd_per_month": None if volume is None else volume / 100,
        "causes": [cause._asdict() for cause in line.causes],
    }
