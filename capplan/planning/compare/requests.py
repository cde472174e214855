"""Requests of a comparison, at any rate or of any number of users."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.errors import collected_warnings
from capplan.planning.compare.longest_request import kept_by_class, slo_of_rest
from capplan.planning.evaluate.highest_rate import STEP
from capplan.planning.load.load import Load, UserLoad, scaled
from capplan.planning.load.traffic import asked, judged, read_requests, read_traffic
from capplan.planning.settings.plan import PlanSettings
from capplan.workload.slo import Slo
from capplan.workload.users import MOST_USERS, Users


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests of a comparison; systems with one predictor share them.

    How much is asked is a rate or, of users who wait for their answers, their number:
    an amount of either is a number here. Some systems refuse requests longer than their
    room, which then count as missed; users ask another one in their place.
    """

    read: Load  # as read, without those refused
    load: Load  # as systems are judged by it, at its own rate or with its own users
    settings: PlanSettings
    slo: Slo  # of those that are not refused
    configurations: tuple[Configuration, ...]  # that may serve them
    rng: np.random.Generator  # as it was after reading
    # of all, those refused too; of users it is not known [requests/s]
    rate_per_s: float
    refused_share: float = 0.0  # of all requests
    refused_token_share: float = 0.0  # of their tokens, prompts and outputs
    kept_by_class: Mapping[str, float] = field(default_factory=dict)
    # by amount, with the samples drawn of them
    _loads: dict[float, Load] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, settings: PlanSettings, slo: Slo, able: Sequence[Configuration]
    ) -> "Requests":
        """Return the requests of the settings."""
        rng = np.random.default_rng(settings.seed)
        users = settings.asking
        read: Load = (
            read_traffic(settings, rng)
            if users is None
            else asked(users, read_requests(settings), settings, rng)
        )
        load = judged(read, settings, slo, deepcopy(rng), able)
        rate_per_s = load.rate_per_s  # of the process, where there is one
        if users is None and not load.is_resampled:
            rate_per_s = read.base.rate_per_s
        return cls(read, load, settings, slo, tuple(able), rng, rate_per_s)

    @property
    def users(self) -> Users | None:
        """The users who ask; None where requests arrive."""
        return self.read.users if isinstance(self.read, UserLoad) else None

    @property
    def own(self) -> float:
        """The amount asked by the settings. [requests/s, or users]"""
        return self.rate_per_s if self.users is None else float(self.users.count)

    def rounded(self, amount: float) -> float:
        """Return an amount that there can be: whole users. [requests/s, or users]"""
        if self.users is None:
            return amount
        return float(min(max(1, round(amount)), MOST_USERS))

    def step(self, amount: float) -> float:
        """Return the amount that is looked at for one near it: a step from the own.

        So that all searches look at the same amounts. [requests/s, or users]
        """
        if self.users is not None:
            return self.rounded(amount)
        return float(self.own * STEP ** round(math.log(amount / self.own, STEP)))

    def above(self, amount: float) -> float:
        """Return the next higher amount to look at. [requests/s, or users]"""
        least = amount if self.users is None else amount + 1
        return max(least, self.step(amount * STEP))

    def said(self, amount: float) -> str:
        """Return an amount with its unit."""
        if self.users is None:
            return f"{amount:g} requests/s"
        return f"{amount:,.0f} user{'' if amount == 1 else 's'}"

    def within(self, room_tokens: int | None) -> "Requests":
        """Return the requests without those longer than the room of a system."""
        base = self.read.base
        tokens = base.prompt_tokens + base.output_tokens
        kept = tokens <= (room_tokens or math.inf)
        if kept.all():
            return self
        slo = slo_of_rest(self.slo, base, kept)
        read = replace(
            self.read,
            base=base.select(np.flatnonzero(kept)),
            rate_per_s=self.read.rate_per_s * float(kept.mean()),
            _samples={},
        )
        rng = deepcopy(self.rng)
        return replace(
            self,
            read=read,
            load=judged(read, self.settings, slo, rng, self.configurations),
            slo=slo,
            refused_share=float((~kept).mean()),
            refused_token_share=float(tokens[~kept].sum() / tokens.sum()),
            kept_by_class=kept_by_class(base, kept),
            _loads={},
        )

    def at(self, amount: float) -> Load:
        """Return the requests at a rate of all, or of so many users.

        At another rate their arrivals are scaled in time. [requests/s, or users]
        """
        if amount == self.own or math.isnan(self.own):
            return self.load
        if amount not in self._loads:
            self._loads[amount] = self._at(amount)
        return self._loads[amount]

    def _at(self, amount: float) -> Load:
        if isinstance(self.read, UserLoad):
            users = replace(self.read.users, count=int(amount))
            of = replace(self.read, process=str(users), users=users, _samples={})
            with collected_warnings():  # those of the users asked for were said
                return self._judged(of)
        return self._judged(scaled(self.read, amount / self.rate_per_s))

    def _judged(self, load: Load) -> Load:
        rng = deepcopy(self.rng)
        return judged(load, self.settings, self.slo, rng, self.configurations)
