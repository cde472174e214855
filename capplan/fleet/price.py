"""The price of a GPU hour and its source."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from capplan.errors import InputError

GIVEN = "given by the user"
"""Source of a price that the user gave."""


@dataclass(frozen=True)
class Price:
    """The price of a GPU hour and its source."""

    usd_per_gpu_h: float  # of one GPU: of a node, over its GPUs [$/h]
    source: str  # whose price it is, of the user's file its document too; or GIVEN
    as_of: str = ""  # date as the source states it; empty when undated
    note: str = ""  # for people: how it was chosen, and what is doubtful about it
    is_guess: bool = False  # nobody asks it
    is_stale: bool = False  # undated, or old on the day of the plan
    kind: str = "on-demand"  # as of an Offer, with its months
    provider: str = ""
    node: str = ""  # what the provider calls the offer; empty where not known
    gpus_per_node: int | None = None  # GPUs that are rented together; None: not known
    nvlink_domain_gpus: int | None = None  # as of an Offer
    # nodes that hold a replica, of every provider; none: these alone
    asked: tuple["Price", ...] = ()
    left_out: tuple[str, ...] = ()  # providers that are not bought of, and why

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_per_gpu_h) and self.usd_per_gpu_h > 0):
            raise InputError(
                f"price is {self.usd_per_gpu_h} $/h ({self.source}); "
                "expected more than 0"
            )

    @property
    def bought(self) -> tuple[str, str, int | None, float]:
        """What is bought at it: equal where replicas can share nodes."""
        return self.provider, self.node, self.gpus_per_node, self.usd_per_gpu_h

    @property
    def asks(self) -> tuple["Price", ...]:
        """What may be bought: nodes of every provider that hold a replica."""
        return self.asked or (self,)

    @property
    def providers(self) -> tuple[str, ...]:
        """Who asks, each once."""
        return tuple(dict.fromkeys(ask.provider for ask in self.asks))

    @property
    def unit(self) -> str:
        """What is rented: a node by its name, or a GPU."""
        if self.gpus_per_node is None:
            return "GPU"
        return self.node or f"node of {self.gpus_per_node}"

    @property
    def told(self) -> str:
        """Source, date and what is to be known of it."""
        return ", ".join(filter(None, (self.source, self.as_of, self.note)))

    @property
    def usd_per_node_h(self) -> float:
        """Price of one node, of a GPU where these are sold one by one. [$/h]"""
        return self.usd_per_gpu_h * (self.gpus_per_node or 1)

    def of(self, provider: str) -> "Price":
        """Return the price with the nodes of one provider alone."""
        own = tuple(ask for ask in self.asks if ask.provider == provider)
        return replace(own[0], asked=own, left_out=self.left_out)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Price":
        """Return the price of a document, as a plan writes it.

        An earlier release wrote no nodes of other providers.
        """
        known = {f.name: document[f.name] for f in fields(cls) if f.name in document}
        asked = [ask for ask in known.get("asked", ()) if isinstance(ask, Mapping)]
        known["asked"] = tuple(map(cls.read, asked))
        return cls(**{**known, "left_out": tuple(known.get("left_out", ()))})
