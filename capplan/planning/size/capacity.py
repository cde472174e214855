"""What given fleets serve within an SLO: the highest rate, and the most users."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Pool
from capplan.errors import HostFullError, InputError, collected_warnings, warn
from capplan.planning.configure.configuration import configurations, runnable
from capplan.planning.configure.deployments import STICKY_ROUTER, one_pool
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.prefix_caching import with_caching_as_used
from capplan.planning.evaluate.binding_setting import binding_setting
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.highest_rate import STEP, highest_decided, highest_rate
from capplan.planning.evaluate.inputs import PlanInputs, Progress, unseen
from capplan.planning.evaluate.judgement import Judgement
from capplan.planning.evaluate.judging import BUDGET_REQUESTS, OF_FEW, Judging
from capplan.planning.evaluate.of_sessions import kv_tokens
from capplan.planning.evaluate.run import Run, judged_run
from capplan.planning.evaluate.saturation import saturation
from capplan.planning.load.conversations import (
    refuse_beside_turns,
    served_sessions,
    session_load,
)
from capplan.planning.load.load import Load, scaled
from capplan.planning.load.session_load import SessionLoad
from capplan.planning.load.traffic import arriving, asked, judged, read_requests
from capplan.planning.load.traffic_over_time import busiest_hour_of_mean
from capplan.planning.money.cost import cost, usd_per_month
from capplan.planning.prove.proof import bound_of
from capplan.planning.settings.groups import MOST_REPLICAS
from capplan.planning.settings.plan import CapacitySettings
from capplan.planning.size.candidates import cannot_serve
from capplan.planning.size.served import ANY_RATE, NOT_MISSED, Capacity, Missed, Served
from capplan.simulator.fleet.fleet import Stopped
from capplan.workload.running import Sessions
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace
from capplan.workload.users import MOST_USERS, Users, think_text

_OF_SATURATION = 0.7
"""Share of what replicas complete at most at which the search begins."""
_METRICS = ("ttft_s", "tpot_s", "e2e_s")


def capacity(
    settings: CapacitySettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> Capacity:
    """Return what fleets of a given size serve: of each configuration, for each SLO.

    A rate, or a number of users, is held where it is decided that the SLO is met; the
    next one, 3 % higher, is not. When ``stopped`` says so, the fleets that were done by
    then are returned; before there is one, KeyboardInterrupt is raised.
    """
    settings.check_size()
    show = progress or unseen
    with collected_warnings() as texts:
        show("reading the requests")
        base = read_requests(settings)
        if base.has_turns:
            _refuse_other_loads(base, settings)
        shares = bool(base.prefix_tokens.any())
        of_plan, objectives = settings.at_rate(None), settings.objectives()
        tried = _of_the_size(settings, configurations(of_plan))
        able, rows = runnable(tried), list[Served]()
        for first, slo in enumerate(objectives):
            fleets = []
            for done, configuration in enumerate(able, first * len(able)):
                known = with_caching_as_used(configuration, of_plan, shares)
                within = slo.describe(base.class_names)
                share = done / (len(able) * len(objectives))
                show(f"loading {known} within {within}", share)
                with suppress(Interrupted):
                    fleets.append(_served(_Search(settings, base, slo, known, stopped)))
            rows += sorted(fleets, key=_rank)
        if stopped is not None and stopped():
            if not rows:
                raise KeyboardInterrupt
            warn("interrupted: fleets that were not loaded by then are left out")
    return Capacity(
        settings.llm,
        tuple(rows),
        tuple(row for row in tried if isinstance(row, Excluded)),
        think_text(*settings.think_time),
        base.source,
        float(base.prompt_tokens.mean()),
        float(base.output_tokens.mean()),
        tuple(texts),
    )


def _refuse_other_loads(trace: Trace, settings: CapacitySettings) -> None:
    """Refuse what says how many sessions there are, and what they have none of."""
    refuse_beside_turns(trace, settings)
    if settings.running is not None or settings.think is not None:
        raise InputError(
            f"{trace.source}: capacity finds the most sessions at once, whose waits "
            "are those of the trace; expected --sessions auto, and --wait-cap to cut "
            "them"
        )


def _rank(row: Served) -> tuple[bool, bool, float]:
    """Return what orders fleets: the most first, of those in doubt last."""
    doubted = row.pool.configuration.is_estimated
    most = row.max_users if row.max_rate_per_s is None else row.max_rate_per_s
    return row.is_failure, doubted, -(most or 0.0)


def _of_the_size(
    settings: CapacitySettings, tried: Iterable[Configuration | Excluded]
) -> list[Configuration | Excluded]:
    """Return what was tried; what is too large for the size is excluded with why."""
    found: list[Configuration | Excluded] = []
    refused: dict[int, InputError] = {}  # the first, by GPUs of a replica
    for row in tried:
        found.append(row)
        if isinstance(row, Configuration):
            try:
                replica_count(settings, row)
            except InputError as error:
                refused.setdefault(row.gpus, error)
                found[-1] = Excluded(row.gpu, row.tp, str(error), row.layout)
    if refused and not any(isinstance(row, Configuration) for row in found):
        raise refused[min(refused)]
    return found


def _served(search: "_Search") -> Served:
    slo, load = search.slo, search.at(search.first_per_s)
    names = load.base.class_names
    served = Served(
        search.deployment,
        slo.describe(names),
        slo.describe_targets(names),
        cost(search.deployment.pools),
    )
    if reason := cannot_serve(search.inputs(load), search.configuration):
        return replace(served, reason=reason)
    if search.of_sessions:
        return _most_sessions(search, served)
    rate_per_s = search.highest_rate()
    if rate_per_s is None:
        return replace(served, reason="no rate is held")
    if rate_per_s == np.inf:
        return replace(served, reason=ANY_RATE)
    missed = _least_above(rate_per_s, search.rates)
    served = replace(
        served,
        max_rate_per_s=rate_per_s,
        max_rate_per_s_interval=(rate_per_s, missed.amount),
        missed=missed,
        busiest_hour_per_s=search.busiest_hour_per_s(rate_per_s),
        upper_bound_rate_per_s=search.bound(rate_per_s),
    )
    users = search.most_users(rate_per_s)
    if users is None:
        return served
    many = users, _least_above(users, search.crowds).amount
    return replace(served, max_users=users, max_users_interval=many)


def _most_sessions(search: "_Search", served: Served) -> Served:
    """Return a fleet with the most conversations that it serves at once."""
    lanes = search.most_sessions()
    if lanes is None:
        return replace(served, reason="not one session is held")
    missed = _least_above(lanes, search.crowds)
    return replace(
        served,
        max_users=lanes,
        max_users_interval=(lanes, missed.amount),
        missed=missed,
    )


def _least_above(held: float, misses: list[Missed]) -> Missed:
    """Return the least load that is missed above one that is held."""
    above = (row for row in misses if row.amount > held)
    return min(above, key=lambda row: row.amount, default=NOT_MISSED)


class _Search:
    """Loads on one fleet, and whether it holds them."""

    def __init__(
        self,
        settings: CapacitySettings,
        trace: Trace,
        slo: Slo,
        configuration: Configuration,
        stopped: Stopped | None,
    ) -> None:
        self._settings, self._trace, self._stopped = settings, trace, stopped
        self.slo, self.configuration = slo, configuration
        count = replica_count(settings, configuration)
        self.deployment = one_pool(settings, configuration, count)
        self.rates: list[Missed] = []
        self.crowds: list[Missed] = []
        self.at = cache(self._at)  # the search may come to a rate again
        self.of_sessions = trace.has_turns
        if self.of_sessions:
            self.first_per_s = float(count)
            sticks = settings.router or STICKY_ROUTER
            self.deployment = replace(self.deployment, router=sticks)
            self._of_plan = settings.at_rate(None)
            return
        own = settings.arrivals is None and trace.arrival_s is not None
        own_per_s = trace.rate_per_s if own else 1.0
        self._of_plan = settings.at_rate(None if own else own_per_s)
        self._read = arriving(trace, self._of_plan, self._rng)
        self._own_per_s = own_per_s
        found = saturation(self._read, configuration, slo)
        completed_per_s = own_per_s if found is None else found.rate_per_s * count
        self.first_per_s = own_per_s if own else _OF_SATURATION * completed_per_s

    def _at(self, rate_per_s: float) -> Load:
        """Return the requests at a rate, or so many sessions at once."""
        if self.of_sessions:
            found = self._settings.snapshot_shares
            lanes = Sessions(_whole(rate_per_s), None, found)
            sessions = session_load(self._trace, lanes, self._settings)
            of = (self._settings, self.slo, [self.configuration])
            return served_sessions(sessions, *of)
        load = scaled(self._read, rate_per_s / self._own_per_s)
        return judged(load, self._settings, self.slo, self._rng, [self.configuration])

    @property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self._settings.seed)

    def inputs(self, load: Load) -> PlanInputs:
        """Return the inputs of a plan for a load, of which there is a bound."""
        router = self.deployment.router
        return PlanInputs(self._of_plan, load, self.slo, (router,), None)

    def highest_rate(self) -> float | None:
        """Return the highest rate that is held; None where none is. [requests/s]"""
        return self._highest(self.at, self.first_per_s, self.rates)

    def most_sessions(self) -> int | None:
        """Return the most sessions at once that are held; None where not one is."""
        load = self.at(self.first_per_s)
        assert isinstance(load, SessionLoad)
        kv = kv_tokens(self.deployment)
        about = max(1, _whole(_OF_SATURATION * kv / load.mix.context_tokens))
        most = self._highest(self.at, about, self.crowds, _whole)
        return None if most is None or most == np.inf else _whole(most)

    def most_users(self, max_rate_per_s: float) -> int | None:
        """Return the most users who are served; None where not one is."""
        think = self._settings.think_time

        @cache
        def of(users: float) -> Load:
            rng = self._rng
            many = Users(_whole(users), *think)
            load = asked(many, self._trace, self._settings, rng)
            slo = replace(self.slo, attain_in_s=None)  # windows are of the log
            return judged(load, self._settings, slo, rng, [self.configuration])

        # By Little's law, from how long requests stay at the highest rate.
        run = self._run(self.at(max_rate_per_s), True)
        stay_s = 0.0 if run is None else run.judgement.percentiles["e2e_s"][0]
        about = _whole(max_rate_per_s * (think[0] + stay_s))
        most = self._highest(of, about, self.crowds, _whole)
        return None if most is None or most == np.inf else _whole(most)

    def _highest(
        self,
        load_of: Callable[[float], Load],
        about: float,
        misses: list[Missed],
        rounded: Callable[[float], float] = float,
    ) -> float | None:
        """Return the highest load that is held; one sample each says where it is."""

        @cache
        def judged(amount: float, first_only: bool) -> tuple[Judgement, str] | None:
            run = self._run(load_of(amount), first_only, metrics=())
            return None if run is None else (run.judgement, binding_setting(run))

        def seems(near: float) -> bool:
            amount = rounded(near)
            # A trace's own arrivals are one sample, which decides as well.
            found = judged(amount, load_of(amount).is_resampled)
            return found is not None and found[0].seems_held

        def holds(near: float) -> bool:
            amount = rounded(near)
            found = judged(amount, False)
            if found is None:
                misses.append(Missed(amount))
                return False
            judgement, binding = found
            if judgement.meets is False:
                of = judgement.attainment
                misses.append(Missed(amount, of.share if of else None, binding))
            return judgement.holds

        return highest_decided(seems, holds, about)

    def busiest_hour_per_s(self, mean_per_s: float) -> float | None:
        """Return the rate of the trace's busiest hour at a mean rate. [requests/s]"""
        own = None if self._settings.arrivals else busiest_hour_of_mean(self._trace)
        return None if own is None else mean_per_s * own

    def bound(self, held_per_s: float) -> float | None:
        """Return a rate at which the lower bound on replicas is above the fleet's."""
        count = self.deployment.pool.replica_count

        def allows(rate_per_s: float) -> bool:
            inputs = self.inputs(self.at(rate_per_s))
            return bound_of(inputs, self.configuration)[0].replica_count <= count

        highest = highest_rate(cache(allows), held_per_s)
        return None if highest is None or highest == np.inf else highest * STEP

    def _run(
        self, load: Load, first_only: bool, metrics: tuple[str, ...] = _METRICS
    ) -> Run | None:
        seed, budget = self._settings.seed, OF_FEW * BUDGET_REQUESTS
        how = Judging(seed, metrics, budget, first_only, stopped=self._stopped)
        try:
            return judged_run(load, self.slo, self.deployment, how)
        except HostFullError:
            return None


def _whole(users: float) -> int:
    return int(min(max(1, round(users)), MOST_USERS))


def replica_count(settings: CapacitySettings, configuration: Configuration) -> int:
    """Return the replicas of a fleet of the size given."""
    gpus, usd = settings.max_gpus, settings.max_usd_per_month
    if settings.replicas is not None:
        return settings.replicas
    if gpus is not None:
        if gpus < configuration.gpus:
            raise InputError(
                f"--max-gpus is {gpus}; a replica of {configuration} takes "
                f"{configuration.gpus}"
            )
        return gpus // configuration.gpus
    assert usd is not None
    monthly = usd_per_month([Pool(configuration, 1)])
    if not monthly:
        raise InputError(
            f"{configuration} has no price; give --price {configuration.gpu}=USD, or "
            "--max-gpus"
        )
    if usd < monthly:
        raise InputError(
            f"--max-usd-per-month is {usd:,.0f}; a replica of {configuration} costs "
            f"{monthly:,.0f} a month"
        )
    return bisect_right(
        range(1, MOST_REPLICAS + 1),
        usd * (1 + 1e-9),  # 3 × 0.1 is more than 0.3
        key=lambda count: usd_per_month([Pool(configuration, count)]) or 0.0,
    )
