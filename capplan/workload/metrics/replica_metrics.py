"""Metrics of one replica by quantity, at the times of its scrapes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.workload.metrics.names import CONFIGURATION, GAUGES, plain, quantity

_PARTS = ("_bucket", "_sum", "_count")
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of processes of one engine, which all state the same; the first counts."""
_PLACES = ("pod", "instance", "endpoint", "job")


class Series(NamedTuple):
    """One series as it was read."""

    name: str
    labels: Mapping[str, str]
    at_s: np.ndarray  # (m,) [s]
    values: np.ndarray  # (m,)


class Histogram(NamedTuple):
    """A histogram at each scrape since its engine began."""

    bounds: np.ndarray  # upper ones, the last infinite, (k,)
    counts: np.ndarray  # at or below each, (scrapes, k)
    sums: np.ndarray  # of all values, (scrapes,)


@dataclass(frozen=True, eq=False)
class ReplicaMetrics:
    """What one replica wrote down, NaN where a scrape has no value."""

    replica: str
    at_s: np.ndarray  # times of the scrapes, (scrapes,) [s]
    gauges: Mapping[str, np.ndarray]  # by quantity, (scrapes,)
    counters: Mapping[str, np.ndarray]  # since the engine began, (scrapes,)
    histograms: Mapping[str, Histogram]
    configuration: Mapping[str, str]  # labels of its KV cache; empty: not known
    is_summary: bool = False  # one window that another tool made, gauges its means
    model_name: str = ""  # by which the LLM is served; empty: not known

    @property
    def kv_tokens(self) -> int | None:
        """KV tokens of the replica; None where it does not say. [tokens]"""
        if (stated := self.gauges.get("kv_tokens")) is not None:
            return int(np.nanmax(stated))
        of = self.configuration
        try:
            return int(of["num_gpu_blocks"]) * int(of["block_size"])
        except (KeyError, ValueError):
            return None


def replica_metrics(
    series: Iterable[Series], source: str, model_name: str | None, *, summary: bool
) -> list[ReplicaMetrics]:
    """Return the metrics of each replica that has some, by its name.

    A replica is a pod or an address; engines behind one are added up.
    """
    by_place: dict[str, list[Series]] = {}
    models: set[str] = set()
    for each in series:
        name = plain(_base(each.name))
        is_used = name == CONFIGURATION or quantity(name, each.labels)
        if not is_used or any(each.labels.get(x, "0") not in ("", "0") for x in _RANKS):
            continue
        model = each.labels.get("model_name", "")
        if model and model_name not in (None, model):
            continue
        models |= {model} - {""}
        place = next((each.labels[x] for x in _PLACES if each.labels.get(x)), source)
        by_place.setdefault(place, []).append(each)
    if len(models) > 1:
        raise InputError(
            f"{source}: metrics of {', '.join(sorted(models))}; expected --model-name "
            "with one of them"
        )
    if not by_place:
        known = f" of {model_name}" if model_name else ""
        raise InputError(
            f"{source}: no series of vLLM or SGLang{known}; expected names as "
            "vllm:generation_tokens_total or sglang:generation_tokens_total"
        )
    name = next(iter(models), "")
    return [
        replace(_of(place, by_place[place], summary), model_name=name)
        for place in sorted(by_place)
    ]


def _base(name: str) -> str:
    """Return a name without the end of a histogram's parts."""
    part = next((part for part in _PARTS if name.endswith(part)), "")
    return name.removesuffix(part)


def _of(place: str, series: Sequence[Series], is_summary: bool) -> ReplicaMetrics:
    at_s = np.unique(np.concatenate([each.at_s for each in series]))
    configuration: dict[str, str] = {}
    parts: dict[str, dict[str, list[np.ndarray]]] = {}
    for each in series:
        name = _base(each.name)
        if plain(name) == CONFIGURATION:
            configuration |= each.labels
            continue
        values = np.full(len(at_s), np.nan)
        values[np.searchsorted(at_s, each.at_s)] = each.values
        part = each.name.removeprefix(name)
        key = each.labels.get("le", "") if part == "_bucket" else part
        what = quantity(plain(name), each.labels)
        parts.setdefault(what, {}).setdefault(key, []).append(values)
    gauges, counters, histograms = {}, {}, {}
    for what, of in parts.items():
        if what in GAUGES:
            shares = what == "kv_use"
            found = _sum(of[""])
            gauges[what] = found / len(of[""]) if shares else found
        elif "" in of:
            counters[what] = _sum(of[""])
        elif "_sum" in of and any(key not in _PARTS for key in of):
            histograms[what] = _histogram(of, place, what)
    return ReplicaMetrics(
        place, at_s, gauges, counters, histograms, configuration, is_summary
    )


def _sum(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of series; one that begins later was 0 before."""
    known = np.isfinite(columns)
    total = np.where(known, columns, 0.0).sum(axis=0)
    return np.asarray(np.where(known.any(axis=0), total, np.nan))


def _histogram(
    of: Mapping[str, Sequence[np.ndarray]], place: str, what: str
) -> Histogram:
    bounds = {float(key): key for key in of if key not in _PARTS}
    engines = {len(of[key]) for key in bounds.values()}
    if len(engines) > 1:
        raise InputError(
            f"{place}: engines have other buckets of {what} than each other, which "
            "cannot be added; expected one engine, or the same buckets"
        )
    if not np.isinf(max(bounds)):
        if "_count" not in of:
            raise InputError(
                f'{place}: buckets of {what} end at le="{max(bounds):g}"; expected '
                'le="+Inf" too'
            )
        bounds[np.inf] = "_count"
    ordered = sorted(bounds)
    counts = np.stack([_sum(of[bounds[bound]]) for bound in ordered], axis=1)
    return Histogram(np.array(ordered), counts, _sum(of["_sum"]))
