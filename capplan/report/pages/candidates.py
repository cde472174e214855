"""Values and columns of the candidates of a plan."""

from functools import partial
from typing import Any

from capplan.deployment.pools import DECODE, PREFILL
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.judgement import LEVELS, PERCENTILES
from capplan.planning.plan.result import Plan
from capplan.report.columns import (
    Column,
    at,
    column,
    constant,
    ends,
    format_count,
    format_fine_usd,
    format_share,
)
from capplan.shipped import own_version
from capplan.units import format_duration, format_usd

_P99 = 1 + PERCENTILES.index(99.0)  # after the mean
_DISTRIBUTIONS: tuple[str, ...] = ("quantile_levels", "ttft_quantiles_s")
_DISTRIBUTIONS += ("tpot_quantiles_s", "e2e_quantiles_s", "series")

RUN_PATHS = {
    "slo_attainment": "judgement.attainment.share",
    "slo_attainment_interval": "judgement.attainment.interval",
    "attainment_by_class": "judgement.attainment.by_class",
    "classes": "judgement.classes",
    "counted_request_count": "judgement.counted_request_count",
    "sample_count": "judgement.sample_count",
    "warmup_s": "judgement.warmup_s",
    "windows": "judgement.in_windows.worst",
    "peak": "judgement.in_windows.peak",
    "window_widths": "judgement.in_windows.widths",
    "undecided_reason": "judgement.open",
    "utilisation": "judgement.steadiness.known_utilisation",
    "settled": "judgement.steadiness.settled",
    "recovery_s": "judgement.steadiness.recovery_s",
    "ttft_quantiles_s": "judgement.quantiles_s.ttft_s",
    "kv_tokens": "configuration.engine.kv_tokens",
    "requests_at_max_model_len": "configuration.engine.requests_at_max_model_len",
    "tpot_quantiles_s": "judgement.quantiles_s.tpot_s",
    "e2e_quantiles_s": "judgement.quantiles_s.e2e_s",
    "series": "simulation.series",
}
"""Where the values that a run and a candidate share lie in the run."""

PATHS = {
    "gpu": "gpu",
    "tp": "only_tp",
    "layout": "layout_name",
    "gpus_per_replica": "gpus_per_replica",
    "status": "status",
    "replica_count": "replica_count",
    "replica_count_range": "replica_count_range",
    "cautious_replica_count": "cautious_replica_count",
    "cautious_fails": "cautious_fails",
    "gpu_count": "gpu_count",
    "gpu_count_range": "gpu_count_range",
    "latency_source": "configuration.latency_source",
    "capacity_ratio": "capacity_ratio",
    "sweep_count": "sweep_count",
    "kv_dtype": "configuration.kv_dtype",
    "lower_bound_gpu_count": "lower_bound_gpu_count",
    **{name: f"run.{path}" for name, path in RUN_PATHS.items()},
    "decided": "decided",
    "too_close": "too_close",
    "coarse": "coarse",
    "ttft_p99_s": f"run.judgement.percentiles.ttft_s.{_P99}",
    "tpot_p99_s": f"run.judgement.percentiles.tpot_s.{_P99}",
    "e2e_p99_s": f"run.judgement.percentiles.e2e_s.{_P99}",
    "usd_per_h": "cost.usd_per_h",
    "usd_per_month": "cost.usd_per_month",
    "usd_per_month_range": "usd_per_month_range",
    "cautious_usd_per_month": "cautious_usd_per_month",
    "usd_per_year": "cost.usd_per_year",
    "usd_per_million_input_tokens": "cost.usd_per_million_input_tokens",
    "usd_per_million_output_tokens": "cost.usd_per_million_output_tokens",
    "usd_per_million_total_tokens": "cost.usd_per_million_total_tokens",
    "binding": "binding",
    "router": "run.deployment.placed_by",
    "scheduler": "configuration.engine.scheduler",
    "caching_unused": "configuration.caching_unused",
    "prompt_cost_share": "run.work.prompt_share",
    "class_cost_shares": "run.work.class_shares",
    "busiest_share_of_mean": "run.work.busiest_share_of_mean",
    "launch_line": "launch.line",
    "launch_notes": "launch.notes",
    "infeasible_reason": "infeasible_reason",
    "pruned_reason": "pruned_reason",
    "nodes": "cost.nodes",
    "price": "price",
    "engine": "configuration.engine",
    "weight_bytes": "configuration.weight_bytes",
    "cold_start": "configuration.cold_start",
    "estimated": "is_in_doubt",
    "doubts": "configuration.doubts",
    "times_of": "configuration.times_of",
    "profile_note": "configuration.note",
    "latency_error": "configuration.latency_error",
    "probes": "probes",
    "bound_note": "bound.note",
}
"""Where the values of a candidate lie, by the keys of the JSON, in order."""


POOL_PATHS = {
    "role": "role",
    "gpu": "gpu",
    "tp": "tp",
    "layout": "key.1",
    "gpus_per_replica": "configuration.gpus",
    "replica_count": "replica_count",
    "gpu_count": "gpu_count",
    "lower_bound_replica_count": "bound.replica_count",
    "lower_bound_gpu_count": "lower_bound_gpu_count",
    "busy_share": "busy_share",
    "latency_source": "configuration.latency_source",
    "kv_dtype": "configuration.kv_dtype",
    "price": "configuration.price",
    "engine": "configuration.engine",
    "weight_bytes": "configuration.weight_bytes",
    "cold_start": "configuration.cold_start",
    "launch_line": "launch.line",
    "launch_notes": "launch.notes",
    "bound": "bound",
    "bound_sample": "bound_sample",
}
"""Where the values of one of two pools lie, by the keys of the JSON."""


def candidate_values(candidate: Candidate, brief: bool = False) -> dict[str, Any]:
    """Return a candidate by the keys of the JSON.

    ``brief`` is without distributions and series.
    """
    values = {name: at(candidate, path) for name, path in PATHS.items()}
    values["quantile_levels"] = None if candidate.run is None else LEVELS
    values["bounds"] = [] if candidate.bound is None else [candidate.bound]
    values["pools"] = pool_values(candidate)
    if brief:
        values = {k: v for k, v in values.items() if k not in _DISTRIBUTIONS}
    return values


def pool_values(candidate: Candidate | None) -> list[dict[str, Any]]:
    """Return the pools of a candidate by the keys of the JSON; none of one pool."""
    return [
        {name: at(pool, path) for name, path in POOL_PATHS.items()}
        for pool in (candidate.pools if candidate is not None else ())
    ]


def _column(name: str, heading: str = "", show: Any = str, **layout: Any) -> Column:
    return column(name, heading, show, path=PATHS[name], **layout)


def _of_price(name: str) -> Column:
    key = name.removeprefix("price_")
    return column(name, path=f"{PATHS['price']}.{key}")


def _of_pools(name: str) -> list[Column]:
    """Return the columns of what each of two pools has; people are shown neither."""
    return [
        Column(f"{role}_{name}", partial(_of_pool, index=index, name=name))
        for index, role in enumerate((PREFILL, DECODE))
    ]


def _of_pool(candidate: Candidate, index: int, name: str) -> Any:
    return getattr(candidate.pools[index], name) if candidate.pools else None


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


COLUMNS = (
    _column("gpu", "GPU", justify="left"),
    _column("tp", "TP", told=partial(_by_pool, name="degrees")),
    _column("layout"),
    _column("gpus_per_replica"),
    *_of_pools("tp"),
    _column("status"),
    _column("replica_count", "replicas", told=partial(_by_pool, name="replica_count")),
    *_of_pools("replica_count"),
    *ends("replica_count", PATHS["replica_count_range"]),
    _column("cautious_replica_count"),
    _column("cautious_fails"),
    _column("latency_source"),
    *ends("capacity_ratio", PATHS["capacity_ratio"]),
    _column("sweep_count"),
    Column("doubts", lambda row: "; ".join(at(row, PATHS["doubts"]) or ())),
    _column("kv_dtype"),
    *(
        Column(name, partial(_of_nodes, name=of))
        for name, of in (
            ("node_count", "count"),
            ("gpus_paid", "gpus_paid"),
            ("stranded_gpus", "stranded_gpus"),
        )
    ),
    _column("gpu_count", "GPUs", format_count),
    *ends("gpu_count", PATHS["gpu_count_range"]),
    _column("lower_bound_gpu_count", "at least", format_count, leaves=3),
    _column("slo_attainment", "attainment", format_share),
    *ends("slo_attainment", PATHS["slo_attainment_interval"]),
    _column("attainment_by_class"),
    _column("decided"),
    _column("undecided_reason"),
    _column("too_close"),
    _column("coarse"),
    _column("utilisation"),
    _column("settled"),
    _column("recovery_s"),
    _column("counted_request_count"),
    _column("sample_count"),
    _column("warmup_s"),
    _column("ttft_p99_s", "p99 TTFT", format_duration),
    _column("tpot_p99_s", "p99 TPOT", format_duration),
    _column("e2e_p99_s"),
    _of_price("usd_per_gpu_h"),
    _column("usd_per_h", "$ per hour", format_usd, leaves=4),
    _column("usd_per_month"),
    *ends("usd_per_month", PATHS["usd_per_month_range"]),
    _column("cautious_usd_per_month"),
    _column("usd_per_year"),
    *(
        _column(f"usd_per_million_{kind}_tokens", heading, format_fine_usd, leaves=2)
        for kind, heading in (("input", "$/Mtok in"), ("output", "$/Mtok out"))
    ),
    _column("usd_per_million_total_tokens"),
    _column("binding", "binds", justify="left", leaves=1),
    _column("router"),
    _column("scheduler"),
    _column("caching_unused"),
    _column("prompt_cost_share"),
    _column("busiest_share_of_mean"),
    _column("launch_line"),
    _column("infeasible_reason"),
    _column("pruned_reason"),
    _of_price("price_source"),
    _of_price("price_as_of"),
    _of_price("price_note"),
    _column("profile_note"),
    _column("bound_note"),
)
"""All columns of a candidate, in the order of the CSV."""

ASKED: tuple[str, ...] = ("llm", "slo_text", "attainment_text", "trace_source")
ASKED += ("trace_sha256", "rate_per_s")
"""What a plan was asked, in every row of its CSV."""


def plan_columns(plan: Plan) -> list[Column]:
    """Return the columns that say in each row what was asked, of what, by what."""
    values: dict[str, Any] = {name: getattr(plan, name) for name in ASKED}
    values["capplan_version"] = own_version()
    return [constant(name, value) for name, value in values.items()]
