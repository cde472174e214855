"""Compare GPU types and TP degrees by throughput per GPU, without a simulation."""

from dataclasses import dataclass, replace

import numpy as np

from capplan.errors import collected_warnings
from capplan.planning.configuration import Configuration, Excluded, configurations
from capplan.planning.settings import SearchSettings
from capplan.planning.tp_search import (
    TpOption,
    TpSearch,
    mean_context_tokens,
    search_tp,
)
from capplan.planning.traffic import read_traffic
from capplan.workload.slo import parse_slo


@dataclass(frozen=True, eq=False)
class Search:
    """GPU types and TP degrees compared.

    Parameters
    ----------
    llm
        Model served.
    trace_source
        Source of the lengths.
    found
        The comparison (Aladdin, Eq. 5 and 6).
    excluded
        GPU types and TP degrees that could not be tried, and why.
    profile_notes
        One sentence on each iteration time used, by "GPU TP k".
    warnings
        Texts for the reader.
    """

    llm: str
    trace_source: str
    found: TpSearch
    excluded: tuple[Excluded, ...]
    profile_notes: dict[str, str]
    warnings: tuple[str, ...] = ()


def search(settings: SearchSettings) -> Search:
    """Return the throughput per GPU of every GPU type and TP degree in the settings.

    The lengths are those of the workload; its rate does not matter. With SLOs by
    class, the strictest TPOT holds for all.
    """
    with collected_warnings() as texts:
        result = _search(settings)
    return replace(result, warnings=tuple(texts))


def _search(settings: SearchSettings) -> Search:
    # Any rate does: the comparison is of a steady full batch.
    at_a_rate = settings.model_copy(update={"rate": 1.0})
    trace = read_traffic(at_a_rate, np.random.default_rng(settings.seed)).trace
    tried = list(configurations(settings))
    able = [row for row in tried if isinstance(row, Configuration)]
    slo = parse_slo(list(settings.slo)).strictest() if settings.slo else None
    comparison = search_tp(
        [_option(configuration) for configuration in able],
        context_tokens=mean_context_tokens(trace.prompt_tokens, trace.output_tokens),
        slo_tpot_s=np.inf if slo is None else slo.tpot_s,
    )
    return Search(
        llm=str(settings.llm),
        trace_source=trace.source,
        found=comparison,
        excluded=tuple(row for row in tried if isinstance(row, Excluded)),
        profile_notes={f"{row.gpu} TP {row.tp}": row.note for row in able},
    )


def _option(configuration: Configuration) -> TpOption:
    return TpOption(
        configuration.gpu,
        configuration.tp,
        configuration.tables,
        configuration.engine.kv_capacity_tokens,
        configuration.engine.max_num_seqs,
        None if configuration.price is None else configuration.price.usd_per_gpu_h,
    )
