"""Qwen-Bailian's usage traces: JSON lines, stamps in s, hashed 16-token blocks.

https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon. As Mooncake's, with
other units of stamps and blocks; the class is the request's ``type``.
"""

from pathlib import Path

import numpy as np

from capplan.workload.readers.json_lines import (
    arrivals_s,
    first_request,
    read_requests,
    shared_prefixes,
)
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.trace import Trace

BLOCK_TOKENS = 16


def sniff(head: bytes) -> bool:
    """Return whether the first line has the trace's fields."""
    return "chat_id" in first_request(head)


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a Qwen-Bailian trace; the first arrives at 0 s."""
    notes = Notes(path)
    requests = read_requests(path)
    types = [str(line.fields.get("type", "text")) for line in requests.lines]
    class_names, request_class = np.unique(types, return_inverse=True)
    return ordered_trace(
        notes,
        arrivals_s(requests),
        tuple(class_names.tolist()),
        request_class=request_class,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        **shared_prefixes(notes, requests, BLOCK_TOKENS),
    )
