"""Disaggregated prefill and decode beside replicas that do both, in a plan."""

from collections.abc import Callable, Sequence
from functools import partial

from capplan.deployment.pools import one_fewer as counts_below
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.plan.result import Plan
from capplan.report import sentences
from capplan.report.charts.motion import pool_figures
from capplan.report.columns import format_count, format_fine_usd
from capplan.report.fields import fields
from capplan.report.page import Fact, Figure, Section, Table


def pool_sections(plan: Plan) -> list[Section]:
    """Return what disaggregated prefill and decode are worth, where asked."""
    if plan.disaggregation is None:
        return []
    disaggregated = plan.best_disaggregated
    rows = [row for row in (plan.best_aggregated, disaggregated) if row]
    tables, facts = [Table(_KINDS, rows)], list[Fact]()
    charts: Callable[[], Sequence[Figure]] = tuple
    if disaggregated is not None and disaggregated.run is not None:
        tables.append(Table(_POOLS, disaggregated.pools, title=str(disaggregated)))
        deployment = disaggregated.run.deployment
        link = format_count(deployment.link_gb_per_s or 0.0)
        facts = [
            ("one fewer", one_fewer(disaggregated)),
            ("KV", f"hand-off {deployment.hand_off}, {link} GB/s from each GPU"),
        ]
        if len(disaggregated.run.simulation.series.start_s) > 1:
            charts = partial(pool_figures, disaggregated.run)
    return [Section("Disaggregated prefill and decode", facts, tables, charts)]


def verdict(plan: Plan) -> str:
    """Return in a sentence whether disaggregation pays; empty: not asked."""
    worth, disaggregated = plan.disaggregation, plan.best_disaggregated
    if worth is None:
        return ""
    if disaggregated is None:
        return "Disaggregation does not pay: no two pools hold the SLO."
    if worth.gpu_count_saved is None:
        return "Disaggregation pays: nothing holds the SLO without it."
    by = _difference(worth.gpu_count_saved)
    if worth.usd_per_h_saved is not None:
        by += f", {_usd_difference(worth.usd_per_h_saved)}"
    pays = "pays" if worth.pays else "does not pay"
    if worth.gpu_count_saved > 0 and worth.usd_per_h_saved == 0:
        pays = "takes less"  # whole nodes cost the same with more of one left empty
    return f"Disaggregation {pays}: {by}."


def _difference(saved: int) -> str:
    if saved == 0:
        return "as many GPUs"
    return f"{sentences.plural(abs(saved), 'GPU')} {'fewer' if saved > 0 else 'more'}"


def _usd_difference(saved: float) -> str:
    if abs(saved) < 0.005:
        return "for the same money"
    return f"{format_fine_usd(abs(saved))} per hour {'less' if saved > 0 else 'more'}"


def _kind(row: Candidate) -> str:
    return "disaggregated" if row.pools else "aggregated"


_KINDS = fields("disaggregated", **{"prompts and decoding": _kind})
_POOLS = fields("disaggregated_pool")


def one_fewer(disaggregated: Candidate) -> str:
    """Return how pools do with one replica fewer, and which are too close."""
    probes = {probe.pool_replica_counts: probe for probe in disaggregated.probes}
    counts = tuple(pool.replica_count or 0 for pool in disaggregated.pools)
    texts = [
        f"{_replicas(fewer)}: {sentences.missed(probes[fewer])}."
        for fewer in counts_below(counts)
        if fewer in probes
    ]
    if disaggregated.close:
        close = "; ".join(_replicas(each) for each in disaggregated.close)
        texts.append(f"Too close to the target to call: {close}.")
    return " ".join(texts)


def _replicas(counts: Sequence[int]) -> str:
    prompts, decoding = counts
    return f"{prompts:,} for prompts and {decoding:,} for decoding"
