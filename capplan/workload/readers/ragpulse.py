"""RAGPulse: JSON lines, seconds as text, ``hash_ids`` an object of parts.

https://github.com/flashserve/RAGPulse. The parts of a prompt (system prompt,
passages, history, question) are named, but their token counts are in other files:
no shared prefix is read. ``session_id`` is.
"""

from pathlib import Path

from capplan.workload.readers.json_lines import arrivals_s, first_request, read_requests
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.readers.sessions import listed_sessions
from capplan.workload.trace import Trace


def sniff(head: bytes) -> bool:
    """Return whether the first line has RAGPulse's fields."""
    return isinstance(first_request(head).get("hash_ids"), dict)


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a RAGPulse trace; the first arrives at 0 s."""
    notes = Notes(path)
    requests = read_requests(path, notes)
    notes.add("what prompts share of their passages is not read", warn=False)
    return ordered_trace(
        notes,
        arrivals_s(requests),
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        session=listed_sessions(line.name("session_id") for line in requests.lines),
    )
