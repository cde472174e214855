"""Qwen-Bailian's usage traces: JSON lines, stamps in s, hashed 16-token blocks.

https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon. Read like Mooncake's,
but for the unit of the stamps and the block; the class is the request's ``type``.
"""

from pathlib import Path

import numpy as np

from capplan.workload.readers.json_lines import (
    first_object,
    iterate_lines,
    shared_prefixes,
)
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.trace import Trace

BLOCK_TOKENS = 16


def sniff(head: bytes) -> bool:
    """Return whether the first line is an object with the trace's fields."""
    names = {"chat_id", "timestamp", "input_length", "output_length"}
    return names <= first_object(head).keys()


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a Qwen-Bailian trace; the first arrives at 0 s."""
    notes = Notes(path)
    lines = list(iterate_lines(path))
    stamp_s = np.array([line.stamp("timestamp") for line in lines])
    prompt_tokens = np.array([line.tokens("input_length") for line in lines])
    blocks = [line.blocks("hash_ids") for line in lines]
    kinds = [str(line.fields.get("type", "text")) for line in lines]
    class_names, request_class = np.unique(kinds, return_inverse=True)
    return ordered_trace(
        notes,
        stamp_s - stamp_s.min(),
        tuple(class_names.tolist()),
        request_class=request_class,
        prompt_tokens=prompt_tokens,
        output_tokens=np.array([line.tokens("output_length") for line in lines]),
        **shared_prefixes(notes, stamp_s, prompt_tokens, blocks, BLOCK_TOKENS),
    )
