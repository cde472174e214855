"""The figures of a candidate of a plan, each declared once."""

from functools import partial
from typing import Any

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.judgement import LEVELS
from capplan.planning.plan.result import Plan
from capplan.report.columns import Column, at, constant, format_count, record
from capplan.report.fields import fields
from capplan.shipped import own_version

_DISTRIBUTIONS: tuple[str, ...] = ("quantile_levels", "ttft_quantiles_s")
_DISTRIBUTIONS += ("tpot_quantiles_s", "e2e_quantiles_s", "series")


def _by_pool(candidate: Candidate, name: str) -> str | None:
    """Return a value as people read it; of two pools that of each, as in 2 + 3."""
    values = [getattr(pool, name) for pool in candidate.pools or (candidate,)]
    if None in values:
        return None
    return " + ".join(
        value if isinstance(value, str) else format_count(value) for value in values
    )


def _of_nodes(candidate: Candidate, name: str) -> float | None:
    """Return a count over all kinds of nodes; None where one is not known."""
    if candidate.cost is None:
        return None
    counts = [getattr(row, name) for row in candidate.cost.nodes]
    return None if None in counts else sum(counts)


COLUMNS = fields(
    "candidate",
    tp=partial(_by_pool, name="degrees"),
    replica_count=partial(_by_pool, name="replica_count"),
    doubts=lambda row: "; ".join(at(row, "configuration.doubts") or ()),
    node_count=partial(_of_nodes, name="count"),
    gpus_paid=partial(_of_nodes, name="gpus_paid"),
    stranded_gpus=partial(_of_nodes, name="stranded_gpus"),
    quantile_levels=lambda row: row.run and LEVELS,
    bounds=lambda row: [row.bound] if row.bound else [],
    pools=lambda row: pool_values(row),
)
OF_POOL = fields("candidate_pool")


def candidate_values(candidate: Candidate, brief: bool = False) -> dict[str, Any]:
    """Return a candidate by the keys of the JSON.

    ``brief`` is without distributions and series.
    """
    left_out = _DISTRIBUTIONS if brief else ()
    return record([each for each in COLUMNS if each.name not in left_out], candidate)


def pool_values(candidate: Candidate | None) -> list[dict[str, Any]]:
    """Return the pools of a candidate by the keys of the JSON; none of one pool."""
    return [record(OF_POOL, pool) for pool in at(candidate, "pools") or ()]


ASKED: tuple[str, ...] = ("llm", "slo_text", "attainment_text", "trace_source")
ASKED += ("trace_sha256", "rate_per_s")
"""What a plan was asked, in every row of its CSV."""


def plan_columns(plan: Plan) -> list[Column]:
    """Return the columns that say in each row what was asked, of what, by what."""
    values: dict[str, Any] = {name: getattr(plan, name) for name in ASKED}
    values["capplan_version"] = own_version()
    return [constant(name, value) for name, value in values.items()]
