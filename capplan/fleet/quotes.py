"""Price quotes: read a file, choose the default price, tell what is unreliable."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from capplan.csv_file import read_rows, refuse_outliers
from capplan.errors import InputError
from capplan.input_file import parse_yaml, read_text

STALE_DAYS = 90
"""Older prices give a warning. [d]"""

BASES = {
    "list": "a price that the provider asks of anybody",
    "observed": "a price that somebody saw or paid",
    "best-effort": "without a promise to keep the node",
    "starting-at": "the lowest of several",
    "superseded": "replaced by a later one",
    "guess": "asked by nobody",
}
"""What a quote rests on; of one provider the first two count before the others."""
_FIRM = ("list", "observed")


@dataclass(frozen=True)
class Quote:
    """The price of one GPU at one provider."""

    gpu: str
    provider: str
    sku: str  # the provider's name of the offer
    kind: str  # "on-demand", "spot", "reserved", "reserved-1y" or "reserved-3y"
    usd_per_gpu_h: float  # of one GPU [$/h]
    as_of: str  # YYYY-MM-DD or YYYY-MM; empty when undated
    source: str  # document
    note: str = ""  # remarks
    # of the node that the price is for, the largest of several at one price per GPU;
    # None where it is not known
    gpus_per_node: int | None = None
    # GPUs that NVLink or Infinity Fabric joins, 1 without; None where it is not known
    nvlink_domain_gpus: int | None = None
    basis: str = "list"  # of BASES

    def __post_init__(self) -> None:
        """Refuse a price that is not positive, an empty node or a malformed date."""
        if not (math.isfinite(self.usd_per_gpu_h) and self.usd_per_gpu_h > 0):
            raise InputError(
                f"usd_per_gpu_h is {self.usd_per_gpu_h}; expected more than 0"
            )
        for name in ("gpus_per_node", "nvlink_domain_gpus"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise InputError(f"{name} is {count}; expected 1 or more, or nothing")
        if self.basis not in BASES:
            raise InputError(
                f"basis is {self.basis!r}; expected one of {', '.join(BASES)}"
            )
        self.day()

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

    def holds(self, tp: int) -> bool:
        """Whether its node is known to hold a replica of this TP degree."""
        return tp == 1 or (self.gpus_per_node or 0) >= tp

    def node_gap(self, tp: int) -> str:
        """Return why a replica may cost more than this price; empty when it fits."""
        if self.holds(tp):
            return ""
        if self.gpus_per_node is None:
            return "node size not known"
        return (
            f"known only for a {self.gpus_per_node}-GPU node; "
            f"one with {tp} GPUs may cost more per GPU"
        )

    @property
    def is_guess(self) -> bool:
        """Whether nobody asks this price."""
        return self.basis == "guess"

    def staleness(self, today: date) -> str:
        """Return that it is undated or old; empty when it is not."""
        day = self.day()
        if day is None:
            return "it is undated"
        age_days = (today - day).days
        return f"it is {age_days} days old" if age_days > STALE_DAYS else ""


def read_quotes(path: Path, canonical: Callable[[str], str]) -> list[Quote]:
    """Return the quotes of a CSV, or of a YAML mapping of GPU to price.

    A CSV has the columns ``gpu``, ``usd_per_gpu_h`` and optionally the others of
    :class:`Quote`. A YAML maps a GPU to its price, or to a mapping of those names.
    ``canonical`` returns the catalog's name of a GPU.
    """
    rows: list[tuple[str, Mapping[str, Any]]]
    if path.suffix in (".yaml", ".yml"):
        rows = _yaml_rows(path, read_text(path))
    else:
        table = read_rows(path, ("gpu", "usd_per_gpu_h"))[1]
        rows = [(f"{path}:{line}", cells) for line, cells in table]
    quotes = []
    for where, row in rows:
        try:
            quotes.append(_quote(row, canonical, path.name))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    prices = [quote.usd_per_gpu_h for quote in quotes]
    places = (where for where, _ in rows)
    refuse_outliers("usd_per_gpu_h", zip(places, prices, strict=True))
    return quotes


def _yaml_rows(path: Path, text: str) -> list[tuple[str, Mapping[str, Any]]]:
    loaded, _ = parse_yaml(path, text)
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected a mapping such as H100-SXM: 2.49")
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for name, value in loaded.items():
        row = value if isinstance(value, dict) else {"usd_per_gpu_h": value}
        rows.append((f"{path}: {name}", {"gpu": name, **row}))
    return rows


def _quote(
    row: Mapping[str, Any], canonical: Callable[[str], str], file_name: str
) -> Quote:
    def text(column: str, otherwise: str = "") -> str:
        value = row.get(column)
        return otherwise if value in (None, "") else str(value).strip()

    def whole(column: str) -> int | None:
        value = text(column)
        try:
            return int(value) if value else None
        except ValueError:
            raise InputError(
                f"{column} is {value!r}; expected a whole number, or nothing"
            ) from None

    price = text("usd_per_gpu_h")
    try:
        usd_per_gpu_h = float(price)
    except ValueError:
        raise InputError(
            f"usd_per_gpu_h is {price!r}; expected a number of dollars"
        ) from None
    return Quote(
        gpu=canonical(text("gpu")),
        provider=text("provider"),
        sku=text("sku"),
        kind=text("kind", "on-demand"),
        usd_per_gpu_h=usd_per_gpu_h,
        as_of=text("as_of"),
        source=text("source", file_name),
        note=text("note"),
        gpus_per_node=whole("gpus_per_node"),
        nvlink_domain_gpus=whole("nvlink_domain_gpus"),
        basis=text("basis", "list"),
    )


def middle_quote(quotes: list[Quote], tp: int = 1) -> tuple[Quote, str] | None:
    """Return the default of quotes for one GPU and kind, and how it was chosen.

    It is the median (the lower of two) over the providers, and so always an actual
    price. Only nodes that hold a replica of ``tp`` GPUs count; without any, those
    whose size is not known, else the largest. Of these, undated quotes count only
    without dated ones, guesses and best-effort offers only without any others. Each
    provider counts with its smallest node, and of that with its newest quote (the
    cheapest of one day).
    """
    holding = [quote for quote in quotes if quote.holds(tp)]
    unknown = [quote for quote in quotes if quote.gpus_per_node is None]
    most = max((quote.gpus_per_node or 0 for quote in quotes), default=0)
    able = holding or unknown or [q for q in quotes if q.gpus_per_node == most]
    listed = [quote for quote in able if quote.listed]
    pool = [quote for quote in listed if quote.as_of] or listed or able
    if not pool:
        return None
    by_provider: dict[str, Quote] = {}
    for quote in sorted(pool, key=_preference):
        by_provider[quote.provider] = quote
    ranked = sorted(by_provider.values(), key=lambda q: (q.usd_per_gpu_h, q.provider))
    chosen = ranked[(len(ranked) - 1) // 2]
    nodes = f" for nodes of {tp} GPUs or more" if tp > 1 and holding else ""
    if len(ranked) == 1:
        return chosen, f"the only provider known{nodes}"
    low, high = ranked[0].usd_per_gpu_h, ranked[-1].usd_per_gpu_h
    return chosen, (
        f"the middle of {len(ranked)} providers that ask ${low:.2f} to ${high:.2f}"
        f"{nodes}"
    )


def _preference(quote: Quote) -> tuple[int, date, float]:
    """Sort key that puts a provider's quote to count with last."""
    return (-(quote.gpus_per_node or 1), quote.day() or date.min, -quote.usd_per_gpu_h)
