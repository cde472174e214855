"""What a plan rests on, with where each figure is from and how it was had."""

from capplan.planning.configuration import Configuration, Excluded
from capplan.planning.result import Assumption, Candidate
from capplan.planning.settings import PlanSettings
from capplan.units import format_bytes
from capplan.workload.trace import Trace

_HOW = {
    "measured": "measured",
    "kernel-sum": "fitted",
    "published": "published",
    "estimate": "assumed",
}


def assumptions(
    request: PlanSettings,
    trace: Trace,
    candidates: list[Candidate],
    tried: list[Configuration | Excluded],
) -> tuple[Assumption, ...]:
    """Return what the plan rests on: traffic, latency, memory, prices, engine."""
    found = [
        Assumption(
            "traffic",
            f"{len(trace):,} requests at {trace.rate_per_s:.4g}/s",
            "; ".join((trace.source, *trace.notes)),
            "given",
        )
    ]
    used = {(one.gpu, one.tp) for one in candidates if one.status == "feasible"}
    for one in tried:
        if isinstance(one, Configuration) and (one.gpu, one.tp) in used:
            found += [_latency(one), *_memory(one)]
    found += _prices(tried)
    found.append(_engine(request))
    return tuple(found)


def _name(one: Configuration) -> str:
    return f"{one.gpu} × TP {one.tp}"


def _latency(one: Configuration) -> Assumption:
    if one.profile is None:
        return Assumption(
            f"iteration time, {_name(one)}", one.note, "--latency-ms", "given"
        )
    errors = ", ".join(
        f"{phase} {record.held_out_mean_abs:.1%}"
        for phase, record in one.profile.errors.items()
        if record.held_out_mean_abs is not None
    )
    value = f"{one.profile.decode_form} decode, {one.profile.fused_form} prefill"
    if errors:
        value += f"; held-out mean error: {errors}"
    return Assumption(
        f"iteration time, {_name(one)}", value, one.note, _HOW[one.profile.how]
    )


def _memory(one: Configuration) -> list[Assumption]:
    if one.replica is None:
        return []
    budget = one.replica.budget
    reported = one.replica.kv_source != "estimated"
    return [
        Assumption(
            f"KV capacity, {_name(one)}",
            f"{one.engine.kv_blocks:,} blocks of {one.engine.block_size} tokens; "
            f"weights {format_bytes(budget.weight_bytes)} a GPU",
            "reported by the engine"
            if reported
            else f"{budget.utilization:.0%} of {format_bytes(budget.memory_bytes)} "
            "less weights, activations and runtime",
            "measured" if reported else "assumed",
        )
    ]


def _prices(tried: list[Configuration | Excluded]) -> list[Assumption]:
    found = {}
    for one in tried:
        if isinstance(one, Configuration) and one.price is not None:
            price = one.price
            given = price.source == "given by the user"
            found[one.gpu] = Assumption(
                f"price, {one.gpu}",
                f"${price.usd_per_gpu_h:.2f} per GPU and hour",
                ", ".join(x for x in (price.source, price.as_of, price.note) if x),
                "given" if given else "published",
            )
    return list(found.values())


def _engine(request: PlanSettings) -> Assumption:
    set_by_user = [
        f"{name}={getattr(request, name)}"
        for name in (
            "max_num_batched_tokens",
            "max_num_seqs",
            "block_size",
            "kv_blocks",
            "gpu_memory_utilization",
            "async_scheduling",
            "prefix_caching",
        )
        if getattr(request, name) is not None
    ]
    return Assumption(
        "engine",
        ", ".join(set_by_user) or "as vllm serve chooses by GPU; no prefix caching",
        "schedules as vLLM 0.32's V1 scheduler",
        "given" if set_by_user else "assumed",
    )
