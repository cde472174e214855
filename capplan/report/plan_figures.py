"""Figures of a plan.json that two plans are compared by, checked as they are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from capplan.bounds.certificate import is_as_sealed
from capplan.deployment.pools import DECODE, PREFILL
from capplan.errors import InputError
from capplan.llm.layout import parse_layout
from capplan.planning.cost import HOURS_PER_MONTH
from capplan.report.plan_document import plan_path, read_plan

_LONGEST = 120
"""Characters of a text of the file that are shown."""

_LARGEST = 1e12
"""Number that a plan may hold: sums of its cents are exact."""
_PROFILE = ("latency_source", "times_of", "profile_note", "latency_error", "kv_dtype")


@dataclass(frozen=True)
class PoolFigures:
    """One pool of a candidate: replicas that do the same."""

    gpu: str
    tp: int
    role: str  # "prefill", "decode"; empty where one pool does both
    replica_count: int
    gpu_count: int  # in use
    gpus_paid: float  # with its share of those that stand idle in its nodes
    # None where only a price per GPU is known, or pools share nodes
    node_count: int | None
    node: str  # provider, and what it calls the node; empty where not known
    usd_per_month: float | None  # None without a price
    price: Mapping[str, Any]  # as in the file; empty without one
    engine: Mapping[str, Any]
    profile: Mapping[str, Any]  # what its iteration times rest on
    layout: str  # of the GPUs of a replica

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity in two plans: GPU type, layout of a replica and role."""
        return self.gpu, self.layout, self.role

    @property
    def stranded_gpus(self) -> float:
        """GPUs that are paid and not used."""
        return self.gpus_paid - self.gpu_count

    def __str__(self) -> str:
        name = f"{self.gpu} × {self.layout}"
        return f"{name}, {self.role}" if self.role else name


@dataclass(frozen=True)
class CandidateFigures:
    """One configuration of a plan."""

    name: str
    status: str
    gpu_count: int | None  # None unless feasible
    usd_per_month: float | None  # None unless feasible and priced
    attained: float | None  # share of requests within the SLO
    lower_bound_gpu_count: int | None
    reason: str  # why it is not feasible
    node_count: int | None  # of all pools; None where one is priced by the GPU
    pools: tuple[PoolFigures, ...] = ()  # none unless feasible

    @property
    def answer(self) -> tuple[Any, ...]:
        """What makes it another answer when it differs."""
        pools = tuple((p.key, p.replica_count, p.gpus_paid) for p in self.pools)
        bound = self.lower_bound_gpu_count
        return self.status, pools, self.usd_per_month, self.attained, bound


@dataclass(frozen=True)
class PlanFigures:
    """A plan as far as another is compared with it."""

    path: str
    llm: str
    status: str
    asked: str  # share of requests that must meet the SLO
    best: CandidateFigures | None
    candidates: Mapping[str, CandidateFigures]  # by name
    document: Mapping[str, Any] = field(repr=False)
    is_spoiled: bool = False  # changed after it was sealed

    @property
    def usd_per_month(self) -> float | None:
        """Cost of the best candidate; None where there is none, or no price."""
        return None if self.best is None else self.best.usd_per_month


class _Place:
    """A value of a JSON file with the place where it lies, for messages."""

    def __init__(self, path: Path, value: Any, where: str = "") -> None:
        self.path, self.value, self.where = path, value, where

    def at(self, key: str) -> "_Place":
        """Return what an object has under a key; None where it has nothing."""
        inner = f"{self.where}.{key}" if self.where else key
        if not isinstance(self.value, Mapping):
            self.refuse("a JSON object")
        return _Place(self.path, self.value.get(key), inner)

    def rows(self) -> list["_Place"]:
        """Return the entries of a list; none where there is none."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.refuse("a list")
        return [
            _Place(self.path, row, f"{self.where}[{index}]")
            for index, row in enumerate(self.value)
        ]

    def refuse(self, expected: str) -> NoReturn:
        """Raise an InputError about the value."""
        found = str(self.value)[:40]
        raise InputError(
            f"{self.path}: {self.where} is {found!r}; expected {expected}, as capplan "
            "writes it"
        )

    def text(self) -> str:
        """Return a text; empty where there is none."""
        if self.value is not None and not isinstance(self.value, str):
            self.refuse("a text")
        return shortened(self.value or "")

    def known_text(self) -> str:
        """Return a text that must be there."""
        text = self.text()
        if not text:
            self.refuse("a text")
        return text

    def number(self) -> float | None:
        """Return a number >= 0; None where there is none."""
        value = self.value
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= _LARGEST:
            self.refuse(f"a number from 0 to {_LARGEST:g}")
        return float(value)

    def count(self) -> int | None:
        """Return a whole number >= 1; None where there is none."""
        value = self.number()
        if value is not None and (value < 1 or not value.is_integer()):
            self.refuse("a whole number >= 1")
        return None if value is None else int(value)

    def known_count(self) -> int:
        """Return a whole number >= 1 that must be there."""
        value = self.count()
        if value is None:
            self.refuse("a whole number >= 1")
        return value

    def object(self) -> Mapping[str, Any]:
        """Return an object; an empty one where there is none."""
        if self.value is not None and not isinstance(self.value, Mapping):
            self.refuse("a JSON object")
        return self.value or {}


def shortened(text: str) -> str:
    """Return a text on one line, without its end where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def plan_figures(path: Path) -> PlanFigures:
    """Return the figures of a plan file, or of the plan.json in a folder."""
    file = plan_path(path)
    document = read_plan(file)
    place = _Place(file, document)
    best = None if place.at("best").value is None else _candidate(place.at("best"))
    candidates: dict[str, CandidateFigures] = {}
    for row in place.at("candidates").rows():
        candidate = _candidate(row)
        if candidate.name in candidates:
            row.refuse(f"each configuration once ({candidate.name} stands twice)")
        candidates[candidate.name] = candidate
    certificate = place.at("certificate").object()
    return PlanFigures(
        path=str(file),
        llm=place.at("llm").text(),
        status=place.at("status").text(),
        asked=place.at("attainment_text").text(),
        best=best,
        candidates=candidates,
        document=document,
        is_spoiled=bool(certificate) and not is_as_sealed(document),
    )


def _candidate(place: _Place) -> CandidateFigures:
    status, pools = place.at("status").text(), place.at("pools").rows()
    is_served = status == "feasible"
    parts = ", ".join(f"{pool.at('role').text()} {_layout(pool)}" for pool in pools)
    name = f"{place.at('gpu').known_text()} × {parts or _layout(place)}"
    usd = place.at("usd_per_month").number()
    return CandidateFigures(
        name=name,
        status=status,
        gpu_count=place.at("gpu_count").count(),
        usd_per_month=usd,
        attained=place.at("slo_attainment").number(),
        lower_bound_gpu_count=place.at("lower_bound_gpu_count").count(),
        node_count=_node_count(place),
        reason=place.at("infeasible_reason").text() or place.at("pruned_reason").text(),
        pools=_pools(place, usd) if is_served else (),
    )


def _layout(place: _Place) -> str:
    """Return the layout of a replica; plans of an earlier release have TP alone."""
    name = place.at("layout").text() or f"tp{place.at('tp').known_count()}"
    try:
        return parse_layout(name).text
    except InputError:
        place.at("layout").refuse("a layout such as tp8 or dp8-ep8")


def _node_count(place: _Place) -> int | None:
    counts = [row.at("count").count() for row in place.at("nodes").rows()]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _pools(place: _Place, usd_per_month: float | None) -> tuple[PoolFigures, ...]:
    """Return the pools of a feasible candidate, each with its part of the cost.

    Nodes that pools share are divided by the GPUs in use.
    """
    rows, nodes = place.at("pools").rows(), place.at("nodes").rows()
    if not rows:
        (pool,) = _parts([_pool(place, "")], nodes)
        usd = pool.usd_per_month if usd_per_month is None else usd_per_month
        return (replace(pool, usd_per_month=usd),)
    pools = [_pool(row, row.at("role").text()) for row in rows]
    gpus = {pool.gpu for pool in pools}
    if len(gpus) == 1:  # they share nodes
        return _parts(pools, nodes)
    if len(nodes) == len(pools):  # an earlier release does not say of which GPU
        parts = [_parts([pool], [of]) for pool, of in zip(pools, nodes, strict=True)]
        return tuple(part for (part,) in parts)
    return tuple(
        part
        for pool in pools
        for part in _parts([pool], [n for n in nodes if n.at("gpu").text() == pool.gpu])
    )


def _parts(pools: list[PoolFigures], nodes: list[_Place]) -> tuple[PoolFigures, ...]:
    """Return pools with their parts of the nodes that they are on."""
    if not nodes:
        return tuple(pools)
    used, paid = sum(p.gpu_count for p in pools), 0.0
    hours: list[float | None] = []
    for row in nodes:
        paid += row.at("gpus_paid").number() or 0.0
        hours.append(row.at("usd_per_h").number())
    if paid < used:
        nodes[0].at("gpus_paid").refuse(f"at least the {used} GPUs in use")
    counts = [row.at("count").count() for row in nodes]
    hour = None if None in hours else sum(h or 0.0 for h in hours)
    count = None if None in counts else sum(c or 0 for c in counts)
    name = " + ".join(
        " ".join(filter(None, (row.at("provider").text(), row.at("node").text())))
        for row in nodes
    )
    return tuple(
        replace(
            pool,
            gpus_paid=paid * pool.gpu_count / used,
            node_count=count if len(pools) == 1 else None,
            node=name,
            usd_per_month=None
            if hour is None
            else hour * HOURS_PER_MONTH * pool.gpu_count / used,
        )
        for pool in pools
    )


def _pool(place: _Place, role: str) -> PoolFigures:
    """Return a pool whose GPUs are priced alone."""
    if role not in ("", PREFILL, DECODE):
        place.at("role").refuse(f"{PREFILL} or {DECODE}")
    gpu_count, price = place.at("gpu_count").known_count(), place.at("price")
    hour = price.at("usd_per_gpu_h").number() if price.value is not None else None
    return PoolFigures(
        gpu=place.at("gpu").known_text(),
        tp=place.at("tp").known_count(),
        role=role,
        replica_count=place.at("replica_count").known_count(),
        gpu_count=gpu_count,
        gpus_paid=gpu_count,
        node_count=None,
        node="",
        usd_per_month=None if hour is None else hour * gpu_count * HOURS_PER_MONTH,
        price=price.object(),
        engine=place.at("engine").object(),
        profile={name: place.object().get(name) for name in _PROFILE},
        layout=_layout(place),
    )
