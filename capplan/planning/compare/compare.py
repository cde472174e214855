"""Compare serving systems: what each costs, and what each does on equal hardware."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from capplan.deployment.configuration import Configuration
from capplan.errors import HorizonWarning, InputError, collected_warnings
from capplan.planning.compare.equal_hardware import (
    Entrant,
    Hardware,
    Result,
    at_amount,
    capacity,
)
from capplan.planning.compare.requests import Requests
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.compare.system_price import (
    Priced,
    Pricing,
    SystemResult,
    requests_of,
)
from capplan.planning.compare.systems import LINK, SYSTEMS, resolve
from capplan.planning.configure.deployments import two_pools
from capplan.planning.evaluate.executors import Executor, executor
from capplan.planning.evaluate.inputs import Progress, part_of, unseen
from capplan.planning.evaluate.saturation import replica_saturations
from capplan.planning.settings.layouts import TP_ALONE
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.shown import Shown
from capplan.planning.size.cautions import largest_of_alike
from capplan.simulator.fleet.fleet import Stopped

CURVE = (0.6, 0.8, 1.0, 1.2, 1.4)
"""Rates or users of a system's curve, as shares of the most that it holds."""
_MEASURING = 2
"""Steps after the systems are priced: what each holds at most, and the curves."""

_ANY_ROOM = 2048
_TWO_POOLS = "two pools take two replicas; give --replicas N"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Comparison(Shown):
    """Serving systems compared on the same requests."""

    llm: str
    systems: tuple[SystemResult, ...]
    slo_text: str
    attainment: float  # share of requests that must meet it, of classes without one
    attainment_text: str  # the share asked, of each class that has one of its own
    # shared by all classes, by ttft, tpot, tbt and e2e [s]
    slo_limits_s: Mapping[str, float]
    trace_source: str
    trace_notes: tuple[str, ...]
    request_count: int
    rate_per_s: float  # not known of users [requests/s]
    mean_prompt_tokens: float  # [tokens]
    mean_output_tokens: float  # [tokens]
    rates_per_s: tuple[float, ...] = ()  # of the curves, ascending [requests/s]
    asked_by: str | None = None  # users who wait for their answers; None: arrivals
    users_of_curves: tuple[int, ...] = ()  # in place of rates, ascending
    is_published: bool = False  # seats and budgets are the published ones
    longest_request_tokens: int  # prompt and output [tokens]
    seed: int
    hardware: Configuration | None = None  # equal for all; as the first runs on it
    replica_count: int | None = None  # of it
    warnings: tuple[str, ...] = ()
    interrupted: bool = False
    runtime_s: float = 0.0  # [s]


def compare(
    settings: CompareSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> Comparison:
    """Return the price of each system, and what each does on equal hardware.

    When ``stopped`` says so, the comparison is of what was simulated by then.
    """
    started_s = time.perf_counter()
    settings = settings.dated()
    if settings.executor != "local":  # elsewhere Ctrl-C cannot be seen
        stopped = None
    progress = progress or unseen
    slo = settings.objective()
    if slo is None:
        raise InputError("no SLO; give --slo such as ttft=1s,tpot=30ms")
    plain = PlanSettings(**TP_ALONE, **settings.shared_with(PlanSettings))
    for name in settings.systems:  # a wrong setting is said before all else
        resolve(name, plain, _ANY_ROOM)
    progress("reading the requests")
    with collected_warnings() as texts:
        requests = requests_of(plain.model_copy(update=dict.fromkeys(LINK)), slo)
    with executor(settings.executor, settings.ray_address) as workers:
        priced = _priced(settings, plain, requests, progress, stopped)
        hardware, replica_count = _hardware(settings, priced)
        # Whether a trace is long enough was said at its own rate.
        with collected_warnings(without=(HorizonWarning,)) as more:
            if hardware is not None:
                equal = Hardware(replica_count, settings.seed, stopped)
                systems, amounts = _measured(
                    equal, hardware, settings.rates, priced, workers, progress
                )
            else:
                none = "no system is feasible; give --replicas N"
                systems = [replace(row.result, not_served=none) for row in priced]
                amounts = ()
    trace, read = requests.load.trace, requests.read.base
    users = requests.users
    return Comparison(
        llm=str(settings.llm),
        systems=tuple(systems),
        slo_text=slo.describe(trace.class_names),
        attainment=slo.shared_target(trace.class_names),
        attainment_text=slo.describe_targets(trace.class_names),
        slo_limits_s=slo.shared_limits_s(trace.class_names),
        trace_source=trace.source,
        trace_notes=read.notes,
        request_count=len(trace if users is None else read),  # asked: by each system
        rate_per_s=trace.rate_per_s,
        mean_prompt_tokens=float(read.prompt_tokens.mean()),
        mean_output_tokens=float(read.output_tokens.mean()),
        rates_per_s=amounts if users is None else (),
        asked_by=None if users is None else str(users),
        users_of_curves=() if users is None else tuple(map(int, amounts)),
        is_published=settings.published,
        longest_request_tokens=int((read.prompt_tokens + read.output_tokens).max()),
        seed=settings.seed,
        hardware=hardware,
        replica_count=None if hardware is None else replica_count,
        warnings=(*texts, *_by_system(priced, texts, more)),
        interrupted=stopped is not None and stopped(),
        runtime_s=time.perf_counter() - started_s,
    )


def _by_system(
    priced: list[Priced], general: list[str], measured: list[str]
) -> list[str]:
    """Return the warnings of systems, each once with the names of those it is of.

    Of those that differ in their numbers only, the one with the largest.
    """
    names: dict[str, list[str]] = {}
    for row in priced:
        for text in largest_of_alike(row.warnings):
            names.setdefault(text, []).append(row.result.name)
    own = largest_of_alike(
        [*names, *(text for text in measured if text not in general)]
    )
    return [
        f"{', '.join(names[text])}: {text}" if text in names else text
        for text in own
        if text not in general
    ]


def _priced(
    settings: CompareSettings,
    plain: PlanSettings,
    requests: Requests,
    progress: Progress,
    stopped: Stopped | None,
) -> list[Priced]:
    """Return the systems with their plans, each about the same requests."""
    names = list(settings.systems or SYSTEMS)
    rows = []
    pricing = Pricing(settings, plain, requests, stopped)
    for done, name in enumerate(names):
        step = part_of(progress, done, len(names) + _MEASURING, f"{name}: ")
        step("reading its settings")
        with collected_warnings() as texts:
            row = pricing.of(name, step)
        rows.append(replace(row, warnings=tuple(texts)))
    if not any(row.requests for row in rows):
        raise InputError(
            "no system runs: "
            + "; ".join(f"{row.result.name}: {row.result.reason}" for row in rows)
        )
    return rows


def _hardware(
    settings: CompareSettings, priced: list[Priced]
) -> tuple[Configuration | None, int]:
    """Return GPU and TP of the first feasible system, and the replicas of all.

    Where none is feasible, with the replicas given, those that the first one tries.
    """
    for row in priced:
        best = row.result.candidate
        if best is not None:
            assert best.run is not None
            return best.run.configuration, settings.replicas or best.run.replica_count
    for row in priced:
        if row.configurations and settings.replicas is not None:
            return row.configurations[0], settings.replicas
    return None, 0


def _is_disaggregated(row: Priced) -> bool:
    """Return whether a system has disaggregated prefill and decode."""
    return row.settings is not None and row.settings.disaggregated


def _measured(
    equal: Hardware,
    hardware: Configuration,
    asked: tuple[float, ...],
    priced: list[Priced],
    workers: Executor,
    progress: Progress,
) -> tuple[list[SystemResult], tuple[float, ...]]:
    """Return the systems with what they do on equal hardware, and the curves' points.

    Those are rates, or numbers of users.
    """
    entrants = [_entrant(row, hardware, equal.replica_count) for row in priced]
    able = [entrant for entrant in entrants if entrant is not None]
    where = f"{equal.replica_count} × {hardware}"
    step = partial(part_of, progress, count=len(priced) + _MEASURING)
    step(done=len(priced))(f"{where}: the most that {len(able)} systems hold")
    highest = workers(capacity, equal, able[:1])
    near = highest[0].most if highest else None  # where the others are sought first
    others = [replace(entrant, amount=near or 0.0) for entrant in able[1:]]
    highest += workers(capacity, equal, others)
    points = [tuple(sorted(set(asked)))] * len(able)
    if able and not asked:
        points = _curves(highest, able[0].requests)
    step(done=len(priced) + 1)(f"{where}: the curves of {len(able)} systems")
    tasks = [
        replace(entrant, configuration=first.configuration, amount=amount)
        for entrant, first, each in zip(able, highest, points, strict=True)
        for amount in each
    ]
    curves: dict[str, list[Result]] = {entrant.name: [] for entrant in able}
    for task, there in zip(tasks, workers(at_amount, equal, tasks), strict=True):
        if there.reason:
            reason = f"at {task.requests.said(task.amount)}: {there.reason}"
            there = replace(there, reason=reason)
        curves[task.name].append(there)
    found = {
        entrant.name: (first, curves[entrant.name])
        for entrant, first in zip(able, highest, strict=True)
    }
    results = []
    for row in priced:
        result = row.result
        if result.name in found:
            result = _with(row, equal, *found[result.name])
        elif _is_disaggregated(row):
            result = replace(result, not_served=_TWO_POOLS)
        elif row.requests is not None:
            result = replace(result, not_served=f"does not run on {hardware}")
        results.append(result)
    return results, tuple(sorted({task.amount for task in tasks}))


def _entrant(
    row: Priced, hardware: Configuration, replica_count: int
) -> Entrant | None:
    if _is_disaggregated(row) and replica_count < 2:
        return None
    for configuration in row.configurations:
        at = configuration.key
        if row.settings is not None and at == hardware.key:
            assert row.requests is not None
            entrant = Entrant(
                row.result.name,
                row.requests,
                row.settings,
                configuration,
                row.routers.get(at, row.result.router),
                row.budgets,
            )
            return _split(entrant, replica_count) if _is_disaggregated(row) else entrant
    return None


def _split(entrant: Entrant, replica_count: int) -> Entrant:
    """Return a system with as many replicas for prompts as let it complete the most.

    Half of them where it is not known what a replica completes.
    """
    one_each = two_pools(entrant.settings, [entrant.configuration], (1, 1))
    requests = entrant.requests
    found = replica_saturations(requests.load, one_each, requests.slo)
    rates_per_s = [1.0 if each is None else each.rate_per_s for each in found]

    def completed_per_s(prompts: int) -> float:
        counts = prompts, replica_count - prompts
        return min(
            count * rate for count, rate in zip(counts, rates_per_s, strict=True)
        )

    best = max(range(1, replica_count), key=completed_per_s)
    return replace(entrant, prefill_replicas=best)


def _curves(highest: list[Result], requests: Requests) -> list[tuple[float, ...]]:
    """Return amounts of three digits about the most that each system holds.

    Far above it, latency only tells how long the sample was: a system that holds none
    is seen at one, below the lowest of the others, or else below the requests' own.
    """
    if math.isnan(requests.own):
        return [()] * len(highest)
    least = min((row.most for row in highest if row.most), default=requests.own)
    return [
        tuple(
            sorted(
                {
                    requests.rounded(float(f"{share * (row.most or least):.3g}"))
                    for share in (CURVE if row.most else CURVE[:1])
                }
            )
        )
        for row in highest
    ]


def _is_planned(row: Priced, equal: Hardware, there: Configuration) -> bool:
    """Return whether a system's plan, which has more samples, holds the load there."""
    best, requests = row.result.candidate, row.requests
    if best is None or best.run is None or best.pools or requests is None:
        return False
    own = best.run.configuration
    fits = best.run.replica_count <= equal.replica_count
    same = (own.key, own.engine) == (there.key, there.engine)
    return fits and same and not math.isnan(requests.own)


def _with(
    row: Priced, equal: Hardware, highest: Result, curve: list[Result]
) -> SystemResult:
    reasons = [each.reason for each in (highest, *curve) if each.reason]
    of_users = row.requests is not None and row.requests.users is not None
    most = highest.most
    if row.requests is not None and _is_planned(row, equal, highest.configuration):
        most = max(most or 0.0, row.requests.own)
    return replace(
        row.result,
        served=highest.served[0] if highest.served else None,
        max_rate_per_s=None if of_users else most,
        max_users=int(most) if of_users and most is not None else None,
        binding_setting=highest.binding,
        predictions_matter=highest.predictions_matter,
        served_engine=highest.configuration.engine,
        curve=tuple(served for each in curve for served in each.served),
        not_served=reasons[0] if reasons else "",
    )
