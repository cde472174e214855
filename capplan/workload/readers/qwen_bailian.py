"""Qwen-Bailian's usage traces: JSON lines, stamps in s, hashed 16-token blocks.

https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon. As Mooncake's, with
other units of stamps and blocks; the class is the request's ``type``. A chat names
the one before it (``parent_chat_id``, -1 for none): both are of one session.
"""

from pathlib import Path

import numpy as np

from capplan.workload.readers.json_lines import (
    Line,
    arrivals_s,
    first_request,
    read_requests,
    shared_prefixes,
)
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.readers.sessions import listed_sessions
from capplan.workload.trace import Trace

BLOCK_TOKENS = 16


def sniff(head: bytes) -> bool:
    """Return whether the first line has the trace's fields."""
    return "chat_id" in first_request(head)


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a Qwen-Bailian trace; the first arrives at 0 s."""
    notes = Notes(path)
    requests = read_requests(path, notes)
    types = [str(line.fields.get("type", "text")) for line in requests.lines]
    class_names, request_class = np.unique(types, return_inverse=True)
    return ordered_trace(
        notes,
        arrivals_s(requests),
        tuple(class_names.tolist()),
        request_class=request_class,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        session=_sessions(requests.lines),
        **shared_prefixes(notes, requests, BLOCK_TOKENS),
    )


def _sessions(lines: list[Line]) -> np.ndarray:
    """Return the session of each chat: that of its parent, also one not in the file."""
    first: dict[object, object] = {}  # chat of a session
    for line in sorted(lines, key=lambda line: line.stamp("timestamp")):
        chat, parent = line.name("chat_id"), line.name("parent_chat_id")
        begins = parent is None or parent == -1
        first[chat] = chat if begins else first.setdefault(parent, parent)
    return listed_sessions(first[line.name("chat_id")] for line in lines)
