"""Price files of other tools, read as rows of offers.

Each tool has a module with ``COLUMNS``, by which its file is known, and
``rows(path, table)``, which yields the line and our columns of each of its rows that
prices GPUs. Its traps stand at its head.
"""

import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from capplan.csv_file import read_rows
from capplan.errors import InputError, PriceWarning, warn
from capplan.fleet.importers import azure_retail, gpuhunt, kubecost, skypilot
from capplan.input_file import parse_json, read_text

_OF_CSV = (skypilot, gpuhunt, kubecost)

Rows = list[tuple[str, Mapping[str, Any]]]


def imported(path: Path, canonical: Callable[[str], str]) -> Rows | None:
    """Return rows of another tool's price file, of known GPUs; None if it is none."""
    is_zip = zipfile.is_zipfile(path)
    told = gpuhunt.rows_of_zip(path) if is_zip else _plain(path)
    if told is None:
        return None
    rows: Rows = []
    unknown: Counter[str] = Counter()
    for where, row in told:
        try:
            name = canonical(row["gpu"])
        except InputError:
            unknown[row["gpu"]] += 1
            continue
        rows.append((where, {**row, "gpu": name}))
    if not rows:
        raise InputError(f"{path}: no price of a GPU in the catalog; expected some")
    if unknown:
        warn(
            f"{path}: {unknown.total()} prices of GPUs in no catalog are left out: "
            f"{', '.join(sorted(unknown))}",
            PriceWarning,
        )
    return rows


def _plain(path: Path) -> Iterable[tuple[str, dict[str, Any]]] | None:
    if path.suffix == ".json":
        document = parse_json(path, read_text(path))
        if not azure_retail.is_own(document):
            raise InputError(
                f"{path}: is JSON, and no answer of Azure's retail prices; expected "
                "Items with retailPrice, a CSV or a YAML"
            )
        return _placed(path, azure_retail.rows(path, document))
    names, table = read_rows(path)
    for tool in _OF_CSV:
        if set(names) >= tool.COLUMNS:
            return _placed(path, tool.rows(path, table))
    return None


def _placed(
    path: Path, rows: Iterable[tuple[int, dict[str, Any]]]
) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((f"{path}:{line}", row) for line, row in rows)
