"""What a serving system needs: a plan of it, about the requests of all systems."""

from dataclasses import dataclass, field, replace

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.errors import CapplanError, InputError, collected_warnings
from capplan.planning.compare.equal_hardware import OperatingPoint
from capplan.planning.compare.longest_request import room_tokens
from capplan.planning.compare.requests import Requests
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.compare.systems import SYSTEMS, ResolvedSystem, resolve
from capplan.planning.configure.configuration import (
    configurations,
    runnable,
    with_budget,
)
from capplan.planning.configure.excluded import Excluded
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import PlanInputs, Progress, plan_inputs, unseen
from capplan.planning.plan.planned import planned
from capplan.planning.plan.result import Plan
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.checks import refusal
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.schedulers.own_file import file_of
from capplan.workload.predictors import PredictionError, prediction_error
from capplan.workload.slo import Slo

_MANY = 3
"""Candidates from which on a plan gives each replica count fewer samples."""
_BEFORE = "not simulated before Ctrl-C"


@dataclass(frozen=True, eq=False)
class SystemResult:
    """What a serving system needs, and what it does on the hardware of all."""

    name: str  # as asked for
    source: str  # of its flags
    given: tuple[str, ...]  # what the scenario gives in place of its flags
    status: str  # "feasible", "infeasible", "refused" or "interrupted"
    reason: str = ""  # why it is not feasible
    scheduler: str = ""  # with all settings
    engine: EngineSettings | None = None  # as simulated; None where none was
    router: str = ""
    predictor: str = ""  # of output lengths; empty: policies see the true ones
    prediction_error: PredictionError | None = None
    published_prediction_error: float | None = None  # mean, as a share of the true
    predictions_matter: bool | None = None  # to any time, at the own rate; None: none
    candidate: Candidate | None = None  # the best; None unless feasible
    # the best with seats and token budget as published, and with those of all and a
    # tuned budget: ``candidate`` is one of them; None unless feasible
    published: Candidate | None = None
    tuned: Candidate | None = None
    room_tokens: int | None = None  # of the longest request it takes; None: any
    refused_share: float = 0.0  # of all requests, which are longer and count as missed
    refused_token_share: float = 0.0  # of all tokens, which load it with nothing
    # on equal hardware, at the rate of the requests or with their users
    served: OperatingPoint | None = None
    max_rate_per_s: float | None = None  # that it holds there; None: none, or unknown
    max_users: int | None = None  # in place of a rate, where users ask
    binding_setting: str = ""  # what keeps it from more
    served_engine: EngineSettings | None = None  # there, with the budget that is best
    curve: tuple[OperatingPoint, ...] = ()  # there, at the rates of its curve
    not_served: str = ""  # why it was not simulated there, or not to the end

    @property
    def most(self) -> float | None:
        """The rate or the users that it holds there. [requests/s, or users]"""
        return self.max_rate_per_s if self.max_users is None else self.max_users


@dataclass(frozen=True, eq=False)
class Priced:
    """A system with its price, and what it takes to simulate it elsewhere."""

    result: SystemResult
    requests: Requests | None = None  # None where it did not run
    settings: PlanSettings | None = None  # of its plan, where it did
    configurations: tuple[Configuration, ...] = ()
    budgets: tuple[int, ...] = ()
    routers: dict[tuple[str, str], str] = field(default_factory=dict)  # by GPU, layout
    warnings: tuple[str, ...] = ()


def requests_of(settings: PlanSettings, slo: Slo) -> Requests:
    """Return the requests of the settings, which any of their GPUs may serve."""
    return Requests.of(settings, slo, runnable(list(configurations(settings))))


class Pricing:
    """Plans of systems about the same requests."""

    def __init__(
        self,
        settings: CompareSettings,
        plain: PlanSettings,
        requests: Requests,
        stopped: Stopped | None,
    ) -> None:
        self._settings, self._plain = settings, plain
        self._progress: Progress = unseen  # of the system at hand
        self._stopped = stopped
        base = requests.load.base
        self._room_tokens = settings.max_model_len or room_tokens(base, requests.slo)
        self._predicted = (
            base.predicted_output_tokens is not None and not settings.predictor
        )
        self._by_predictor = {requests.settings.predictor: requests}

    def of(self, name: str, progress: Progress) -> Priced:
        """Return a system with its plan, and that with its other flags."""
        self._progress = progress
        published = self._settings.published
        row, other = self._plan(name, published), None
        best = row.result.candidate
        tuned_nothing = (
            best is not None
            and best.run is not None
            and best.run.configuration.engine == row.result.engine
        )
        ours, theirs = self._asked(name, published), self._asked(name, not published)
        alike = ours.settings.model_copy(update={"tune": theirs.settings.tune})
        if alike == theirs.settings and (tuned_nothing and not published):
            other = best
        elif row.requests is not None and not self._is_stopped():
            with collected_warnings():  # they are of what is not shown
                other = self._plan(name, not published).result.candidate
        both = (best, other) if published else (other, best)
        result = replace(row.result, published=both[0], tuned=both[1])
        return replace(row, result=result)

    def _is_stopped(self) -> bool:
        return self._stopped is not None and self._stopped()

    def _asked(self, name: str, published: bool) -> ResolvedSystem:
        return resolve(
            name,
            self._plain,
            self._room_tokens,
            predicted=self._predicted,
            published=published,
        )

    def _plan(self, name: str, published: bool) -> Priced:
        asked = self._asked(name, published)
        result = SystemResult(
            asked.name, asked.source, asked.given, "interrupted", _BEFORE
        )
        try:
            return self._planned(asked, result)
        except InputError as error:
            return Priced(replace(result, status="refused", reason=str(error)))
        except CapplanError as error:
            own = file_of(asked.settings.scheduler or "")
            if not own:
                raise
            reason = f"{error}; try check-scheduler {own}"
            return Priced(replace(result, status="refused", reason=reason))

    def _planned(self, asked: ResolvedSystem, result: SystemResult) -> Priced:
        requests = self._requests(asked.settings.predictor).within(asked.room_tokens)
        inputs, tried = plan_inputs(asked.settings, requests.load)
        able = tuple(row for row in tried if isinstance(row, Configuration))
        base = requests.load.base
        result = replace(
            result,
            scheduler=str(able[0].engine.scheduler),
            engine=able[0].engine,
            router=inputs.routers[0],
            predictor=asked.settings.predictor or "",
            prediction_error=None
            if base.predicted_output_tokens is None
            else prediction_error(base),
            published_prediction_error=SYSTEMS[asked.name].prediction_error
            if asked.name in SYSTEMS
            else None,
            room_tokens=asked.room_tokens,
            refused_share=requests.refused_share,
            refused_token_share=requests.refused_token_share,
        )
        refusals = [refusal(base, row.engine) for row in able]
        if all(refusals):
            return Priced(replace(result, status="refused", reason=refusals[0]))
        if self._is_stopped():
            return Priced(result)
        inputs = replace(
            inputs,
            slo=requests.slo,
            candidate_count=max(_MANY, inputs.candidate_count),
            stopped=self._stopped,
            best_only=True,
            only_disaggregated=asked.settings.disaggregated,
            budgets=asked.budgets,
        )
        plan = self._tuned(asked, inputs, tried)
        routers = {
            row.key: row.run.deployment.router
            for row in plan.candidates
            if row.run is not None
        }
        best = plan.best
        result = replace(
            result,
            status=plan.status,
            reason=plan.infeasible_reason or "",
            router=plan.router,
            candidate=best,
        )
        return Priced(result, requests, asked.settings, able, asked.budgets, routers)

    def _tuned(
        self,
        asked: ResolvedSystem,
        inputs: PlanInputs,
        tried: list[Configuration | Excluded],
    ) -> Plan:
        """Return the plan; with a smaller budget where the first is infeasible."""
        plan = planned(inputs, tried, self._progress)
        for budget in asked.budgets:
            if plan.status != "infeasible" or self._is_stopped():
                break
            smaller = [
                with_budget(row, budget)
                if isinstance(row, Configuration)
                and budget < row.engine.max_num_batched_tokens
                else row
                for row in tried
            ]
            found = planned(inputs, smaller, self._progress)
            plan = found if found.best is not None else plan
        return plan

    def _requests(self, predictor: str | None) -> Requests:
        if predictor not in self._by_predictor:
            first = next(iter(self._by_predictor.values()))
            kept = first.settings.model_copy(update={"predictor": predictor})
            with collected_warnings():
                self._by_predictor[predictor] = requests_of(kept, first.slo)
        return self._by_predictor[predictor]
