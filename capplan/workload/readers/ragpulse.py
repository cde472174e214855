"""RAGPulse: JSON lines, seconds as text, ``hash_ids`` an object of parts.

https://github.com/flashserve/RAGPulse. The parts of a prompt (system prompt,
passages, history, question) are named, but how many tokens each has stands in
other files: so no shared prefix is read from them.
"""

from pathlib import Path

import numpy as np

from capplan.workload.readers.json_lines import first_object, iterate_lines
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.trace import Trace


def sniff(head: bytes) -> bool:
    """Return whether the first line is an object with RAGPulse's fields."""
    first = first_object(head)
    return {"timestamp", "input_length", "output_length"} <= first.keys() and (
        isinstance(first.get("hash_ids"), dict)
    )


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a RAGPulse trace; the first arrives at 0 s."""
    notes = Notes(path)
    lines = list(iterate_lines(path))
    stamp_s = np.array([line.stamp("timestamp") for line in lines])
    notes.add("what prompts share of their passages is not read", warn=False)
    return ordered_trace(
        notes,
        stamp_s - stamp_s.min(),
        prompt_tokens=np.array([line.tokens("input_length") for line in lines]),
        output_tokens=np.array([line.tokens("output_length") for line in lines]),
    )
