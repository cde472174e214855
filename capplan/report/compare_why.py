"""Why one system needs fewer GPUs than another: what limits each, and how far."""

import numpy as np

from capplan.planning.compare.compare import Comparison
from capplan.planning.compare.system_price import SystemResult
from capplan.planning.evaluate.candidate import Candidate
from capplan.report import sentences
from capplan.report.columns import format_count, format_load, plural
from capplan.report.compare_answer import able, price, winners
from capplan.report.page import Fact
from capplan.report.pages.disaggregated import one_fewer


def compare_why(comparison: Comparison) -> list[Fact]:
    """Return what limits the cheapest system and the dearest, and what they carry."""
    first = winners(comparison)[:1]
    others = [row for row in able(comparison) if row not in first]
    others.sort(key=lambda row: (price(row), -(row.most or 0.0)))
    rows = [*first, *others[-1:]]
    needs = [_needs(row.name, row.candidate) for row in rows if row.candidate]
    return [*needs, ("on the same GPUs", ", ".join(_carried(comparison, rows)))]


def _needs(name: str, best: Candidate) -> Fact:
    limit = sentences.limited(best.binding or "")
    fewer = one_fewer(best) if best.pools else sentences.proof(best)
    texts = (f"limited by {limit}" if limit else "", fewer.rstrip("."), _used(best))
    label = f"{name} needs {plural(best.gpu_count or 0, 'GPU')}"
    return label, "; ".join(filter(None, texts))


def _used(best: Candidate) -> str:
    """Return the seats and the KV memory that are taken where most of them are."""
    run = best.run
    if run is None or best.pools:
        return ""
    series, seats = run.simulation.series, run.configuration.engine.max_num_seqs
    taken = format_count(round(float(np.nanmax(series.batch_requests, initial=0.0))))
    kv = format_load(float(np.nanmax(series.kv_share, initial=0.0)))
    count = plural(run.replica_count, "replica")
    text = f"{count}: up to {taken} of {format_count(seats)} seats, {kv} of KV memory"
    preempted = int(np.nansum(series.preemptions))
    return f"{text}; {plural(preempted, 'preemption')}" if preempted else text


def _carried(comparison: Comparison, rows: list[SystemResult]) -> list[str]:
    """Return what each carries, the second as a share of the first, and what binds."""
    unit = "requests/s" if comparison.asked_by is None else "users"
    texts = []
    for row in rows:
        if row.most is None:
            continue
        text = f"{row.name} carries {format_count(row.most)} {unit}"
        if row is not rows[0] and (first := rows[0].most):
            text += f", {format_load(row.most / first)} of that"
        texts.append(
            text + f" ({row.binding_setting} binds)" * bool(row.binding_setting)
        )
    return texts
