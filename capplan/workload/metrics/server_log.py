"""The log of an engine: its KV tokens, and each 10 s its queue and KV in use.

It has no lengths and no latencies: what it states stands beside metrics or requests.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from capplan.input_file import read_text
from capplan.workload.metrics.replica_metrics import Series

_KV = re.compile(r"KV cache size: ([\d,]+) tokens|max_total_num_tokens=(\d+)")
_AT = r"(?:\d{4}-)?(\d\d-\d\d \d\d:\d\d:\d\d)"
_VLLM = re.compile(
    _AT + r".*Avg prompt throughput: [\d.]+ tokens/s, Avg generation throughput: "
    r"[\d.]+ tokens/s, Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs, "
    r".*?KV cache usage: (?P<kv>[\d.]+)%"
)
_DECODE = re.compile(
    _AT + r".*#running-req: (?P<running>\d+),.*token usage: (?P<kv>[\d.]+),"
    r".*gen throughput \(token/s\): [\d.]+, #queue-req: (?P<waiting>\d+)"
)
_KNOWN = re.compile(r"KV cache size: |non-default args|server_args=|num_tokens=\d")


def knows(head: str) -> bool:
    """Return whether a text begins as the log of an engine."""
    return bool(_KNOWN.search(head))


def series_of(path: Path) -> Iterator[Series]:
    """Yield what a log states: KV tokens, and gauges over time. Times have no year."""
    text = read_text(path)
    rows = [_row(found, 100) for found in _VLLM.finditer(text)]
    rows = rows or [_row(found, 1) for found in _DECODE.finditer(text)]
    at_s, *columns = np.array(rows or [(0.0,) * 4]).T
    at_s, first = np.unique(at_s, return_index=True)
    names = "running", "waiting", "kv_use"
    for name, column in zip(names, columns, strict=True):
        yield Series(f"log:{name}", {}, at_s, column[first])
    if stated := _KV.search(text):
        tokens = float((stated[1] or stated[2]).replace(",", ""))
        yield Series("log:kv_tokens", {}, at_s, np.full(len(at_s), tokens))


def _row(found: re.Match[str], whole: float) -> tuple[float, float, float, float]:
    """Return time, running, waiting and the share of KV, of which ``whole`` is all."""
    running, waiting, kv = map(float, found.group("running", "waiting", "kv"))
    return _seconds(found[1]), running, waiting, kv / whole


def _seconds(stamp: str) -> float:
    moment = datetime.strptime(f"2000-{stamp}", "%Y-%m-%d %H:%M:%S")
    return moment.replace(tzinfo=UTC).timestamp()
