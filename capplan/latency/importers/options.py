"""Facts about measurements that a file may not hold."""

from collections.abc import Mapping
from typing import NamedTuple


class ImportOptions(NamedTuple):
    """Facts about measurements that a file may not hold."""

    where: Mapping[str, str] = {}  # column to value: rows to read from a table
    # Shape of the batch of a ``vllm bench latency`` run.
    batch: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    kv_tokens: int | None = None  # KV capacity, for a log without it [tokens]
