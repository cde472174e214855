"""The plain CSV of points: phase, batch, new_tokens, context, seconds."""

from pathlib import Path

from capplan.latency.importers import ImportOptions
from capplan.latency.measurements import COLUMNS, Points, read_points


def recognises(head: str) -> bool:
    """Return whether a file starts like this format."""
    heading = head.split("\n", 1)[0]
    return "phase" in heading and any(name in heading for name in COLUMNS[1:])


def read(path: Path, options: ImportOptions) -> Points:
    """Return the points of the file."""
    return read_points(path, options.where)
