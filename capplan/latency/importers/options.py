"""Facts about measurements that a file may not hold."""

from collections.abc import Mapping
from typing import NamedTuple


class ImportOptions(NamedTuple):
    """Facts about measurements that a file may not hold.

    Parameters
    ----------
    where
        Column to value: the rows to read from a table of several configurations.
    batch, input_tokens, output_tokens
        Shape of the batch of a ``vllm bench latency`` run.
    kv_tokens
        KV capacity, for a log without it. [tokens]
    """

    where: Mapping[str, str] = {}
    batch: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    kv_tokens: int | None = None
