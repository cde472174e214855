"""The plain CSV of points: phase, batch, new_tokens, context, seconds."""

from pathlib import Path

from capplan.latency.importers import ImportOptions
from capplan.latency.measurements import Points, read_points


def read(path: Path, options: ImportOptions) -> Points:
    """Return the points of the file."""
    return read_points(path, options.where)
