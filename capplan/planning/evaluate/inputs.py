"""Inputs shared by all candidates of a plan: requests, SLO, routers, solver."""

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError
from capplan.placement.solvers import SOLVERS
from capplan.planning.configure.configuration import configurations, runnable
from capplan.planning.configure.deployments import (
    DEFAULT_ROUTER,
    STICKY_ROUTER,
    of_prompts,
)
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.prefix_caching import (
    with_caching_as_used,
    without_states,
)
from capplan.planning.evaluate.judging import Judging
from capplan.planning.evaluate.known_runs import Simulate
from capplan.planning.load.load import Load
from capplan.planning.load.session_load import SessionLoad
from capplan.planning.load.traffic import judged_traffic
from capplan.planning.money.quota import check_quota
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.checks import refuse_without_keys
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.routers import ROUTERS
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace


class Progress(Protocol):
    """Called with the step that begins, and the share of the steps that are done.

    The share is None where it is not known.
    """

    def __call__(self, step: str, share: float | None = None) -> None:
        """Show a step."""


def unseen(step: str, share: float | None = None) -> None:
    """Show nothing."""


def part_of(progress: Progress, done: int, count: int, what: str = "") -> Progress:
    """Return the progress of one of ``count`` parts, of which ``done`` are done."""

    def show(step: str, share: float | None = None) -> None:
        progress(f"{what}{step}", (done + (share or 0.0)) / count)

    return show


_THETAS = (0.5, 0.4, 0.3, 0.2)
_ALL_ROUTERS = ("jsq", "best-fit:theta=0.5", "best-fit:theta=0.4", "power-of-two")


@dataclass(frozen=True, eq=False)
class PlanInputs:
    """Inputs shared by all candidates of a plan."""

    settings: PlanSettings  # as the user gave them
    load: Load  # requests to serve, and which of them count
    slo: Slo  # limits by class, and the share of requests that must meet them
    routers: tuple[str, ...]  # to try, the first one first
    solver: str | None  # places the peak heartbeat exactly; None for none
    candidate_count: int = 1  # that may serve: with few, each count gets more samples
    stopped: Stopped | None = None  # says when to answer with what is known
    best_only: bool = False  # of the others it is enough that they are not the best
    only_price: bool = False  # nothing is told but the price of the best
    # $/h and GPUs that others are to cost less than, to be of use
    to_beat: tuple[float, float] = (math.inf, math.inf)
    only_disaggregated: bool = False  # no replicas that do both are planned
    # to tune any scheduler by, descending; none: BUDGETS, and vLLM's alone [tokens]
    budgets: tuple[int, ...] = ()
    # GPU type and layout that is likely the best, to be simulated first
    likely: tuple[str, str] | None = None
    simulate_with: Simulate = simulate  # may know simulations of other plans
    bounds: dict[Any, Any] = field(default_factory=dict, repr=False)  # see ``bound_of``

    def judging(self, **how: Any) -> Judging:
        """Return how a fleet is judged: with the plan's seed, until it is to stop."""
        return Judging(self.settings.seed, **{"stopped": self.stopped, **how})

    def is_stopped(self) -> bool:
        """Return whether to answer with what is known."""
        return self.stopped is not None and self.stopped()

    @property
    def trace(self) -> Trace:
        """The requests to serve: the first sample where they are drawn."""
        return self.load.trace


def plan_inputs(
    settings: PlanSettings,
    load: Load | None = None,
    tried: list[Configuration | Excluded] | None = None,
    read: Trace | None = None,
) -> tuple[PlanInputs, list[Configuration | Excluded]]:
    """Return the inputs that all candidates share, and the candidates.

    ``load``, ``tried`` and ``read`` are given where several plans are about the same
    requests, the same configurations, or requests that were read once.
    """
    slo = settings.objective()
    if slo is None:
        raise InputError("no SLO; give --slo such as ttft=1s,tpot=30ms")
    tried = list(configurations(settings)) if tried is None else tried
    check_quota(settings.max_nodes, [row.gpu for row in tried])
    able = runnable(tried)
    if load is None:
        rng = np.random.default_rng(settings.seed)
        load = judged_traffic(settings, slo, rng, able, read)
    shares = bool(load.base.prefix_tokens.any())
    tried = [
        with_caching_as_used(row, settings, shares)
        if isinstance(row, Configuration)
        else row
        for row in tried
    ]
    routers, solver = _routers_and_solver(settings, load)
    for router in routers:
        refuse_without_keys(load.base, router)
    return PlanInputs(settings, load, slo, routers, solver, len(able)), tried


def _routers_and_solver(
    settings: PlanSettings, load: Load
) -> tuple[tuple[str, ...], str | None]:
    """Return the routers to simulate, and the solver of the peak heartbeat."""
    router, solver = settings.router, settings.solver
    if solver is None:
        sticks = isinstance(load, SessionLoad)
        return _with_margins(router or (DEFAULT_ROUTER, STICKY_ROUTER)[sticks]), None
    if solver == "mip" or solver in SOLVERS:
        routers = _with_margins(router) if router else _ALL_ROUTERS
        return routers, "cp-sat" if solver == "mip" else solver
    known = ", ".join(("simulated", "mip", *SOLVERS))
    hint = ""
    if str(solver).partition(":")[0] in ROUTERS:
        hint = f"; it is a router: give --router {solver}"
    raise InputError(f"--solver is {solver!r}; expected one of {known}{hint}")


def _with_margins(router: str) -> tuple[str, ...]:
    """Return the router; best fit with each of the margins it may need.

    The share of the TPOT budget that prefill takes depends on the traffic, and best
    fit does not see it: with too large a theta it overfills some replicas and leaves
    others idle, however many there are.
    """
    if router != "best-fit":
        return (router,)
    return tuple(f"best-fit:theta={theta}" for theta in _THETAS)


def configuration_of(
    tried: list[Configuration | Excluded], key: tuple[str, str]
) -> Configuration:
    """Return the configuration of a GPU type and layout among those tried."""
    for configuration in tried:
        if isinstance(configuration, Configuration) and configuration.key == key:
            return configuration
    raise InputError(f"{key[0]}, {key[1]}: not among the configurations of the plan")


def prefilling(
    inputs: PlanInputs, decoding: list[Configuration]
) -> list[Configuration]:
    """Return the configurations of replicas for prompts."""
    if inputs.settings.prefill_tp is None:
        return decoding
    shares = bool(inputs.load.base.prefix_tokens.any())
    return [
        without_states(
            with_caching_as_used(each, inputs.settings, shares), inputs.settings, shares
        )
        for each in _of_prefill_tp(inputs.settings)
    ]


def _of_prefill_tp(settings: PlanSettings) -> list[Configuration]:
    """Return the configurations of the degree that the user gave; none: not given."""
    if settings.prefill_tp is None:
        return []
    return runnable(list(configurations(of_prompts(settings))))
