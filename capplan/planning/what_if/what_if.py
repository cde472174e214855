"""What if the traffic, the objective or the LLM were another: a plan for each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError, collected_warnings
from capplan.latency.contract import LatencyTables
from capplan.llm.catalog import llm as find_llm
from capplan.planning.configure.configuration import configurations
from capplan.planning.configure.excluded import Excluded
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import executor
from capplan.planning.evaluate.inputs import (
    PlanInputs,
    Progress,
    part_of,
    plan_inputs,
    unseen,
)
from capplan.planning.evaluate.known_runs import KnownRuns, digest
from capplan.planning.load.traffic import read_requests
from capplan.planning.plan.api_bill import api_bill
from capplan.planning.plan.plan import plan
from capplan.planning.plan.planned import planned
from capplan.planning.plan.result import NOT_IN_THE_RESULT, Plan
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.shown import Shown
from capplan.planning.size.cautions import largest_of_alike
from capplan.planning.what_if.settings import WhatIfSettings
from capplan.planning.what_if.variations import Scenario, varied
from capplan.simulator.fleet.fleet import Stopped
from capplan.workload.trace import Trace

_NOT_OF_CONFIGURATIONS = {
    "rate",
    "scale",
    "attainment",
    "slo",
    "users",
    "sessions",
    "arrivals",
}
"""Settings on which no configuration depends."""
_OF_OBJECTIVES = {"attainment", "slo-scale"}
"""Variations that are about the same requests."""
_OF_TRAFFIC = {"rate", "scale"}
"""Variations of how much there is of them."""
_OF_MONEY = {"kind", "provider", "region"}
"""Variations of what is paid for the same fleet."""
_OF_MIX = ("prompt_tokens", "output_tokens", "prefix_tokens")
"""Columns on which the load that a replica sustains depends."""
_BEFORE = "not planned before Ctrl-C"
_WAVE = 8
"""Cells planned side by side, as far as there are workers."""

Hint = tuple[dict[str, str], tuple[str, str]]
"""Values of a cell, and GPU type and layout of its best."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One plan of a what-if."""

    values: dict[str, str]  # of what is varied, as given
    status: str  # "feasible", "infeasible", "refused" or "interrupted"
    settings: PlanSettings
    plan: Plan | None = None  # None where it was refused, or not begun
    reason: str = ""  # why it is not feasible
    warnings: tuple[str, ...] = ()

    @property
    def llm(self) -> str:
        """The LLM that it is of."""
        return str(self.settings.llm)

    @property
    def best(self) -> Candidate | None:
        """The best candidate; None unless feasible."""
        return None if self.plan is None else self.plan.best

    @property
    def usd_per_request(self) -> float | None:
        """What an hour costs over the requests that it serves; None unknown. [$]"""
        best = self.best
        if best is None or best.cost is None or best.run is None:
            return None
        per_h = 3600 * best.run.simulation.totals.rate_per_s
        return best.cost.usd_per_h / per_h if per_h > 0 else None

    @property
    def api_usd_per_month(self) -> float | None:
        """What an API asks for its requests; None: not asked for. [$]"""
        found = None if self.plan is None else api_bill(self.plan, self.settings.api)
        return None if found is None else found.usd_per_month

    def __str__(self) -> str:
        return ", ".join(f"{name} {text}" for name, text in self.values.items())


@dataclass(frozen=True, eq=False, repr=False)
class WhatIf(Shown):
    """Plans that differ in a few settings, in the order of their values."""

    cells: tuple[Cell, ...]
    vary: dict[str, tuple[str, ...]]  # what is varied, the slowest to change first
    trace_source: str
    seed: int  # of the draws of all cells
    warnings: tuple[str, ...] = ()
    interrupted: bool = False
    shared_runs: int = 0  # simulations that another cell had run already
    settings: dict[str, Any] = field(default_factory=dict)  # enough to do it again


def what_if(
    settings: WhatIfSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> WhatIf:
    """Return the best candidate of a plan for each combination of the varied settings.

    Each is what :func:`capplan.planning.plan.plan.plan` finds with these settings: all
    draw from the same seed, so that a difference is none of chance. When ``stopped``
    says so, the cells that were done by then have their plans.
    """
    settings = settings.dated()
    show = progress or unseen
    with collected_warnings() as general:
        show("reading the requests")
        scenario = Scenario(settings.of_plan(), read_requests(settings))
        cells = [
            Cell(values, "interrupted", varied(scenario, values), reason=_BEFORE)
            for values in settings.values()
        ]
        _check(cells)
        local = settings.executor == "local"  # elsewhere Ctrl-C cannot be seen
        shared = _Shared(scenario.requests, stopped if local else None)
        done = 0
        with executor(settings.executor, settings.ray_address) as workers:
            for wave in _waves(cells):
                shared.hints = _hints(cells)
                if local:
                    _plan_here(shared, cells, enumerate(wave, done), show)
                else:
                    show(f"{len(wave)} plans side by side", done / len(cells))
                    of = scenario.requests, shared.hints
                    planned = workers(_planned_there, of, [cells[i] for i in wave])
                    for index, cell in zip(wave, planned, strict=True):
                        cells[index] = cell
                done += len(wave)
    _refuse_if_all_are(cells)
    return WhatIf(
        tuple(cells),
        settings.varied(),
        scenario.requests.source,
        settings.seed,
        warnings=(*general, *_of_cells(cells)),
        interrupted=shared.is_stopped(),
        shared_runs=shared.runs.found,
        settings=settings.document(NOT_IN_THE_RESULT),
    )


def plan_each(
    settings: PlanSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> WhatIf:
    """Return a whole plan for each LLM of the settings, of the same requests.

    When ``stopped`` says so, the plans that were done by then are returned.
    """
    settings = settings.dated()
    names = settings.llms
    cells = [
        Cell({"llm": name}, "interrupted", asked, reason=_BEFORE)
        for name, asked in ((n, settings.model_copy(update={"llm": n})) for n in names)
    ]
    _check(cells)
    with_load = settings.out is not None  # as the plan of one LLM has it
    is_stopped = False
    for index, cell in enumerate(cells):
        if is_stopped:
            break
        step = _step(progress or unseen, cell, index, len(cells))
        try:
            found = plan(cell.settings, step, stopped, with_load=with_load)
        except InputError as error:
            cells[index] = replace(cell, status="refused", reason=str(error))
            continue
        cells[index] = _with_plan(cell, found, found.warnings)
        is_stopped = found.interrupted or bool(stopped and stopped())
    _refuse_if_all_are(cells)
    source = next(cell.plan.trace_source for cell in cells if cell.plan is not None)
    return WhatIf(
        tuple(cells),
        {"llm": names},
        source,
        settings.seed,
        warnings=tuple(_of_cells(cells)),
        interrupted=is_stopped,
        settings=settings.document(NOT_IN_THE_RESULT),
    )


def _with_plan(cell: Cell, plan: Plan, texts: Sequence[str]) -> Cell:
    reason = plan.infeasible_reason or ""
    return replace(
        cell, status=plan.status, plan=plan, reason=reason, warnings=tuple(texts)
    )


def _refuse_if_all_are(cells: Sequence[Cell]) -> None:
    refused = [cell.reason for cell in cells if cell.status == "refused"]
    if len(refused) == len(cells):
        raise InputError(refused[0])


def _step(show: Progress, cell: Cell, done: int, count: int) -> Progress:
    """Return what shows the steps of a cell."""
    return part_of(show, done, count, f"{cell} ({done + 1} of {count}): ")


def _check(cells: Sequence[Cell]) -> None:
    """Refuse what no plan would take, before the first one."""
    for cell in cells:
        if cell.settings.llm is None:
            raise InputError("no LLM; give --llm NAME")
        if cell.settings.objective() is None:
            raise InputError("no SLO; give --slo such as ttft=1s,tpot=30ms")
    for name in dict.fromkeys(str(cell.settings.llm) for cell in cells):
        find_llm(name)


def _waves(cells: Sequence[Cell]) -> list[list[int]]:
    """Return the order in which cells are planned, those of a wave side by side.

    The first one, and then each wave, show which configuration is likely the best of
    those after it. Waves are the same wherever cells are planned, and so are hints.
    """
    order = sorted(range(len(cells)), key=lambda index: _traffic(cells[index]))
    return [order[:1], *(order[i : i + _WAVE] for i in range(1, len(order), _WAVE))]


def _hints(cells: Sequence[Cell]) -> list[Hint]:
    """Return the values and the best of cells that were planned, the last first."""
    return [
        (cell.values, cell.best.key)
        for cell in reversed(cells)
        if cell.best is not None and not (cell.best.pools or cell.best.is_in_doubt)
    ]


def _traffic(cell: Cell) -> tuple[str, float]:
    """Return what cells share that are about the same requests."""
    amount = cell.settings.rate or cell.settings.scale or 1.0
    left_out = _OF_OBJECTIVES | _OF_TRAFFIC | _OF_MONEY
    return str([row for row in cell.values.items() if row[0] not in left_out]), amount


class _Shared:
    """What plans of a what-if share: requests, configurations and simulations."""

    def __init__(self, read: Trace, stopped: Stopped | None) -> None:
        self.runs = KnownRuns()
        self._read, self._stopped = read, stopped
        self._tried: dict[str, list[Configuration | Excluded]] = {}
        self._tables: dict[tuple[bytes, ...], LatencyTables] = {}
        self._saturations: dict[bytes, dict[Any, Any]] = {}
        self.hints: list[Hint] = []  # of cells before the wave
        self._traffic: tuple[str, float] | None = None

    def is_stopped(self) -> bool:
        """Return whether to answer with the cells that are done."""
        return self._stopped is not None and self._stopped()

    def planned(self, cell: Cell, progress: Progress) -> Cell:
        """Return a cell with its plan, or why there is none."""
        if _traffic(cell) != self._traffic:  # no simulation is of its requests
            self.runs.forget()
            self._traffic = _traffic(cell)
        with collected_warnings() as texts:
            try:
                plan = self._plan(cell, progress)
            except InputError as error:
                return replace(cell, status="refused", reason=str(error))
        return _with_plan(cell, plan, texts)

    def _plan(self, cell: Cell, progress: Progress) -> Plan:
        inputs, tried = self._inputs(cell.settings)
        likely = self._likely(cell, tried)
        plan = planned(replace(inputs, likely=likely), tried, progress)
        if likely is None or plan.interrupted or _is_clear(plan):
            return plan
        # Which one is best may depend on which was simulated first.
        return planned(inputs, tried, progress)

    def _inputs(
        self, settings: PlanSettings
    ) -> tuple[PlanInputs, list[Configuration | Excluded]]:
        key = settings.model_dump_json(exclude=_NOT_OF_CONFIGURATIONS)
        if key not in self._tried:
            self._tried[key] = list(map(self._as_known, configurations(settings)))
        inputs, tried = plan_inputs(settings, tried=self._tried[key], read=self._read)
        mix = digest(inputs.load.base, _OF_MIX)
        known = self._saturations.setdefault(mix, {})
        return replace(
            inputs,
            load=replace(inputs.load, saturations=known),
            stopped=self._stopped,
            best_only=True,
            simulate_with=self.runs,
        ), tried

    def _as_known(self, row: Configuration | Excluded) -> Configuration | Excluded:
        """Return a configuration with the tables of one that is as fast.

        Simulations are known again by them, where what is paid is all that differs.
        """
        if isinstance(row, Excluded):
            return row
        key = tuple(np.asarray(each).tobytes() for each in row.tables)
        return replace(row, tables=self._tables.setdefault(key, row.tables))

    def _likely(
        self, cell: Cell, tried: list[Configuration | Excluded]
    ) -> tuple[str, str] | None:
        """Return GPU type and layout of the best of the cell most like this one."""
        known = {row.key for row in tried}
        like = sorted(self.hints, key=lambda hint: _differences(cell.values, hint[0]))
        return next((key for _, key in like if key in known), None)


def _plan_here(
    shared: _Shared, cells: list[Cell], wave: Iterable[tuple[int, int]], show: Progress
) -> None:
    """Plan cells until it is to stop: how many are done, and which is next."""
    for done, index in wave:
        if shared.is_stopped():
            break
        step = _step(show, cells[index], done, len(cells))
        cells[index] = shared.planned(cells[index], step)


def _planned_there(shared: tuple[Trace, list[Hint]], cell: Cell) -> Cell:
    """Return a cell with its plan, on the worker of a cluster."""
    of = _Shared(shared[0], None)
    of.hints = shared[1]
    here = cell.settings.model_copy(update={"executor": "local", "ray_address": None})
    found = of.planned(replace(cell, settings=here), unseen)
    return replace(found, settings=cell.settings)


def _differences(values: dict[str, str], other: dict[str, str]) -> tuple[int, int]:
    """Return how many values of two cells differ, those of the traffic last."""
    names = [name for name in values if values[name] != other[name]]
    return len({*names} - _OF_TRAFFIC), len(names)


def _is_clear(plan: Plan) -> bool:
    """Return whether a plan is the same whichever candidate is simulated first.

    It is decided that the best one meets the SLO, and that the others do not with as
    few replicas as would make them the best.
    """
    best = plan.best
    if best is None or best.run is None or not best.run.judgement.meets:
        return False
    return not any(row.too_close for row in plan.candidates if row.status == "pruned")


def _of_cells(cells: Sequence[Cell]) -> list[str]:
    """Return the warnings of cells, each once with the cells that it is of.

    Of those that differ in their numbers only, the one with the largest.
    """
    begun = [cell for cell in cells if cell.plan is not None]
    names: dict[str, list[Cell]] = {}
    for cell in begun:
        for text in largest_of_alike(cell.warnings):
            names.setdefault(text, []).append(cell)
    told = []
    for text in largest_of_alike(names):
        of = names[text]
        where = "" if len(of) == len(begun) else f"{of[0]}: "
        if 1 < len(of) < len(begun):
            where = f"{len(of)} of {len(begun)} plans: "
        told.append(f"{where}{text}")
    return told
