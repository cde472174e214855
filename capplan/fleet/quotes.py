"""Price quotes: read a file of them, pick one by a stated rule, say what is weak."""

import csv
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from capplan.errors import InputError

STALE_DAYS = 90
"""An older price is warned of."""

_NOT_LISTED = ("no sla", "superseded", "guess", "stale", "starting-at")


@dataclass(frozen=True)
class Quote:
    """What one provider asks for one GPU.

    Parameters
    ----------
    gpu, provider, sku
        What is offered, and by whom.
    kind
        "on-demand", "spot", "reserved", "reserved-1y" or "reserved-3y".
    usd_per_gpu_h
        Price of one GPU. [$/h]
    as_of
        ``YYYY-MM-DD`` or ``YYYY-MM``; empty when undated.
    source, note
        Where it was read, and what to know of it.
    """

    gpu: str
    provider: str
    sku: str
    kind: str
    usd_per_gpu_h: float
    as_of: str
    source: str
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse a price or a date that is not one."""
        if not (math.isfinite(self.usd_per_gpu_h) and self.usd_per_gpu_h >= 0):
            raise InputError(f"usd_per_gpu_h is {self.usd_per_gpu_h}; expected >= 0")
        if self.as_of:
            self.day()

    def day(self) -> date | None:
        """Return the date; the first of the month where no day is given."""
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
        """Whether it is an ordinary list price: no guess, no best-effort offer."""
        return not any(word in self.note.lower() for word in _NOT_LISTED)

    def weakness(self, today: date) -> str:
        """Return why the price should not be relied on; empty when it may be."""
        day = self.day()
        if "guess" in self.note.lower():
            return "it is a guess"
        if day is None:
            return "it is undated"
        age_days = (today - day).days
        if age_days > STALE_DAYS:
            return f"it is {age_days} days old"
        return ""


def read_quotes(path: Path, canonical: Callable[[str], str]) -> list[Quote]:
    """Return the quotes of a CSV, or of a YAML mapping of GPU to price.

    A CSV has the columns ``gpu`` and ``usd_per_gpu_h`` and may have the others of
    :class:`Quote`. A YAML file maps a GPU to dollars per hour, or to a mapping
    with the same names.

    Parameters
    ----------
    path
        ``.csv``, ``.yaml`` or ``.yml``.
    canonical
        Turns a GPU's name into the catalog's.

    Raises
    ------
    InputError
        When the file cannot be read or a row is malformed; it names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read prices: {error}") from None
    if path.suffix in (".yaml", ".yml"):
        rows = _yaml_rows(path, text)
    else:
        rows = _csv_rows(path, text)
    quotes = []
    for where, row in rows:
        try:
            quotes.append(_quote(row, canonical, path.name))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    return quotes


def _csv_rows(path: Path, text: str) -> list[tuple[str, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text))
    missing = {"gpu", "usd_per_gpu_h"} - set(reader.fieldnames or ())
    if missing:
        raise InputError(
            f"{path}:1: no column {', '.join(sorted(missing))}; "
            "expected gpu, usd_per_gpu_h and maybe as_of, source, kind, provider"
        )
    return [(f"{path}:{reader.line_num}", row) for row in reader]


def _yaml_rows(path: Path, text: str) -> list[tuple[str, Mapping[str, Any]]]:
    import yaml

    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {error}".replace("\n", " ")) from None
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

    given = text("usd_per_gpu_h")
    try:
        usd_per_gpu_h = float(given)
    except ValueError:
        raise InputError(
            f"usd_per_gpu_h is {given!r}; expected a number of dollars"
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
    )


def middle_quote(quotes: list[Quote]) -> tuple[Quote, str] | None:
    """Return the default among quotes of one GPU and kind, and how it was chosen.

    Each provider counts once, with its newest listed quote (the cheapest of
    those of one day); of the providers' quotes in order of price the one in the
    middle is taken, the lower of two. So the default is always a price that somebody
    asks. Undated quotes count only when no dated one exists, guesses and
    best-effort offers only when nothing else exists.
    """
    for keep in (
        lambda quote: quote.listed and quote.as_of,
        lambda quote: quote.listed,
        lambda quote: True,
    ):
        pool = [quote for quote in quotes if keep(quote)]
        if pool:
            break
    else:
        return None
    by_provider: dict[str, Quote] = {}
    for quote in sorted(pool, key=lambda q: (q.day() or date.min, -q.usd_per_gpu_h)):
        by_provider[quote.provider] = quote
    ranked = sorted(by_provider.values(), key=lambda q: (q.usd_per_gpu_h, q.provider))
    chosen = ranked[(len(ranked) - 1) // 2]
    if len(ranked) == 1:
        return chosen, "the only provider known"
    low, high = ranked[0].usd_per_gpu_h, ranked[-1].usd_per_gpu_h
    return chosen, (
        f"the middle of {len(ranked)} providers that ask ${low:.2f} to ${high:.2f}"
    )
