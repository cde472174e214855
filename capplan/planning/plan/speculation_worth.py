"""Up to which load drafting pays, and how many drafts must be accepted at a plan's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.speculation import ACCEPTANCE_ERROR
from capplan.latency.contract import LatencyTables
from capplan.latency.rank_bounds import equal
from capplan.planning.configure.speculation import accepting
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.plan.told import Told
from capplan.planning.size.candidates import (
    Tuning,
    cannot_serve,
    evaluate,
    is_tuned,
    tune,
)
from capplan.planning.size.disaggregated import pools_accepting
from capplan.planning.size.prospects import Prospect

if TYPE_CHECKING:
    from capplan.planning.plan.result import Plan


@dataclass(frozen=True)
class DraftsWorth:
    """Up to which load drafting pays on the best replica."""

    draft_method: str
    drafts: int  # tokens drafted for a request in each iteration
    tokens_per_iteration: float  # that it gives a request in the mean [tokens]
    acceptance_source: str
    acceptance_how: str  # as of an assumption
    pays_up_to_batch: int  # requests that decode at once; 0: never [requests]
    pays_up_to_rate_per_s: float  # at which so many decode [requests/s]
    always_pays: bool  # up to the largest batch that seats, budget and KV allow
    planned_batch: int  # at the planned rate [requests]
    needed_tokens: float  # that an iteration must give there, to pay [tokens]
    # with each rate of acceptance 10 % lower and higher; None where none is feasible
    gpu_count_if_fewer_accepted: int | None = None
    gpu_count_if_more_accepted: int | None = None


@dataclass(frozen=True)
class DraftsTried:
    """A number of drafted tokens that a plan tried."""

    drafts: int
    gpu_count: int | None  # of the best with it; None where none is feasible
    usd_per_h: float | None  # None without a price too [$]


@dataclass(frozen=True)
class _Replica:
    """Iterations of a replica that serves requests of one size."""

    configuration: Configuration
    prompt_tokens: float  # of a request [tokens]
    output_tokens: float  # [tokens]
    prefills: bool = True  # else it has its prompts from others

    def _tables(self, *, drafts: bool) -> LatencyTables:
        """Return the times of iterations; of ranks all have the same work."""
        tables, ranks = self.configuration.tables, self.configuration.rank_tables
        speculation = self.configuration.engine.speculation
        if ranks is None:
            return speculation.tables(tables) if speculation and drafts else tables
        return equal(
            speculation.rank_tables(ranks) if speculation and drafts else ranks
        )

    def decode_s(self, *, drafts: bool) -> np.ndarray:
        """Return the time of decode iterations by batch. [s]"""
        tables = self._tables(drafts=drafts)
        batch = np.arange(len(tables.decode_s))
        context = self.prompt_tokens + self.output_tokens / 2
        return tables.decode_s + tables.decode_context_s * batch * context

    def rate_per_s(self) -> np.ndarray:
        """Return the requests/s at which so many decode, by batch; 0 for none."""
        engine, tables = self.configuration.engine, self._tables(drafts=False)
        assert engine.speculation is not None
        budget = engine.max_num_batched_tokens
        tokens = min(max(round(self.prompt_tokens), 1), budget, len(tables.fused_s) - 1)
        prompt_s = float(tables.fused_s[tokens] - tables.fused_s[1])
        prompt_s *= self.prompt_tokens / tokens * int(self.prefills)
        steps = (self.output_tokens - 1) / engine.speculation.mean_tokens
        batch = np.arange(len(tables.decode_s))
        took_s = batch * prompt_s + steps * self.decode_s(drafts=True)
        return batch / np.maximum(took_s, 1e-300)

    @property
    def most(self) -> int:
        """Largest batch that seats, budget and KV allow. [requests]"""
        engine = self.configuration.engine
        assert engine.speculation is not None
        tokens = self.prompt_tokens + self.output_tokens / 2
        return max(
            1,
            min(
                engine.max_num_seqs,
                engine.max_num_batched_tokens // engine.speculation.verified_tokens,
                int(engine.capacity_at(tokens) / tokens),
            ),
        )


def drafts_of(told: Told) -> DraftsWorth | None:
    """Return what drafting is worth, with the GPUs where fewer and more are accepted.

    The bound is that of drafts that are all accepted, so that it holds for any rates.
    """
    inputs, best = told.inputs, told.best
    configuration = (
        best.pools[-1].configuration if best.pools else told.prospect.configuration
    )
    worth = drafts_worth(told.plan, configuration)
    if told.plan.interrupted or worth is None:
        return worth
    told.progress("pricing the best with fewer and with more drafts accepted")
    fewer, more = (
        pools_accepting(inputs, best, times)
        if best.pools
        else gpus_with(
            inputs,
            replace(told.prospect, held=0),
            accepting(configuration, times).engine,
        )
        for times in (1 - ACCEPTANCE_ERROR, 1 + ACCEPTANCE_ERROR)
    )
    if inputs.is_stopped():
        return worth  # a count that was not found is no answer
    return replace(
        worth, gpu_count_if_fewer_accepted=fewer, gpu_count_if_more_accepted=more
    )


def gpus_without_caching(told: Told) -> int | None:
    """Return the GPUs that the best needs with prefix caching off.

    None where it is off, where no prefix is shared, where no count serves, and of
    conversations. The bound with caching holds without it.
    """
    if told.best.pools or told.run.sessions is not None:
        return None
    told.progress("pricing the best without prefix caching")
    engine = told.prospect.configuration.engine
    if not engine.prefix_caching or not told.inputs.trace.prefix_tokens.any():
        return None
    return gpus_with(told.inputs, told.prospect, replace(engine, prefix_caching=False))


def gpus_with(
    inputs: PlanInputs, prospect: Prospect, engine: EngineSettings
) -> int | None:
    """Return the GPUs of a configuration with another engine; None: no count serves."""
    configuration = replace(prospect.configuration, engine=engine)
    if cannot_serve(inputs, configuration) is not None:
        return None
    prospect = replace(prospect, configuration=configuration)
    candidate, _ = evaluate(inputs, prospect)
    if candidate.replica_count is not None and is_tuned(inputs, configuration):
        assert candidate.run is not None
        router = candidate.run.deployment.router
        tuning = Tuning(prospect, router, candidate.replica_count - 1)
        candidate = tune(inputs, tuning).candidate or candidate
    return candidate.gpu_count


def drafts_worth(plan: "Plan", configuration: Configuration) -> DraftsWorth | None:
    """Return what drafting is worth on a plan's best replica; None without drafts.

    None on stages too, among which a replica's decodes are divided.
    A decode iteration with drafts over one without is how many tokens it must give;
    prompts are computed beside the decodes, at the mean lengths of the requests. Where
    they are not, it is a replica that decodes.
    """
    speculation = configuration.engine.speculation
    best = plan.best
    if speculation is None or configuration.engine.pipeline is not None:
        return None
    if best is None or plan.mean_output_tokens <= 1:
        return None
    count = best.pools[-1].replica_count if best.pools else best.replica_count
    if count is None:
        return None
    replica = _Replica(
        configuration,
        plan.mean_prompt_tokens,
        plan.mean_output_tokens,
        prefills=not best.pools,
    )
    most = replica.most
    needed = replica.decode_s(drafts=True) / replica.decode_s(drafts=False)
    needed = needed[1 : most + 1]
    rate_per_s = replica.rate_per_s()[1 : most + 1]
    loses = np.flatnonzero(needed > speculation.mean_tokens)
    pays_up_to = int(loses[0]) if len(loses) else most
    ranks = configuration.engine.data_parallel_size
    of_rank = plan.rate_per_s / (count * ranks)
    at = int(np.searchsorted(rate_per_s, of_rank))
    at = min(at, most - 1)
    return DraftsWorth(
        draft_method=speculation.method,
        drafts=speculation.drafts,
        tokens_per_iteration=speculation.mean_tokens,
        acceptance_source=speculation.source,
        acceptance_how=speculation.how,
        pays_up_to_batch=pays_up_to * ranks,
        pays_up_to_rate_per_s=ranks * float(rate_per_s[pays_up_to - 1])
        if pays_up_to
        else 0.0,
        always_pays=not len(loses),
        planned_batch=(at + 1) * ranks,
        needed_tokens=float(needed[at]),
    )


def best_of_drafts(
    plans: "Mapping[int, Plan]", by_cost: Callable[[Candidate], tuple[float, ...]]
) -> tuple[int, tuple[DraftsTried, ...]]:
    """Return the drafted tokens of the best of plans, and what each of them takes."""
    tried = tuple(
        DraftsTried(
            k,
            None if plan.best is None else plan.best.gpu_count,
            None
            if plan.best is None or plan.best.cost is None
            else plan.best.cost.usd_per_h,
        )
        for k, plan in plans.items()
    )
    feasible = [(by_cost(p.best), k) for k, p in plans.items() if p.best is not None]
    return min(feasible)[1] if feasible else next(iter(plans)), tried
