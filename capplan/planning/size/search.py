"""Compare GPU types and TP degrees by throughput per GPU, without a simulation.

Aladdin, section 4.1, Eq. 5 and 6.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError, collected_warnings
from capplan.latency.contract import LatencyTables
from capplan.planning.configure.configuration import configurations
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.pipeline import refuse_stages
from capplan.planning.load.traffic import read_requests
from capplan.planning.money.cost import per_million, usd_per_replica_h
from capplan.planning.settings.plan import SearchSettings
from capplan.planning.shown import Shown
from capplan.units import format_duration


@dataclass(frozen=True, eq=False)
class TpOption:
    """One GPU type and TP degree that could serve."""

    gpu: str
    tp: int  # GPUs of a replica
    tables: LatencyTables  # of a replica; they reach to the largest batch allowed
    kv_capacity_tokens: int  # of a replica [tokens]
    max_num_seqs: int | None = None  # largest batch; None: end of the tables [requests]
    usd_per_h: float | None = None  # of a replica; None when not known [$/h]

    @property
    def max_batch(self) -> int:
        """Largest batch that can be asked of the tables. [requests]"""
        last = len(self.tables.decode_s) - 1
        return last if self.max_num_seqs is None else min(last, self.max_num_seqs)

    def decode_s(self, batch: ArrayLike, context_tokens: float) -> np.ndarray:
        """Return the time of decode iterations at a mean context. [s]"""
        b = np.asarray(batch)
        return (
            self.tables.decode_s[b]
            + self.tables.decode_context_s[b] * b * context_tokens
        )


@dataclass(frozen=True)
class TpRow:
    """Throughput of one option."""

    gpu: str
    tp: int  # GPUs of a replica
    kv_batch: int  # requests whose KV fits at their mean context, M / m_r
    kv_tokens_per_s_per_gpu: float = 0.0  # KV cache full, left side of Eq. 6 [tokens/s]
    tpot_batch: int = 0  # largest whose iteration keeps the TPOT SLO, B [requests]
    tpot_tokens_per_s_per_gpu: float = 0.0  # there, right side of Eq. 6 [tokens/s]
    tokens_per_s_per_gpu: float = 0.0  # the smaller; 0 when it cannot serve [tokens/s]
    batch: int = 0  # at which it is reached [requests]
    # decode iteration of that batch; NaN when it cannot serve [s]
    iteration_s: float = math.nan
    binding: str = ""  # "KV", "TPOT" or "max_num_seqs"; empty when it cannot serve
    # of nodes that only decode, at that batch all the time; None without a price [$]
    saturated_usd_per_million_output_tokens: float | None = None
    infeasible_reason: str | None = None  # None when it can serve


@dataclass(frozen=True)
class TpSearch:
    """The options compared and the choice."""

    rows: tuple[TpRow, ...]  # one per option, in the order given
    best: TpRow | None  # most throughput per GPU; None when none can serve
    # cheapest output token; None when none that can serve has a price
    best_by_usd: TpRow | None
    best_by_gpu: dict[str, TpRow]  # of each GPU type
    reason: str  # why it is the best
    context_tokens: float  # mean, compared at [tokens]
    slo_tpot_s: float  # compared at [s]


def mean_context_tokens(prompt_tokens: ArrayLike, output_tokens: ArrayLike) -> float:
    """Return the mean context of a request in the running batch (m_r). [tokens]

    A request stays for as many iterations as it has output tokens and its context
    grows by one in each, so long outputs are in the batch more often than short ones.

    Examples
    --------
    >>> mean_context_tokens(100, 21)
    111.0
    """
    prompt = np.asarray(prompt_tokens, np.float64)
    output = np.asarray(output_tokens, np.float64)
    return float((output * (prompt + (output + 1) / 2)).sum() / output.sum())


def search_tp(
    options: Sequence[TpOption], *, context_tokens: float, slo_tpot_s: float
) -> TpSearch:
    """Return the throughput per GPU of each option, and the best (Aladdin, Eq. 6).

    ``T_max = min{M / (N_g m_r t_d), B / (N_g T_dec)}``, with N_g ``tp``, M
    ``kv_capacity_tokens``, m_r ``context_tokens``, t_d the decode iteration at batch M
    / m_r, T_dec ``slo_tpot_s`` and B the largest batch that keeps it. Where we differ:
    batches are whole; an engine runs at most ``max_num_seqs`` requests, which is a
    third bound; and what binds is told by the smaller batch, so a step in the iteration
    time cannot choose a batch that breaks the SLO. ``context_tokens`` is as of
    :func:`mean_context_tokens`; ``slo_tpot_s`` may be infinite [s].
    """
    if not options:
        raise InputError("no GPU and TP degree to compare; expected at least one")
    rows = tuple(_row(option, context_tokens, slo_tpot_s) for option in options)
    able = [row for row in rows if row.infeasible_reason is None]
    best_by_gpu: dict[str, TpRow] = {}
    for row in sorted(able, key=_rank, reverse=True):
        best_by_gpu.setdefault(row.gpu, row)
    best = max(able, key=_rank, default=None)
    priced = [
        row for row in able if row.saturated_usd_per_million_output_tokens is not None
    ]
    return TpSearch(
        rows=rows,
        best=best,
        best_by_usd=min(
            priced,
            key=lambda row: (row.saturated_usd_per_million_output_tokens, row.tp),
            default=None,
        ),
        best_by_gpu=best_by_gpu,
        reason=_reason(rows, best),
        context_tokens=context_tokens,
        slo_tpot_s=slo_tpot_s,
    )


def _rank(row: TpRow) -> tuple[float, int]:
    return row.tokens_per_s_per_gpu, -row.tp


def _row(option: TpOption, context_tokens: float, slo_tpot_s: float) -> TpRow:
    kv_batch = int(option.kv_capacity_tokens // context_tokens)
    batches = np.arange(1, option.max_batch + 1)
    keeps = np.flatnonzero(option.decode_s(batches, context_tokens) <= slo_tpot_s)
    tpot_batch = int(batches[keeps[-1]]) if len(keeps) else 0
    row = TpRow(option.gpu, option.tp, kv_batch, tpot_batch=tpot_batch)
    if not kv_batch or not tpot_batch:
        reason = _cannot_serve(option, kv_batch, context_tokens, slo_tpot_s)
        return replace(row, infeasible_reason=reason)

    kv_run = min(kv_batch, option.max_batch)
    kv_s = float(option.decode_s(kv_run, context_tokens))
    kv_throughput = kv_run / (option.tp * kv_s)
    at_end = tpot_batch == option.max_batch
    tpot_s = (
        float(option.decode_s(tpot_batch, context_tokens)) if at_end else slo_tpot_s
    )
    tpot_throughput = tpot_batch / (option.tp * tpot_s)
    if kv_batch < tpot_batch or (at_end and kv_batch == tpot_batch):
        binding, batch = "KV", kv_run
        throughput = min(kv_throughput, tpot_throughput)
    else:
        binding = "max_num_seqs" if at_end else "TPOT"
        batch, throughput = tpot_batch, tpot_throughput
    line = None
    if option.usd_per_h is not None:
        line = per_million("output", throughput * option.tp, option.usd_per_h)
    return replace(
        row,
        kv_tokens_per_s_per_gpu=kv_throughput,
        tpot_tokens_per_s_per_gpu=tpot_throughput,
        tokens_per_s_per_gpu=throughput,
        batch=batch,
        iteration_s=float(option.decode_s(batch, context_tokens)),
        binding=binding,
        saturated_usd_per_million_output_tokens=line.amount_usd if line else None,
    )


def _cannot_serve(
    option: TpOption, kv_batch: int, context_tokens: float, slo_tpot_s: float
) -> str:
    if not kv_batch:
        return (
            f"a request holds {context_tokens:,.0f} tokens on average, "
            f"the replica {option.kv_capacity_tokens:,}"
        )
    alone = format_duration(float(option.decode_s(1, context_tokens)))
    return (
        f"one request alone takes {alone} per output token, "
        f"the SLO is {format_duration(slo_tpot_s)}"
    )


def _reason(rows: tuple[TpRow, ...], best: TpRow | None) -> str:
    if best is None:
        reasons = {f"{row.gpu} TP {row.tp}: {row.infeasible_reason}" for row in rows}
        return "none can serve: " + "; ".join(sorted(reasons))
    text = (
        f"{best.gpu} TP {best.tp} makes {best.tokens_per_s_per_gpu:,.0f} output "
        f"tokens/s per GPU, limited by {best.binding} at a batch of {best.batch}"
    )
    others = [row for row in rows if row is not best and not row.infeasible_reason]
    if others:
        second = max(others, key=_rank)
        more = best.tokens_per_s_per_gpu / second.tokens_per_s_per_gpu - 1
        text += (
            f"; {100 * more:.0f} % more than {second.gpu} TP {second.tp}, "
            f"limited by {second.binding}"
        )
    elif len(rows) > 1:
        text += "; no other can serve"
    return text


@dataclass(frozen=True, eq=False, repr=False)
class Search(Shown):
    """GPU types and TP degrees compared."""

    llm: str
    trace_source: str  # of the lengths
    found: TpSearch  # Aladdin, Eq. 5 and 6
    excluded: tuple[Excluded, ...]  # could not be tried, and why
    profile_notes: dict[str, str]  # on each iteration time used, by "GPU TP k"
    warnings: tuple[str, ...] = ()  # for the reader


def search(settings: SearchSettings) -> Search:
    """Return the throughput per GPU of every GPU type and TP degree in the settings.

    The lengths are those of the workload; its rate does not matter. With SLOs by
    class, the strictest TPOT holds for all.
    """
    with collected_warnings() as texts:
        trace = read_requests(settings)
        refuse_stages(settings, "search")
        tried = list(configurations(settings))
        able = [row for row in tried if isinstance(row, Configuration)]
        slo = settings.slo_of_requests()
        context_tokens = mean_context_tokens(trace.prompt_tokens, trace.output_tokens)
        found = search_tp(
            [_option(configuration, context_tokens) for configuration in able],
            context_tokens=context_tokens,
            slo_tpot_s=np.inf if slo is None else slo.strictest().mean_gap_s,
        )
    return Search(
        llm=str(settings.llm),
        trace_source=trace.source,
        found=found,
        excluded=tuple(row for row in tried if isinstance(row, Excluded)),
        profile_notes={f"{row.gpu} TP {row.tp}": row.note for row in able},
        warnings=tuple(texts),
    )


def _option(configuration: Configuration, context_tokens: float) -> TpOption:
    return TpOption(
        configuration.gpu,
        configuration.tp,
        configuration.tables,
        configuration.engine.capacity_at(context_tokens),
        configuration.engine.max_num_seqs,
        usd_per_replica_h(configuration),
    )
