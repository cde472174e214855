"""Figures of a plan.json that two plans are compared by, checked as they are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from capplan.bounds.certificate import is_as_sealed
from capplan.errors import InputError, placed
from capplan.llm.layout import parse_layout
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.report.received.plan_document import plan_path, read_plan
from capplan.report.received.plan_record import Record, checked

_LONGEST = 120
"""Characters of a text of the file that are shown."""

_LARGEST = 10**12
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


def shortened(text: str) -> str:
    """Return a text on one line, without its end where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


_Text = Annotated[str, AfterValidator(shortened)]
_Name = Annotated[_Text, Field(min_length=1)]
_Number = Annotated[float, Field(ge=0, le=_LARGEST)]
_Whole = Annotated[int, Field(ge=1, le=_LARGEST)]
_Object = dict[str, Any]


class _Node(Record):
    gpu: _Text | None = None  # an earlier release does not say it
    provider: _Text | None = None
    node: _Text | None = None
    count: _Whole | None = None
    gpus_paid: _Number = 0.0
    usd_per_h: _Number | None = None


class _Candidate(Record):
    gpu: _Name
    status: _Text = ""
    layout: _Text | None = None  # an earlier release has TP alone
    tp: _Whole | None = None
    gpu_count: _Whole | None = None
    usd_per_month: _Number | None = None
    slo_attainment: _Number | None = None
    lower_bound_gpu_count: _Whole | None = None
    infeasible_reason: _Text | None = None
    pruned_reason: _Text | None = None
    nodes: list[_Node] | None = None
    pools: list[_Object] | None = None


class _Price(Record):
    usd_per_gpu_h: _Number | None = None


class _Pool(Record):
    role: Literal["", "prefill", "decode"] = ""
    gpu: _Name
    tp: _Whole
    layout: _Text | None = None
    replica_count: _Whole
    gpu_count: _Whole
    price: _Object | None = None
    engine: _Object | None = None


class _Plan(Record):
    llm: _Text | None = None
    status: _Text | None = None
    attainment_text: _Text | None = None
    best: _Object | None = None
    candidates: list[_Object] | None = None
    certificate: _Object | None = None


def plan_figures(path: Path) -> PlanFigures:
    """Return the figures of a plan file, or of the plan.json in a folder."""
    file = plan_path(path)
    document = read_plan(file)
    plan = checked(file, "", _Plan, document)
    best = None if plan.best is None else _candidate(file, "best.", plan.best)
    candidates: dict[str, CandidateFigures] = {}
    for index, row in enumerate(plan.candidates or ()):
        candidate = _candidate(file, f"candidates.{index}.", row)
        if candidate.name in candidates:
            raise InputError(
                f"{file}: {candidate.name} appears twice; expected it once"
            )
        candidates[candidate.name] = candidate
    return PlanFigures(
        path=str(file),
        llm=plan.llm or "",
        status=plan.status or "",
        asked=plan.attainment_text or "",
        best=best,
        candidates=candidates,
        document=document,
        is_spoiled=bool(plan.certificate) and not is_as_sealed(document),
    )


def _candidate(path: Path, where: str, values: _Object) -> CandidateFigures:
    row = checked(path, where, _Candidate, values)
    parts = ", ".join(
        f"{pool.get('role')} {_layout(path, pool.get('layout'), pool.get('tp'))}"
        for pool in row.pools or ()
    )
    counts = [node.count for node in row.nodes or ()]
    pools: tuple[PoolFigures, ...] = ()
    if row.status == "feasible":
        pools = _pools(path, where, row, values)
    return CandidateFigures(
        name=shortened(f"{row.gpu} × {parts or _layout(path, row.layout, row.tp)}"),
        status=row.status,
        gpu_count=row.gpu_count,
        usd_per_month=row.usd_per_month,
        attained=row.slo_attainment,
        lower_bound_gpu_count=row.lower_bound_gpu_count,
        node_count=None if None in counts else sum(n or 0 for n in counts) or None,
        reason=row.infeasible_reason or row.pruned_reason or "",
        pools=pools,
    )


def _layout(path: Path, layout: Any, tp: Any) -> str:
    """Return the layout of a replica; plans of an earlier release have TP alone."""
    with placed(path):
        return parse_layout(str(layout or f"tp{tp}")).text


def _pools(
    path: Path, where: str, row: _Candidate, values: _Object
) -> tuple[PoolFigures, ...]:
    """Return the pools of a feasible candidate, each with its part of the cost.

    Nodes that pools share are divided by the GPUs in use.
    """
    nodes = row.nodes or []
    if not row.pools:
        (pool,) = _parts(path, [_pool(path, where, {**values, "role": ""})], nodes)
        usd = row.usd_per_month
        return (pool if usd is None else replace(pool, usd_per_month=usd),)
    pools = [
        _pool(path, f"{where}pools.{index}.", each)
        for index, each in enumerate(row.pools)
    ]
    if len({pool.gpu for pool in pools}) == 1:  # they share nodes
        return _parts(path, pools, nodes)
    of_each = [[node for node in nodes if node.gpu == pool.gpu] for pool in pools]
    if len(nodes) == len(pools):  # an earlier release does not say of which GPU
        of_each = [[node] for node in nodes]
    return tuple(
        part
        for pool, of in zip(pools, of_each, strict=True)
        for part in _parts(path, [pool], of)
    )


def _parts(
    path: Path, pools: list[PoolFigures], nodes: list[_Node]
) -> tuple[PoolFigures, ...]:
    """Return pools with their parts of the nodes that they are on."""
    if not nodes:
        return tuple(pools)
    used, paid = sum(p.gpu_count for p in pools), sum(row.gpus_paid for row in nodes)
    if paid < used:
        raise InputError(
            f"{path}: its nodes have {paid:g} GPUs; expected at least the {used} GPUs "
            "in use"
        )
    hours = [row.usd_per_h for row in nodes]
    counts = [row.count for row in nodes]
    usd = None if None in hours else HOURS_PER_MONTH * sum(h or 0.0 for h in hours)
    count = None if None in counts else sum(c or 0 for c in counts)
    name = " + ".join(" ".join(filter(None, (row.provider, row.node))) for row in nodes)
    return tuple(
        replace(
            pool,
            gpus_paid=paid * pool.gpu_count / used,
            node_count=count if len(pools) == 1 else None,
            node=name,
            usd_per_month=None if usd is None else usd * pool.gpu_count / used,
        )
        for pool in pools
    )


def _pool(path: Path, where: str, values: _Object) -> PoolFigures:
    """Return a pool whose GPUs are priced alone."""
    pool = checked(path, where, _Pool, values)
    price = pool.price or {}
    hour = checked(path, f"{where}price.", _Price, price).usd_per_gpu_h
    return PoolFigures(
        gpu=pool.gpu,
        tp=pool.tp,
        role=pool.role,
        replica_count=pool.replica_count,
        gpu_count=pool.gpu_count,
        gpus_paid=pool.gpu_count,
        node_count=None,
        node="",
        usd_per_month=None if hour is None else hour * pool.gpu_count * HOURS_PER_MONTH,
        price=price,
        engine=pool.engine or {},
        profile={name: values.get(name) for name in _PROFILE},
        layout=_layout(path, pool.layout, pool.tp),
    )
