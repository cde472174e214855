"""Version and data of capplan, in a checkout or an installed wheel."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_PACKAGE = Path(__file__).parent
Row = TypeVar("Row")


def own_version() -> str:
    """Return the version that is installed; of a checkout that is not, unknown."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("capplan")
    except PackageNotFoundError:
        return "unknown"


def shipped(folder: str) -> Path:
    """Return the path of ``profiles`` or ``workloads``."""
    for path in (_PACKAGE.parent / folder, _PACKAGE / "_shipped" / folder):
        if path.is_dir():
            return path
    raise FileNotFoundError(f"capplan was installed without its {folder}/ folder.")


def table_rows(path: Path, row: Callable[..., Row]) -> list[Row]:
    """Return the rows of a CSV of the package, whose columns ``row`` takes by name."""
    with path.open(encoding="utf-8", newline="") as file:
        return [row(**cells) for cells in csv.DictReader(file)]
