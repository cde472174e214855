"""What every candidate of a plan is asked: the requests, the SLO, the routers."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from capplan.errors import CapplanWarning, HorizonWarning, InputError
from capplan.placement.solvers import SOLVERS
from capplan.planning.configuration import Configuration, Excluded, configurations
from capplan.planning.settings import PlanSettings
from capplan.planning.traffic import long_enough, read_requests, warmup_end_s
from capplan.simulator.routers import ROUTERS
from capplan.simulator.simulate import oversized
from capplan.workload.slo import Slo, parse_slo
from capplan.workload.trace import Trace

DEFAULT_ROUTER = "jsq"
_THETAS = (0.5, 0.4, 0.3, 0.2)
_HEURISTICS = ("jsq", "best-fit:theta=0.5", "best-fit:theta=0.4", "power-of-two")


@dataclass(frozen=True, eq=False)
class PlanInputs:
    """What every candidate is asked."""

    request: PlanSettings
    trace: Trace
    slo: Slo
    warmup_s: float
    routers: tuple[str, ...]


def ask(request: PlanSettings) -> tuple[PlanInputs, list[Configuration | Excluded]]:
    """Return what every candidate is asked, and the candidates.

    Raises
    ------
    InputError
        When something asked for is wrong or missing.
    ProfileError
        When a profile is malformed or of something else.
    """
    if not request.slo:
        raise InputError("no SLO; give --slo such as ttft=1s,tpot=30ms")
    slo = parse_slo(list(request.slo), request.attainment)
    rng = np.random.default_rng(request.seed)
    trace, law = read_requests(request, rng)
    for name in trace.class_names:
        slo.of_class(name)
    tried = list(configurations(request))
    excluded = [one for one in tried if isinstance(one, Excluded)]
    if len(excluded) == len(tried):
        raise InputError("; ".join(one.reason for one in excluded))
    trace = _without_oversized(trace, tried, request)
    trace, shortness = long_enough(trace, law, slo, rng, may_extend=request.extend)
    if shortness:
        warnings.warn(shortness, HorizonWarning, stacklevel=2)
    routers, _ = method(request)
    return PlanInputs(request, trace, slo, warmup_end_s(trace, slo), routers), tried


def _without_oversized(
    trace: Trace, tried: list[Configuration | Excluded], request: PlanSettings
) -> Trace:
    """Return the trace without the requests that no configuration can hold.

    Raises
    ------
    InputError
        When there are some and they are not to be dropped.
    """
    able = [one for one in tried if isinstance(one, Configuration)]
    if not able:
        return trace
    too_large = np.logical_and.reduce([oversized(trace, one.engine) for one in able])
    if not too_large.any():
        return trace
    row = int(np.flatnonzero(too_large)[0])
    largest = max(one.engine.kv_capacity_tokens for one in able)
    longest = max(one.engine.max_model_len for one in able)
    what = (
        f"{trace.source}: {int(too_large.sum()):,} of {len(trace):,} requests fit no "
        f"replica; the first is row {row + 1} with {trace.prompt_tokens[row]:,} prompt "
        f"and {trace.output_tokens[row]:,} output tokens, where the largest replica "
        f"holds {largest:,} and takes {longest:,}"
    )
    if not request.drop_oversized:
        raise InputError(f"{what}; drop them with --drop-oversized")
    if too_large.all():
        raise InputError(f"{what}; none is left")
    warnings.warn(f"{what}; dropped", CapplanWarning, stacklevel=2)
    return trace.select(np.flatnonzero(~too_large))


def method(request: PlanSettings) -> tuple[tuple[str, ...], str | None]:
    """Return the routers to simulate, and the solver of the deciding heartbeat.

    Raises
    ------
    InputError
        When the solver is unknown, or a router is given twice.
    """
    solver = request.solver
    if solver in (None, "simulated"):
        return _with_margins(request.router or DEFAULT_ROUTER), None
    if str(solver).partition(":")[0] in ROUTERS:
        if request.router not in (None, solver):
            raise InputError(
                f"--solver {solver} and --router {request.router} are both routers; "
                "expected one of them"
            )
        return _with_margins(str(solver)), None
    if solver == "mip" or solver in SOLVERS:
        routers = _with_margins(request.router) if request.router else _HEURISTICS
        return routers, "cp-sat" if solver == "mip" else solver
    known = ", ".join(("simulated", "mip", *SOLVERS, *ROUTERS))
    raise InputError(f"--solver is {solver!r}; expected one of {known}")


def _with_margins(router: str) -> tuple[str, ...]:
    """Return the router, best fit with each of the margins it may need.

    How much of the TPOT budget prefill takes depends on the traffic, and best fit
    does not see it: with too large a theta it overfills some replicas and leaves
    others idle, however many there are.
    """
    if router != "best-fit":
        return (router,)
    return tuple(f"best-fit:theta={theta}" for theta in _THETAS)


def configuration_of(
    tried: list[Configuration | Excluded], gpu: str, tp: int
) -> Configuration:
    """Return the configuration of a GPU type and TP degree among those tried.

    Raises
    ------
    InputError
        When it is not one of those that can be tried.
    """
    for one in tried:
        if isinstance(one, Configuration) and (one.gpu, one.tp) == (gpu, tp):
            return one
    raise InputError(f"{gpu} × TP {tp} is not among the configurations of the plan")


def asked(request: PlanSettings) -> dict[str, Any]:
    """Return the settings that an answer depends on, as a plan keeps them."""
    without = {"out", "executor", "ray_address"}
    return request.model_dump(mode="json", exclude_defaults=True, exclude=without)
