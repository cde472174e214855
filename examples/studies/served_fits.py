"""Fit the rows of ``engine_times.yaml`` to sweeps; score each without its group.

A group is one LLM on one GPU type with one version of an engine. A row is of one kind
of LLM, or of one LLM, on one family of GPUs with one era of an engine. A sweep is
scored by the row that a plan would take if nobody had run its group.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from served_sets import OTHER_CLUSTER
from served_sweeps import FAMILIES, Sweep, base_of

from capplan.calibration.load_test import LoadTest
from capplan.calibration.sweep_fit import NAMES, Served, fit_engine_time
from capplan.calibration.sweep_score import SweepScore, score
from capplan.errors import InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.engine_rows import EngineName, EngineRow, choose
from capplan.latency.engine_time import Basis, EngineTime
from capplan.latency.roofline import roofline_profile

PRIOR = EngineTime(
    source="",
    prefill_factor=1.2,
    iteration_s=6e-4,
    per_request_s=3e-5,
    request_s=0.02,
    prompt_token_s=1e-5,
)

OWN = (
    ("gpt-oss-120b", "gpt-oss-20b"),
    ("DeepSeek-R1", "DeepSeek-V3.1"),
    ("DeepSeek-R1-NVFP4",),
)
"""LLMs with rows of their own; the rest have those of their kind."""

ERAS = ("0", "0.11", "0.14")
"""First versions of vLLM with a row of their own, for LLMs with rows of their own: the
step is 0.11. Other mixtures of experts have two rows, dense LLMs one: their sweeps of
newer versions are too few."""


AMD_ERAS = ("0", "0.5.10")
"""The same of SGLang on AMD's GPUs: from 0.5.9 to 0.5.12 DeepSeek-R1 became 1.5 times
as fast on MI300X."""

FEWEST_TESTS = 3
"""Load tests from which a row is fitted."""


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
    tests: tuple[Served, ...]


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
            tests = tuple(sweep.served(base))
            for test in tests:
                test.simulated(PRIOR)
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
        made.append(Case(sweep, "roofline", tuple(sweep.served(base))))
    return made


def era(sweep: Sweep) -> int:
    """Return which version of its engine, by ``ERAS``, a sweep is of."""
    if sweep.kind == "dense":
        return 0
    eras = eras_of(sweep.engine, sweep.family)
    return sum(_ordered(sweep.version) >= _ordered(first) for first in eras[1:])


def eras_of(engine: str, family: str) -> tuple[str, ...]:
    """Return the first versions of an engine with a row of their own."""
    if engine == "vllm":
        return ERAS
    is_amd = family == "CDNA" or family.startswith(FAMILIES["CDNA"])
    return AMD_ERAS if engine == "sglang" and is_amd else ERAS[:1]


def is_short(sweep: Sweep) -> bool:
    """Return whether a burst is of requests so short that the API server limits it."""
    return sweep.points[0].is_burst and sweep.isl + sweep.osl < 200


def is_enough(its: Sequence[Case]) -> bool:
    """Return whether cases have enough load tests for a row."""
    return sum(len(case.tests) for case in its) >= FEWEST_TESTS


def keys_of(case: Case) -> list[Key]:
    """Return the rows that a sweep is fitted in: of its kind, its LLM, its GPU type."""
    sweep = case.sweep
    of_kind = Key(case.of, sweep.family, sweep.kind, (), sweep.engine, era(sweep))
    keys = [of_kind._replace(era=min(of_kind.era, 1))]
    own = [llms for llms in OWN if sweep.llm.name in llms]
    if sweep.family == "CDNA":
        keys.append(of_kind._replace(family=sweep.gpu, llms=(sweep.llm.name,)))
    elif own and case.of != "roofline":
        keys.append(of_kind._replace(llms=own[0]))
        keys.append(keys[-1]._replace(family=sweep.gpu))
    return keys


class Rows:
    """Rows fitted to cases, and again without a group."""

    def __init__(self, its: Sequence[Case]) -> None:
        self.members: dict[Key, list[Case]] = defaultdict(list)
        for case in its:
            if case.sweep.source != OTHER_CLUSTER and not is_short(case.sweep):
                for key in keys_of(case):
                    self.members[key].append(case)
        self.rows = {
            key: _row(key, of, None)
            for key, of in self.members.items()
            if is_enough(of) and not self._is_of_one_gpu(key)
        }

    def _is_of_one_gpu(self, key: Key) -> bool:
        """Return whether a row of a GPU type would be that of its family."""
        alike = [k for k in self.members if k[0] == key[0] and k[2:] == key[2:]]
        wider = [k for k in alike if len(self.members[k]) > len(self.members[key])]
        return key.family not in FAMILIES and key.of != "roofline" and not wider

    def without(self, group: tuple[str, ...]) -> list[EngineRow]:
        """Return the rows as they were had nobody run a group."""
        rows = []
        for key, row in self.rows.items():
            its = self.members[key]
            rest = [case for case in its if case.sweep.group != group]
            if len(rest) == len(its):
                rows.append(row)
            elif is_enough(rest):
                rows.append(_row(key, rest, row))
        return rows

    def left_out(self, its: Sequence[Case]) -> Iterator[Found]:
        """Yield each case as predicted without its group."""
        groups: dict[tuple, list[Case]] = defaultdict(list)
        for case in its:
            groups[case.sweep.group].append(case)
        for group, members in groups.items():
            rows = with_general(self.without(group))
            for case in members:
                row = chosen(rows, case)
                if row is not None:
                    loops = tuple(test.simulated(row) for test in case.tests)
                    yield Found(case, row, loops)


def chosen(rows: Sequence[EngineRow], case: Case) -> EngineRow | None:
    """Return the row that a plan takes for a sweep's engine, or the nearest other."""
    sweep = case.sweep
    kind = (case.of, sweep.gpu, sweep.llm.name, sweep.kind == "experts")
    wanted = EngineName(sweep.engine, sweep.version)
    on_kernels = ("kernel-sum", *kind[1:])  # as estimates take them
    return (
        choose(rows, *kind, wanted)
        or choose(rows, *on_kernels, wanted)
        or choose(rows, *kind)
        or choose(rows, *on_kernels)
    )


def with_general(rows: Sequence[EngineRow]) -> list[EngineRow]:
    """Return rows with those for GPUs that no row names: vLLM's on Hopper.

    Where none is of Hopper, the newest. Their error is the widest of their kind.
    """
    general = []
    for of in dict.fromkeys(row.of for row in rows):
        for experts in (False, True):
            its = [r for r in rows if (r.of, r.experts, r.llms) == (of, experts, [])]
            its = [row for row in its if row.engine == "vllm"]
            if not its:
                continue
            hopper = [row for row in its if "H100" in row.gpus]
            newest = max(its, key=lambda row: row.versions[1])
            errors = [row.served for row in its if row.served is not None]
            widest = max(errors, key=lambda e: e.tpot[2], default=None)
            for row in hopper or [newest]:
                source = f"no sweep of this GPU type; {row.source}"
                update = {"gpus": [], "source": source, "served": widest}
                general.append(row.model_copy(update=update))
    return [*rows, *general]


_KNOWN: dict[tuple[int, ...], EngineTime] = {}
"""Times by the cases that they were fitted to: two rows may be of the same."""


def _fitted(its: Sequence[Case], near: EngineRow | None) -> EngineTime:
    key = tuple(map(id, its))
    if key not in _KNOWN:
        tests = [test for case in its for test in case.tests]
        of = [case.sweep.llm.name for case in its for _ in case.tests]
        weights = [of.count(name) ** -0.5 for name in of]  # no LLM drowns the others
        start = None if near is None else near.time
        fitted = fit_engine_time(tests, PRIOR, start=start, weights=weights)
        _KNOWN[key] = fitted.time
    return _KNOWN[key]


def _row(key: Key, its: Sequence[Case], near: EngineRow | None) -> EngineRow:
    tests = [test for case in its for test in case.tests]
    time = _fitted(its, near)
    sweeps = [case.sweep for case in its]
    versions = sorted({s.version for s in sweeps if s.version}, key=_ordered)
    kinds = sorted({f"{sweep.llm.name} on {sweep.gpu}" for sweep in sweeps})
    values = {name: float(f"{getattr(time, name):.3g}") for name in NAMES}
    values = {k: v if v > 1e-7 else 0.0 for k, v in values.items()}
    return EngineRow(
        **values,
        of=key.of,
        gpus=list(FAMILIES.get(key.family, (key.family,))),
        llms=list(key.llms),
        experts=key.kind == "experts",
        engine=key.engine,
        since=eras_of(key.engine, key.family)[key.era] if key.era else "",
        engine_version="–".join(dict.fromkeys([*versions[:1], *versions[-1:]])),
        source=f"{len(tests)} load tests of {', '.join(kinds)} "
        f"({'; '.join(sorted({sweep.source for sweep in sweeps}))})",
    )


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
