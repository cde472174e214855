"""gpuhunt's catalogs (dstack): a CSV for each provider, or all in ``catalog.zip``.

``price`` is of the whole machine. The memory tells GPUs of one name apart.
"""

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from capplan.csv_file import Row, cell_number
from capplan.errors import InputError
from capplan.input_file import MOST_TEXT_BYTES

COLUMNS = {"instance_name", "location", "price", "gpu_count", "gpu_name", "spot"}
_BY_MEMORY = {
    ("A100", 40): "A100-40GB-SXM",
    ("V100", 32): "V100-32GB-SXM2",
    ("V100", 16): "V100-16GB-SXM2",
    ("H100", 94): "H100-NVL",
    ("H100NVL", 94): "H100-NVL",
}


def rows(path: Path, table: Iterable[Row]) -> Iterator[tuple[int, Any]]:
    """Yield the line and our columns of each machine with GPUs."""
    for line, row in table:
        gpus = cell_number(path, line, "gpu_count", row["gpu_count"] or "0")
        if not row["gpu_name"] or not gpus:
            continue
        is_spot = (row["spot"] or "").lower() == "true"
        memory = round(
            cell_number(path, line, "gpu_memory", row.get("gpu_memory") or "0")
        )
        own = {
            "gpu": _BY_MEMORY.get((row["gpu_name"], memory), row["gpu_name"]),
            "gpus": f"{gpus:g}",
            "node": row["instance_name"],
            "provider": row.get("provider") or "",
            "kind": "spot" if is_spot else "on-demand",
            "usd_per_node_h": row["price"],
            "region": row["location"],
            "source": "gpuhunt catalog",
        }
        yield line, own


def rows_of_zip(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and our columns of each machine of a catalog."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".csv"):
                continue
            if entry.file_size > MOST_TEXT_BYTES:
                raise InputError(f"{path}: {entry.filename} is too large to read")
            text = archive.read(entry).decode("utf-8", errors="replace")
            table = csv.DictReader(io.StringIO(text))
            if set(table.fieldnames or ()) >= COLUMNS:
                inside = path / entry.filename
                for line, row in rows(inside, enumerate(table, start=2)):
                    row["provider"] = row["provider"] or inside.stem
                    yield f"{inside}:{line}", row
