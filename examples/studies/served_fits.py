"""Fit the rows of ``engine_times.yaml`` to sweeps; score each without its group.

A row that rests on one LLM names it, and serves it alone. One for a kind of LLM needs
three LLMs of two families; it is what an LLM without a row of its own gets, and each
family is predicted without its sweeps. A group is one LLM on one GPU type with one
version of an engine: a sweep is scored by the row of its LLM without its group, or
where none is left by that of its kind without its family.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from served_sets import DASHBOARD, DUMP, OLDER, OTHER_CLUSTER
from served_sweeps import FAMILIES, Sweep, base_of

from capplan.calibration.load_test import LoadTest
from capplan.calibration.sweep_fit import (
    NAMES,
    PRIOR_SPREAD,
    UNTOLD,
    Served,
    fit_engine_time,
)
from capplan.calibration.sweep_score import SweepScore, score
from capplan.engines.catalog import EngineName
from capplan.errors import InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.engine_rows import EngineRow, choose
from capplan.latency.engine_time import Basis, EngineTime
from capplan.latency.roofline import roofline_profile

PRIOR = EngineTime(
    source="",
    prefill_factor=1.2,
    iteration_s=6e-4,
    per_request_s=3e-5,
    request_s=0.02,
    prompt_token_s=6e-6,  # of long prompts, nearly all cached (accuracy.md)
)

SPREAD = (0.3, 1.0, *PRIOR_SPREAD[2:])
"""In the order of ``NAMES``: of the factors twice as wide as of a fit to one's own
tests, since ``PRIOR`` knows neither LLM nor GPU."""

FACTORS = {"decode_factor": (0.4, 4.0), "prefill_factor": (0.4, 4.0)}
"""Factors on kernels that an engine can have. One that the search finds beyond stands
for something else, such as a dtype that a GPU has no kernels for: it stays that of
``PRIOR``, and the times beside kernels hold the rest."""

MISFIT = 0.25
"""Of TPOT, in the median of its own load tests: from it on a row explains nothing of
what it rests on, and its LLM has none."""

_STEPS = (0.2, 0.4, 5e-4, 2e-5, 5e-3)
"""Of the factors, an iteration's time, a running request's and that of an iteration
with prefill, for slopes."""

ON_AMD = PRIOR.model_copy(
    update={"iteration_s": 1e-3, "per_request_s": 2e-5, "prefill_iteration_s": 1e-2}
)
AMD_SPREAD = (0.15, 0.5, 1e-3, 1e-5, 2e-2, 1.5e-2, 1e-5)
"""What rows of AMD's GPUs are drawn to, and as by which errors, in the order of
``NAMES``: no graph launches the kernels of an iteration with prompts there, and its
time is fitted. Of the rows of others one load test does not tell it."""

KERNELS = PRIOR.model_copy(update={"prefill_factor": 1.0})
"""What a row of experts begins at on measured kernels, whose factors stay at one: those
of one LLM mend its own tables, and are wrong for the next."""

FEWEST_LLMS, FEWEST_FAMILIES = 3, 2
"""LLMs and their families from which a row is of a kind."""

ERAS = ("0", "0.11", "0.14")
"""First versions of vLLM with a row of their own, for mixtures of experts with rows of
their own: the step is 0.11. Dense LLMs have one: their sweeps of newer versions are too
few."""


BLACKWELL_ERAS = ("0", "0.5.6")
"""First versions of SGLang on Blackwell with a row of their own: DeepSeek-R1 became a
fifth faster on B200 from the runs of 2025-10 to 0.5.6."""

AMD_ERAS = ("0", "0.5.10")
"""The same of SGLang on AMD's GPUs: from 0.5.9 to 0.5.12 DeepSeek-R1 became 1.5 times
as fast on MI300X."""

WHEN = {DUMP: "of 2026-07", DASHBOARD: "of 2025-10"}
"""In place of the version of an engine whose runs state the time alone."""

FEWEST_TESTS = 3
"""Load tests from which a row is fitted."""


class Linear:
    """A load test whose times are linear in the engine's, as they are near a point.

    A closed loop is a sum of iterations, and each of these is linear in the factors and
    times; which of them hold prompts hardly changes. It takes five simulations where a
    fit takes hundreds.
    """

    def __init__(self, served: Served, tp: int) -> None:
        self.served, self.point = served, served.point
        self._tp, self._power = tp, 0.0
        self._first = self._told(served.simulated(PRIOR))
        moved = [
            {name: getattr(PRIOR, name) + step}
            for name, step in zip(NAMES, _STEPS, strict=False)
        ]
        self._slopes = [
            (self._told(served.simulated(PRIOR.model_copy(update=to))) - self._first)
            / step
            for to, step in zip(moved, _STEPS, strict=True)
        ]

    @staticmethod
    def _told(loop: LoadTest) -> np.ndarray:
        return np.array([loop.ttft_s, loop.tpot_s, 1 / loop.output_tokens_per_s])

    def simulated(self, time: EngineTime, seed: int = 0) -> LoadTest:
        """Return the test as an engine with this time of its own would serve it."""
        power = self._power + getattr(time, "tp_power", 0.0)
        times = np.array([self._tp**power, self._tp**power, 1.0, 1.0, 1.0])
        told = self._first + sum(
            slope * (factor * getattr(time, name) - getattr(PRIOR, name))
            for factor, name, slope in zip(times, NAMES, self._slopes, strict=False)
        )
        ttft_s, tpot_s, per_token_s = np.maximum(told, 1e-7).tolist()
        before_s = time.request_s - PRIOR.request_s
        each_s = time.prompt_token_s - PRIOR.prompt_token_s
        ttft_s += before_s + each_s * self.point.mean_isl
        return LoadTest(ttft_s, tpot_s, 1 / per_token_s)

    def errors(self, loop: LoadTest) -> list[float]:
        """Return log(simulated ÷ measured) of what the test states, over its noise."""
        return self.served.errors(loop)

    def at(self, power: float) -> "Linear":
        """Return the test with factors that have a power of its TP degree in them."""
        other = copy(self)
        other._power = power
        return other


class Key(NamedTuple):
    """What a row is of."""

    of: Basis
    family: str
    kind: str
    llms: tuple[str, ...]  # none: all of the kind
    engine: str
    era: int


class Case(NamedTuple):
    """A sweep with its load tests on the kernels that a plan would take."""

    sweep: Sweep
    of: Basis
    tests: tuple[Linear, ...]
    is_unknown: bool = False  # on the data sheet, though kernels of the LLM are known


class Found(NamedTuple):
    """A sweep as predicted without its group."""

    case: Case
    row: EngineRow
    loops: tuple[LoadTest, ...]

    @property
    def keys(self) -> list[Key]:
        """Rows that the sweep is fitted in."""
        return keys_of(self.case)

    @property
    def score(self) -> SweepScore | None:
        """Score in users; None with fewer than three concurrencies, or none in turn."""
        points = self.case.sweep.points
        if len(points) < 3 or any(p.is_burst or not p.tpot_s for p in points):
            return None
        return score(
            [point.concurrency for point in points],
            [point.tpot_s or 0.0 for point in points],
            [loop.tpot_s for loop in self.loops],
        )


def cases(sweeps: Sequence[Sweep]) -> list[Case]:
    """Return the sweeps that can be simulated, on the kernels of a plan."""
    made = []
    for sweep in sweeps:
        if sweep.engine not in ("vllm", "sglang", "trtllm"):
            continue
        try:
            base, of = base_of(sweep)
            tests = tuple(Linear(test, sweep.tp) for test in sweep.served(base))
        except InputError:  # it does not fit as it ran
            continue
        made.append(Case(sweep, of, tests))
    return made


def on_data_sheets(its: Sequence[Case]) -> list[Case]:
    """Return sweeps of vLLM on the kernels of data sheets, as an unknown LLM's are."""
    made = []
    for case in its:
        sweep = case.sweep
        if sweep.engine != "vllm" or case.of == "roofline":
            continue
        base = roofline_profile(sweep.llm, find_gpu(sweep.gpu), sweep.tp)
        tests = tuple(Linear(test, sweep.tp) for test in sweep.served(base))
        made.append(Case(sweep, "roofline", tests, True))
    return made


def era(sweep: Sweep) -> int:
    """Return which version of its engine, by ``ERAS``, a sweep is of."""
    if sweep.kind == "dense":
        return 0
    if sweep.source == DUMP:  # of 2026, whatever its versions
        return int(sweep.engine == "vllm")
    eras = eras_of(sweep.engine, sweep.family)
    return sum(_ordered(sweep.version) >= _ordered(first) for first in eras[1:])


def eras_of(engine: str, family: str) -> tuple[str, ...]:
    """Return the first versions of an engine with a row of their own."""
    if engine == "vllm":
        return ERAS
    if engine == "sglang":
        for of, eras in (("CDNA", AMD_ERAS), ("Blackwell", BLACKWELL_ERAS)):
            if family == of or family.startswith(FAMILIES[of]):
                return eras
    return ERAS[:1]


def is_short(sweep: Sweep) -> bool:
    """Return whether a burst is of requests so short that the API server limits it."""
    return sweep.points[0].is_burst and sweep.isl + sweep.osl < 200


def is_of_its_engine(sweep: Sweep) -> bool:
    """Return whether a sweep tells the times of the engine that it names."""
    return sweep.source != OTHER_CLUSTER and sweep.version != OLDER


def is_enough(its: Sequence[Case]) -> bool:
    """Return whether cases have load tests for a row; bursts tell of prompts alone."""
    points = [point for case in its for point in case.sweep.points]
    return sum(not point.is_burst for point in points) >= FEWEST_TESTS


def family_of(llm: str) -> str:
    """Return the family of an LLM: the letters that its name begins with."""
    return re.split(r"[^A-Za-z]", llm)[0]


def is_of_a_kind(its: Sequence[Case]) -> bool:
    """Return whether cases are of enough LLMs and families for a row of a kind."""
    names = {case.sweep.llm.name for case in its}
    families = {family_of(name) for name in names}
    return len(names) >= FEWEST_LLMS and len(families) >= FEWEST_FAMILIES


def misfit(row: EngineRow, its: Sequence[Case]) -> float:
    """Return the median error of a row in the TPOT of load tests, of bursts none."""
    pairs = [
        (test.simulated(row).tpot_s, point.tpot_s)
        for case in its
        for test, point in zip(case.tests, case.sweep.points, strict=True)
        if point.tpot_s and not point.is_burst
    ]
    return float(np.median([abs(found / seen - 1) for found, seen in pairs]))


def keys_of(case: Case) -> list[Key]:
    """Return the rows that a sweep is fitted in: of its kind, its LLM, its GPU type."""
    sweep = case.sweep
    of_kind = Key(case.of, sweep.family, sweep.kind, (), sweep.engine, era(sweep))
    keys = [of_kind._replace(era=min(of_kind.era, int(sweep.engine == "vllm")))]
    if not case.is_unknown:
        own = of_kind._replace(llms=(sweep.llm.name,))
        if sweep.family != "CDNA":
            keys.append(own)
        keys.append(own._replace(family=sweep.gpu))
    return keys


class Rows:
    """Rows fitted to cases, and again without a group or a family."""

    def __init__(self, its: Sequence[Case], own: bool = False) -> None:
        self.members: dict[Key, list[Case]] = defaultdict(list)
        for case in its:
            if is_of_its_engine(case.sweep) and not is_short(case.sweep):
                for key in keys_of(case):
                    if key.llms or not own:
                        self.members[key].append(case)
        self.rows = {}
        for key, of in self.members.items():
            if is_enough(of) and (self._is_own(key) if key.llms else is_of_a_kind(of)):
                row = _row(key, of, None)
                if not key.llms or misfit(row, of) < MISFIT:
                    self.rows[key] = row
        self._of_families: dict[str, list[EngineRow]] = {}

    def _is_own(self, key: Key) -> bool:
        """Return whether a row of a GPU type differs from that of its family."""
        alike = [k for k in self.members if k[0] == key[0] and k[2:] == key[2:]]
        wider = [k for k in alike if len(self.members[k]) > len(self.members[key])]
        return key.family in FAMILIES or key.family.startswith("MI") or bool(wider)

    def own_without(self, group: tuple[str, ...]) -> list[EngineRow]:
        """Return the rows of LLMs as they were had nobody run a group."""
        rows = []
        for key, row in self.rows.items():
            its = self.members[key]
            rest = [case for case in its if case.sweep.group != group]
            if not key.llms or (len(rest) < len(its) and not is_enough(rest)):
                continue
            rows.append(row if len(rest) == len(its) else _row(key, rest, row))
        return rows

    def kinds_without(self, family: str) -> list[EngineRow]:
        """Return the rows of kinds as they were without a family of LLMs."""
        if family not in self._of_families:
            self._of_families[family] = rows = []
            for key, row in self.rows.items():
                its = self.members[key]
                rest = [c for c in its if family_of(c.sweep.llm.name) != family]
                if not key.llms and is_enough(rest):
                    rows.append(row if len(rest) == len(its) else _row(key, rest, row))
        return with_general(self._of_families[family])

    def left_out(self, its: Sequence[Case]) -> Iterator[Found]:
        """Yield each case as predicted without its group, or without its family."""
        groups: dict[tuple, list[Case]] = defaultdict(list)
        for case in its:
            groups[case.sweep.group].append(case)
        for group, members in groups.items():
            family = family_of(members[0].sweep.llm.name)
            others = [case for case in its if case.sweep.group != group]
            rows = [*self.own_without(group), *self.kinds_without(family)]
            yield from predicted([*rows, *of_prompts(others, rows)], members)

    def families_left_out(
        self, its: Sequence[Case], general: bool = False
    ) -> Iterator[Found]:
        """Yield each case as predicted without its family of LLMs.

        ``general``: by the rows for GPUs that no row names.
        """
        for case in its:
            rows = self.kinds_without(family_of(case.sweep.llm.name))
            if general:
                rows = [row for row in rows if not row.gpus]
            yield from predicted(rows, [case])


def predicted(rows: Sequence[EngineRow], its: Sequence[Case]) -> Iterator[Found]:
    """Yield cases as predicted by the rows that a plan would choose."""
    for case in its:
        row = chosen(rows, case)
        if row is not None:
            loops = tuple(test.simulated(row) for test in case.tests)
            yield Found(case, row, loops)


def of_vllm(its: Sequence[Case]) -> list[Case]:
    """Return vLLM's sweeps, of which the general rows are."""
    return [case for case in its if case.sweep.engine == "vllm"]


def chosen(rows: Sequence[EngineRow], case: Case) -> EngineRow | None:
    """Return the row that a plan takes for a sweep's engine, or the nearest other."""
    sweep = case.sweep
    name = "" if case.is_unknown else sweep.llm.name
    kind = (case.of, sweep.gpu, name, sweep.kind == "experts")
    wanted = EngineName(sweep.engine, sweep.version)
    on_kernels = ("kernel-sum", *kind[1:])  # as estimates take them
    return (
        choose(rows, *kind, wanted)
        or choose(rows, *on_kernels, wanted)
        or choose(rows, *kind)
        or choose(rows, *on_kernels)
    )


def with_general(rows: Sequence[EngineRow]) -> list[EngineRow]:
    """Return rows with those for GPUs that no row names: vLLM's on Hopper."""
    general = [
        row.model_copy(
            update={"gpus": [], "source": f"no sweep of this GPU type; {row.source}"}
        )
        for row in rows
        if row.engine == "vllm"
        and not row.llms
        and "H100-SXM".startswith(tuple(row.gpus))
    ]
    return [*rows, *general]


_KNOWN: dict[tuple, tuple[EngineTime, float]] = {}
"""Times by the cases that they were fitted to: two rows may be of the same."""

_POWERS = np.arange(-0.6, 0.31, 0.1).round(1)
_POWER_SPREAD = 0.2
"""Powers of the TP degree that are tried in rows of LLMs on Blackwell, whose engines
fuse all-reduces that the tables add, and what draws to none."""


def _fitted(
    key: Key, its: Sequence[Case], near: EngineRow | None
) -> tuple[EngineTime, float]:
    """Return the time that explains cases best, and its power of the TP degree."""
    is_kernels = not key.llms and (key.of, key.kind) == ("kernel-sum", "experts")
    known = (is_kernels, bool(key.llms), *map(id, its))
    if known in _KNOWN:
        return _KNOWN[known]
    tests = [test for case in its for test in case.tests]
    names = [case.sweep.llm.name for case in its for _ in case.tests]
    weights = [names.count(name) ** -0.5 for name in names]  # none drowns others
    found = []
    on_amd = bool(key.llms) and key.family.startswith(FAMILIES["CDNA"])
    fixed = [*(FACTORS if is_kernels else ()), *(() if on_amd else UNTOLD)]
    on_blackwell = key.family.startswith(("Blackwell", *FAMILIES["Blackwell"]))
    several = key.llms and on_blackwell and len({case.sweep.tp for case in its}) > 1
    prior = KERNELS if is_kernels else ON_AMD if on_amd else PRIOR
    drawn = prior, AMD_SPREAD if on_amd else SPREAD
    for power in map(float, _POWERS if several else [0.0]):
        there = [test.at(power) for test in tests]
        time = _within(there, drawn, fixed, near, weights)
        off = [e for test in there for e in test.errors(test.simulated(time))]
        loss = weights[0] * float(np.sum(8 * (np.sqrt(1 + np.square(off) / 4) - 1)))
        found.append((loss + (power / _POWER_SPREAD) ** 2, power, time))
    _, power, time = min(found, key=lambda each: each[0])
    _KNOWN[known] = time, power
    return _KNOWN[known]


def _within(
    tests: Sequence[Served],
    drawn: tuple[EngineTime, Sequence[float]],
    fixed: Sequence[str],
    near: EngineRow | None,
    weights: Sequence[float],
) -> EngineTime:
    """Return the time that explains load tests best, its factors within bounds.

    It is ``drawn`` to a time, as by errors of it.
    """
    prior, spread = drawn
    start = None if near is None else near.time
    time = fit_engine_time(
        tests, prior, fixed=fixed, start=start, weights=weights, spread=spread
    ).time
    beyond = [
        name
        for name, (least, most) in FACTORS.items()
        if name not in fixed and not least < getattr(time, name) < most
    ]
    if not beyond:
        return time
    return _within(tests, drawn, [*fixed, *beyond], None, weights)


def _row(key: Key, its: Sequence[Case], near: EngineRow | None) -> EngineRow:
    tests = [test for case in its for test in case.tests]
    time, power = _fitted(key, its, near)
    sweeps = [case.sweep for case in its]
    versions = sorted({s.version for s in sweeps if s.version}, key=_ordered)
    kinds = sorted({f"{sweep.llm.name} on {sweep.gpu}" for sweep in sweeps})
    values = {name: float(f"{getattr(time, name):.3g}") for name in NAMES}
    values = {k: v if v > 1e-7 else 0.0 for k, v in values.items()}
    return EngineRow(
        **values,
        tp_power=power,
        of=key.of,
        gpus=list(FAMILIES.get(key.family, (key.family,))),
        llms=list(key.llms),
        experts=key.kind == "experts",
        engine=key.engine,
        since=eras_of(key.engine, key.family)[key.era] if key.era else "",
        engine_version="–".join(dict.fromkeys([*versions[:1], *versions[-1:]]))
        or next((WHEN[s.source] for s in sweeps if s.source in WHEN), ""),
        source=f"{len(tests)} load tests of {', '.join(kinds)} "
        f"({'; '.join(sorted({sweep.source for sweep in sweeps}))})",
    )


def of_prompts(its: Sequence[Case], rows: Sequence[EngineRow]) -> list[EngineRow]:
    """Return what bursts tell of LLMs on GPUs that no row rests on: prefill factors.

    The times beside them are those of the rows that a plan takes.
    """
    bursts: dict[Key, list[Case]] = defaultdict(list)
    for case in its:
        if case.sweep.points[0].is_burst and not is_short(case.sweep):
            bursts[keys_of(case)[-1]._replace(era=0)].append(case)
    made = []
    for key, of in bursts.items():
        row = chosen(rows, of[0])
        if row is None or row.engine != key.engine:
            continue
        [llm] = key.llms
        lengths = ", ".join(f"{case.sweep.isl}/{case.sweep.osl}" for case in of)
        its_own = EngineRow(
            of=row.of,
            gpus=[key.family],
            llms=list(key.llms),
            experts=key.kind == "experts",
            engine=key.engine,
            engine_version=of[0].sweep.version,
            prompts_only=True,
            source=f"bursts of {llm} on {key.family}, {lengths} tokens "
            f"({of[0].sweep.source})",
        )
        if its_own.nearness(llm) > row.nearness(llm):
            factor = _prefill_factor(of, row)
            made.append(its_own.model_copy(update={"prefill_factor": factor}))
    return made


def _prefill_factor(its: Sequence[Case], row: EngineRow) -> float:
    """Return the prefill factor beside a row's times that explains bursts best."""
    tests = [test.at(row.tp_power) for case in its for test in case.tests]
    fixed = [name for name in NAMES if name != "prefill_factor"]
    fit = fit_engine_time(tests, row.time, fixed=fixed, spread=SPREAD)
    return float(f"{fit.time.prefill_factor:.3g}")


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
