"""Text that an engine shows at ``/metrics``, a snapshot a file.

Its time stands in a line ``# scraped_at 1780508691.2``, or in the file's name as
seconds since 1970 or as ``20260603T101500``.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.input_file import read_text
from capplan.workload.metrics.replica_metrics import Series

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?\s*$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_AT = re.compile(r"^# scraped_at[: ]+(\S+)", re.M)
_EPOCH = re.compile(r"(?<!\d)(\d{10})(\d{3})?(?!\d)")
_STAMP = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T_-]?(\d\d)[:-]?(\d\d)[:-]?(\d\d)")


def knows(head: str) -> bool:
    """Return whether a text begins as what an engine shows."""
    return bool(re.search(r"^(# (HELP|TYPE) )?(vllm|sglang)[:_]\w+", head, re.M))


def series_of(path: Path) -> Iterator[Series]:
    """Yield the series of a snapshot, one value each; a pod is named by its folder."""
    text = read_text(path)
    at_s = np.array([_scraped_s(path, text)])
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.match(line)
        try:
            value = float(found[3]) if found else np.nan
        except ValueError:
            found = None
        if found is None:
            raise InputError(f"{path}:{number}: expected name{{labels}} value")
        labels = {"instance": path.parent.name, **dict(LABEL.findall(found[2] or ""))}
        yield Series(found[1], labels, at_s, np.array([value]))


def _scraped_s(path: Path, text: str) -> float:
    """Return when a snapshot was made. [s since 1970]"""
    if stated := _AT.search(text):
        try:
            return float(stated[1])
        except ValueError:
            stamp = stated[1]
    else:
        stamp = path.name
    if epoch := _EPOCH.search(stamp):
        return float(epoch[1]) + float(epoch[2] or 0) / 1e3
    if date := _STAMP.search(stamp):
        moment = datetime.strptime("".join(date.groups()), "%Y%m%d%H%M%S")
        return moment.replace(tzinfo=UTC).timestamp()
    raise InputError(
        f"{path}: no time of the snapshot; expected `# scraped_at 1780508691` in it, "
        "or its name to have the seconds since 1970"
    )
