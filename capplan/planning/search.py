"""Compare GPU types and TP degrees by throughput per GPU, without a simulation."""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from capplan.errors import CapplanWarning
from capplan.planning.configuration import Configuration, Excluded, configurations
from capplan.planning.settings import PlanSettings
from capplan.planning.tp_search import (
    TpOption,
    TpSearch,
    mean_context_tokens,
    search_tp,
)
from capplan.planning.traffic import read_requests
from capplan.workload.slo import parse_slo


@dataclass(frozen=True, eq=False)
class Search:
    """The comparison, what it was made for and what could not be compared.

    Parameters
    ----------
    llm
        Model served.
    trace_source
        Where the lengths come from.
    found
        The comparison (Aladdin, Eq. 5 and 6).
    excluded
        GPU types and TP degrees that could not be tried, and why.
    profile_notes
        One sentence on each iteration time used, by "GPU TP k".
    warnings
        What to know of it.
    """

    llm: str
    trace_source: str
    found: TpSearch
    excluded: tuple[Excluded, ...]
    profile_notes: dict[str, str]
    warnings: tuple[str, ...] = ()


def search(request: PlanSettings) -> Search:
    """Return the throughput per GPU of every GPU type and TP degree asked for.

    The lengths are those of the workload; its rate does not matter. With SLOs by
    class, the strictest TPOT holds for all.

    Raises
    ------
    InputError
        When something asked for is wrong or missing, or nothing can be compared.
    ProfileError
        When a profile is malformed or of something else.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CapplanWarning)
        answer = _search(request)
    texts = dict.fromkeys(
        str(each.message)
        for each in caught
        if issubclass(each.category, CapplanWarning)
    )
    return replace(answer, warnings=tuple(texts))


def _search(request: PlanSettings) -> Search:
    any_rate = request.model_copy(update={"rate": request.rate or 1.0})
    trace, _ = read_requests(any_rate, np.random.default_rng(request.seed))
    tried = list(configurations(request))
    able = [one for one in tried if isinstance(one, Configuration)]
    found = search_tp(
        [_option(one) for one in able],
        context_tokens=mean_context_tokens(trace.prompt_tokens, trace.output_tokens),
        slo_tpot_s=_strictest_tpot_s(request),
    )
    return Search(
        llm=str(request.llm),
        trace_source=trace.source,
        found=found,
        excluded=tuple(one for one in tried if isinstance(one, Excluded)),
        profile_notes={f"{one.gpu} TP {one.tp}": one.note for one in able},
    )


def _option(one: Configuration) -> TpOption:
    return TpOption(
        one.gpu,
        one.tp,
        one.tables,
        one.engine.kv_capacity_tokens,
        one.engine.max_num_seqs,
        None if one.price is None else one.price.usd_per_gpu_h,
    )


def _strictest_tpot_s(request: PlanSettings) -> float:
    if not request.slo:
        return float("inf")
    slo = parse_slo(list(request.slo), request.attainment)
    limits = [*slo.by_class.values(), *([slo.default] if slo.default else [])]
    return min(each.tpot_s for each in limits)
