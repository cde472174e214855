"""Offers of GPUs and nodes: at what price, how they are billed, how far to trust it."""

import math
from dataclasses import dataclass
from datetime import date

from capplan.errors import InputError
from capplan.fleet.nodes import holds

STALE_DAYS = 90
"""Older prices give a warning. [d]"""
OUTDATED_DAYS = 270
"""Older offers of the catalog are listed and not bought. [d]"""
INDEX = "market index"
"""Provider of prices that nobody asks: of it no node can be bought."""

KINDS = {
    "on-demand": "by the hour, without a commitment",
    "spot": "cheaper, and taken back at short notice",
    "reserved": "these nodes for a term",
    "flex": "a number of dollars an hour for a term, of any node",
    "minimum": "by the hour, with a least bill",
    "owned": "bought, as dollars for each hour of its life",
}
"""Ways to pay."""

OLD_KINDS = {"reserved-1y": ("reserved", "12"), "reserved-3y": ("reserved", "36")}
"""Ways to pay with their months, as older files have them."""

BASES = {
    "list": "list price",  # that the provider asks of anybody
    "observed": "observed price",  # that somebody saw or paid
    "best-effort": "best-effort price",  # without a promise to keep the node
    "starting-at": "lowest price",  # of several
    "superseded": "superseded price",  # replaced by a later one
    "guess": "guess",  # asked by nobody
}
"""What an offer rests on; of one provider the first two count before the others."""
_FIRM = ("list", "observed")

_AT_LEAST = {
    "gpus_per_node": 1,
    "nvlink_domain_gpus": 1,
    "term_months": 1,
    "min_nodes": 0,
    "min_months": 0,
    "min_usd_per_month": 0,
    "billing_step_s": 1,
    "notice_s": 0,
}
_SHARES = ("upfront_share", "interruption_per_month", "max_share")


@dataclass(frozen=True)
class Offer:
    """The price of a GPU, or of the GPUs of a node, at one provider."""

    gpu: str
    usd_per_gpu_h: float  # of one GPU: of a node, over its GPUs [$/h]
    provider: str = ""
    node: str = ""  # what the provider calls it; empty where its size is not known
    kind: str = "on-demand"  # of KINDS
    # GPUs that are rented together; None where it is not known
    gpus_per_node: int | None = None
    # GPUs that NVLink or Infinity Fabric joins, 1 without; None where it is not known
    nvlink_domain_gpus: int | None = None
    term_months: int | None = None  # that is charged in any case [months]
    upfront_share: float = 0.0  # of the term's price that is paid when it begins
    min_nodes: int = 0
    min_months: int = 0  # [months]
    min_usd_per_month: float = 0.0  # least bill [$]
    billing_step_s: int = 1  # use is rounded up to multiples of it [s]
    notice_s: float | None = None  # of spot nodes before they are taken back [s]
    interruption_per_month: float | None = None  # share of spot nodes taken back
    max_share: float | None = None  # of the nodes, that may be spot
    region: str = ""
    as_of: str = ""  # YYYY-MM-DD or YYYY-MM; empty when undated
    source: str = ""  # document
    note: str = ""  # remarks
    basis: str = "list"  # of BASES

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_per_gpu_h) and self.usd_per_gpu_h > 0):
            raise InputError(
                f"usd_per_gpu_h is {self.usd_per_gpu_h}; expected more than 0"
            )
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(
                    f"{name} is {value}; expected {least} or more, or nothing"
                )
        for name in _SHARES:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{name} is {value}; expected a share from 0 to 1")
        for name, known in (("kind", KINDS), ("basis", BASES)):
            if (text := getattr(self, name)) not in known:
                raise InputError(
                    f"{name} is {text!r}; expected one of {', '.join(known)}"
                )
        if self.kind in ("reserved", "flex") and self.term_months is None:
            raise InputError(
                f"kind is {self.kind} and term_months is empty; expected its months, "
                "such as 12 or 36"
            )
        self.day()

    @property
    def whose(self) -> str:
        """Whose price it is and what it rests on; the document is ``source``."""
        return f"{self.provider} {BASES[self.basis]}".strip()

    @property
    def usd_per_node_h(self) -> float | None:
        """Price of a node; None where its size is not known. [$/h]"""
        if self.gpus_per_node is None:
            return None
        return self.usd_per_gpu_h * self.gpus_per_node

    @property
    def name(self) -> str:
        """Provider and node, as far as they are known."""
        return " ".join(text for text in (self.provider, self.node) if text)

    @property
    def kind_and_term(self) -> str:
        """Kind, with its months: ``reserved, 12 months``."""
        months = "" if self.term_months is None else f", {self.term_months} months"
        return self.kind + months

    def day(self) -> date | None:
        """Return the date, or the first of its month; None when undated."""
        if not self.as_of:
            return None
        text = self.as_of if len(self.as_of) > 7 else f"{self.as_of}-01"
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise InputError(
                f"as_of is {self.as_of!r}; expected YYYY-MM-DD, YYYY-MM or nothing"
            ) from None

    @property
    def listed(self) -> bool:
        """Whether it is a list price, not a guess or a best-effort offer."""
        return self.basis in _FIRM

    def is_outdated(self, today: date) -> bool:
        """Return whether it is too old to be bought."""
        day = self.day()
        return day is not None and (today - day).days > OUTDATED_DAYS

    def holds(self, tp: int) -> bool:
        """Whether its node is known to hold a replica of this TP degree."""
        return tp == 1 or holds(self.gpus_per_node, self.nvlink_domain_gpus, tp)

    def node_gap(self, tp: int) -> str:
        """Return why its node holds no replica of a degree; empty when it does."""
        if self.holds(tp):
            return ""
        if self.gpus_per_node is None:
            return "node size not known"
        if self.gpus_per_node >= tp:
            return f"its NVLink joins {self.nvlink_domain_gpus} GPUs, not {tp}"
        ends = "" if self.gpus_per_node == 1 else "s"
        return f"it has {self.gpus_per_node} GPU{ends}, not {tp}"

    @property
    def is_guess(self) -> bool:
        """Whether nobody asks this price."""
        return self.basis == "guess"

    def staleness(self, today: date) -> str:
        """Return that it is undated or old; empty when it is not."""
        if (day := self.day()) is None:
            return "it is undated"
        age_days = (today - day).days
        return f"it is {age_days} days old" if age_days > STALE_DAYS else ""
