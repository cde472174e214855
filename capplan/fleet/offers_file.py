"""Read offers from CSV and YAML files, and refuse what is no price of a GPU-hour."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from capplan.csv_file import read_rows, refuse_outliers
from capplan.currency import DOLLAR, USD, Currency, parse_code
from capplan.errors import InputError, PriceWarning, placed, warn
from capplan.fleet.dated import in_force
from capplan.fleet.importers import imported
from capplan.fleet.nodes import find_node
from capplan.fleet.offer import OLD_KINDS, Offer
from capplan.input_file import parse_yaml, read_text

_LEAST, _MOST = 0.2, 5.0
"""Of the median of a GPU's known prices; others are taken for another unit."""

_SIZES = {"gpus": "gpus_per_node", "nvlink_domain_gpus": "nvlink_domain_gpus"}
"""Fields of an offer by the column, which is a field of a node too."""
_WHOLE = ("term_months", "min_nodes", "min_months", "billing_step_s")
_NUMBERS = (
    "upfront_share",
    "min_usd_per_month",
    "notice_s",
    "interruption_per_month",
    "max_share",
)
_USD = ("usd_per_node_h", "usd_per_gpu_h")
_TEXTS = (
    *("node", "gpu", "provider", "kind", "region", "as_of", "basis"),
    *("source", "note", "discount_from", "currency"),
)
COLUMNS = (*_TEXTS, *_SIZES, *_WHOLE, *_NUMBERS, *_USD)
"""Columns of a file of offers."""
_OLD_COLUMNS = {"sku": "node", "gpus_per_node": "gpus"}
_PERCENT = re.compile(r"\s*[-\N{MINUS SIGN}]\s*(\d+(?:\.\d+)?)\s*%\s*")

Rows = list[tuple[str, Mapping[str, Any]]]
"""Where each row stands, for messages, and its cells by column."""


def read_offers(
    path: Path,
    canonical: Callable[[str], str],
    known: Sequence[Offer] = (),
    day: date | None = None,
    currency: Currency = USD,
) -> list[Offer]:
    """Return the offers of a CSV, or of a YAML mapping of GPU to price.

    A CSV has the columns ``node`` or ``gpu``, ``usd_per_node_h`` or
    ``usd_per_gpu_h``, and optionally the other :data:`COLUMNS`; or is a price file of
    SkyPilot, gpuhunt, Azure or Kubecost. A YAML maps a GPU to its price, or to a
    mapping of those names. ``canonical`` returns the catalog's name of a GPU. A price
    such as ``-38%`` is a discount from the ``discount_from`` offer (on-demand) of the
    same node, in this file or among ``known``: the newest, by a ``day`` if one is
    given. A row may be of ``currency``; it is read in dollars.
    """
    read: list[tuple[str, Offer]] = []
    discounted: Rows = []
    for where, cells in _rows(path, canonical):
        row = {_OLD_COLUMNS.get(name, name): cell for name, cell in cells.items()}
        with placed(where):
            if _PERCENT.fullmatch(str(_price_cell(row)[1])):
                discounted.append((where, row))
            else:
                read.append((where, _offer(row, canonical, path.name, currency)))
    firm = [*(offer for _, offer in read), *known]
    for where, percent in discounted:
        with placed(where):
            # Before that day nothing may be known of the node: then it is a later one.
            full = _resolve(percent, in_force(firm, day), canonical, firm)
            read.append((where, _offer(full, canonical, path.name, USD)))
    refuse_outliers(
        "usd_per_gpu_h", ((where, offer.usd_per_gpu_h) for where, offer in read)
    )
    offers = [offer for _, offer in read]
    _refuse_dear_spot(path, offers)
    return offers


def refuse_odd(path: Path, offers: Iterable[Offer], known: Sequence[Offer]) -> None:
    """Refuse a price that is far from those known of its GPU: of another unit."""
    prices: dict[str, list[float]] = {}
    for other in known:
        prices.setdefault(other.gpu, []).append(other.usd_per_gpu_h)
    middles = {gpu: median(asked) for gpu, asked in prices.items()}
    for offer in offers:
        usd, middle = offer.usd_per_gpu_h, middles.get(offer.gpu)
        if middle is None or _LEAST * middle <= usd <= _MOST * middle:
            continue
        raise InputError(
            f"{path}: {offer.name or offer.gpu} asks ${usd:,.2f} per {offer.gpu} and "
            f"hour, where the middle of those known is ${middle:,.2f}; expected "
            f"dollars per hour within {_LEAST:g} to {_MOST:g} times that, not of a "
            "month or a term; --allow-odd-price takes it"
        )


def _rows(path: Path, canonical: Callable[[str], str]) -> Rows:
    if path.suffix in (".yaml", ".yml"):
        return _yaml_rows(path, read_text(path))
    foreign = imported(path, canonical)
    if foreign is not None:
        return foreign
    names, table = read_rows(path)
    unread = [name for name in names if name and name not in (*COLUMNS, *_OLD_COLUMNS)]
    if unread:
        warn(
            f"{path}: column {', '.join(unread)} is not read; expected "
            f"{', '.join(COLUMNS)}",
            PriceWarning,
        )
    if not set(_USD) & set(names):
        raise InputError(
            f"{path}:1: column usd_per_gpu_h is missing, and usd_per_node_h; expected "
            f"one of them, found {', '.join(names)}"
        )
    return [(f"{path}:{line}", cells) for line, cells in table]


def _yaml_rows(path: Path, text: str) -> Rows:
    loaded, _ = parse_yaml(path, text)
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected a mapping such as H100-SXM: 2.49")
    rows: Rows = []
    for name, value in loaded.items():
        row = value if isinstance(value, dict) else {"usd_per_gpu_h": value}
        unread = [key for key in row if key not in (*COLUMNS, *_OLD_COLUMNS)]
        if unread:
            raise InputError(
                f"{path}: {name}: {unread[0]!r} is no column; expected "
                f"{', '.join(COLUMNS)}"
            )
        rows.append((f"{path}: {name}", {"gpu": name, **row}))
    return rows


def _price_cell(row: Mapping[str, Any]) -> tuple[str, Any]:
    """Return which price a row gives, and its cell."""
    given = [(name, row[name]) for name in _USD if row.get(name) not in (None, "")]
    if len(given) != 1:
        both = "both are" if given else "neither is"
        raise InputError(
            f"usd_per_node_h and usd_per_gpu_h: {both} given; expected one"
        )
    return given[0]


def _offer(
    row: Mapping[str, Any],
    canonical: Callable[[str], str],
    file_name: str,
    currency: Currency,
) -> Offer:
    def text(column: str, otherwise: str = "") -> str:
        value = row.get(column)
        return otherwise if value in (None, "") else str(value).strip()

    kind, term = OLD_KINDS.get(text("kind"), (text("kind", "on-demand"), ""))
    own = _currency(text("currency", DOLLAR), currency)
    node = None
    if text("node") and not text("gpus"):  # its own sizes go before the catalog's
        node = find_node(text("node"), text("provider"))
    gpu = text("gpu") or ("" if node is None else node.gpu)
    if not gpu:
        raise InputError(
            f"node {text('node')!r} is in no catalog and has no GPUs; expected the "
            "columns gpu and gpus of it"
            if text("node")
            else "no node and no gpu; expected one of them"
        )
    gpu = canonical(gpu)
    if node is not None and node.gpu != gpu:
        raise InputError(f"node {node.name} has {node.gpu}, not {gpu}")
    sizes = {name: _number(text(cell), name, int) for cell, name in _SIZES.items()}
    if node is not None:
        sizes = {name: getattr(node, cell) for cell, name in _SIZES.items()}
    priced_by, _ = _price_cell(row)
    asked = _number(text(priced_by), priced_by, float, "a number of dollars")
    usd, note = own.dollars(asked), text("note")
    if own is not USD:
        note = "; ".join(filter(None, (f"{asked:g} {own}", note)))
    if priced_by == "usd_per_node_h":
        if sizes["gpus_per_node"] is None:
            raise InputError(
                f"usd_per_node_h is {usd:g} and the GPUs of the node are not known; "
                "expected the column gpus"
            )
        usd /= sizes["gpus_per_node"]
    kinds = {**dict.fromkeys(_WHOLE, int), **dict.fromkeys(_NUMBERS, float)}
    given = {name: text(name, term * (name == "term_months")) for name in kinds}
    more = {x: _number(value, x, kinds[x]) for x, value in given.items() if value}
    if "min_usd_per_month" in more:
        more["min_usd_per_month"] = own.dollars(more["min_usd_per_month"])
    return Offer(
        gpu=gpu,
        usd_per_gpu_h=usd,
        kind=kind,
        node=text("node"),
        provider=text("provider") or ("" if node is None else node.provider),
        region=text("region"),
        as_of=text("as_of"),
        source=text("source", file_name),
        note=note,
        basis=text("basis", "list"),
        **sizes,
        **more,
    )


def _currency(text: str, own: Currency) -> Currency:
    """Return the currency of a row: dollars, or the one whose rate was given."""
    code = DOLLAR if text == "$" else parse_code(text)
    if code == DOLLAR:
        return USD
    if code != own.code:
        raise InputError(
            f"currency is {text!r}; expected USD, or give the dollars of one: "
            f"--currency {code} --exchange-rate USD"
        )
    return own


def _number(
    value: str, column: str, of: Callable[[str], Any], expected: str = ""
) -> Any:
    """Return a number; None where nothing is given and nothing else is expected."""
    try:
        return of(value) if value or expected else None
    except ValueError:
        kind = "a whole number" if of is int else "a number"
        raise InputError(
            f"{column} is {value!r}; expected {expected or f'{kind}, or nothing'}"
        ) from None


def _resolve(
    row: Mapping[str, Any],
    offers: Sequence[Offer],
    canonical: Callable[[str], str],
    otherwise: Sequence[Offer],
) -> Mapping[str, Any]:
    """Return a row with the dollars that its discount leaves of another offer."""
    name, cell = _price_cell(row)
    match = _PERCENT.fullmatch(str(cell))
    assert match is not None
    share = float(match[1]) / 100
    kind = str(row.get("discount_from") or "on-demand").strip()
    node, provider, gpu = (
        str(row.get(key) or "").strip().lower() for key in ("node", "provider", "gpu")
    )

    def is_its(offer: Offer) -> bool:
        return (
            offer.kind == kind
            and (not node or offer.node.lower() == node)
            and (not provider or offer.provider.lower() == provider)
            and (not gpu or offer.gpu == canonical(gpu))
        )

    found = [*filter(is_its, offers)] or [*filter(is_its, otherwise)]
    if not share < 1:
        raise InputError(f"{name} is {cell}; expected less than 100 % off")
    if not found:
        raise InputError(
            f"{name} is {cell} of an offer that is not known; expected one "
            f"of kind {kind!r} of the same node in this file or in the catalog"
        )
    # Offers of one node: the newest counts.
    base = max(found, key=lambda offer: (str(offer.day() or ""), -offer.usd_per_gpu_h))
    said = f"{cell} of ${base.usd_per_gpu_h:g}", str(row.get("note") or "")
    return {
        **row,
        "gpus": row.get("gpus") or base.gpus_per_node,
        "nvlink_domain_gpus": row.get("nvlink_domain_gpus") or base.nvlink_domain_gpus,
        "gpu": base.gpu,
        "node": base.node,
        "provider": base.provider,
        "usd_per_node_h": "",
        "usd_per_gpu_h": base.usd_per_gpu_h * (1 - share),
        "currency": "",
        "as_of": row.get("as_of") or base.as_of,
        "note": "; ".join(filter(None, said)),
    }


def _refuse_dear_spot(path: Path, offers: Sequence[Offer]) -> None:
    """Refuse a spot price that is no lower than the on-demand price of its node."""
    asked: dict[tuple[str, ...], list[Offer]] = {}
    for offer in offers:
        if offer.kind == "on-demand":
            asked.setdefault(_place(offer), []).append(offer)
    for offer in offers:
        rows = asked.get(_place(offer), [])
        if offer.kind != "spot" or not rows:
            continue
        # That of the same time: of rows of several days the newest by the spot row's.
        usd = (in_force(rows, offer.day()) or in_force(rows))[0].usd_per_gpu_h
        if offer.usd_per_gpu_h >= usd:
            raise InputError(
                f"{path}: {offer.name or offer.gpu}: spot ${offer.usd_per_gpu_h:g} is "
                f"not below on-demand ${usd:g} per GPU-hour; expected less"
            )


def _place(offer: Offer) -> tuple[str, ...]:
    return offer.gpu, offer.provider, offer.node, offer.region
