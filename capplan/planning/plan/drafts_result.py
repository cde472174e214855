"""What drafting tokens is worth to a plan, frozen."""

from dataclasses import dataclass


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
