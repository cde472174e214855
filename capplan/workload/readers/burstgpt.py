"""BurstGPT: integer seconds, failures with no response tokens.

Wang et al., "BurstGPT: A Real-world Workload Dataset to Optimize LLM Serving
Systems", KDD 2025; https://github.com/HPMLL/BurstGPT. The third file inserts
``Session ID``, which is read, and ``Elapsed time``; all are read by column name.
"""

from pathlib import Path

import numpy as np

from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, answered, ordered_trace
from capplan.workload.readers.sessions import column_sessions
from capplan.workload.readers.table import first_names, read_table
from capplan.workload.trace import MOST_EPOCH_S, NOT_SECONDS, Trace

_WANTED = {
    "Timestamp": None,
    "Request tokens": None,
    "Response tokens": None,
    "Log Type": "category",
}
_SESSION = "Session ID"


def sniff(head: bytes) -> bool:
    """Return whether the header has BurstGPT's columns."""
    return set(_WANTED) - {"Log Type"} <= first_names(head)


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the answered requests; the first arrives at 0 s.

    The class of a request is its log type (conversation or API).
    """
    table = read_table(path, {**_WANTED, _SESSION: "category"})
    table.require_columns(_WANTED, "BurstGPT")
    notes = Notes(path)
    output_tokens = table.tokens("Response tokens", least=0)
    prompt_tokens = table.tokens("Request tokens", least=0)
    arrival_s = table.numbers("Timestamp", "seconds").astype(np.float64)
    table.require(np.abs(arrival_s) <= MOST_EPOCH_S, "Timestamp", NOT_SECONDS)
    kept = answered(notes, output_tokens)
    table.require((prompt_tokens > 0) | ~kept, "Request tokens", "at least 1")
    log_type = table.frame["Log Type"]
    table.require(log_type.notna().to_numpy(), "Log Type", "a kind of log")
    log_type = log_type[kept].cat.remove_unused_categories()
    arrival_s = arrival_s[kept]
    session = None
    if _SESSION in table.frame:
        session = column_sessions(table.frame[_SESSION])[kept]
    notes.add("arrivals are whole seconds in this source", warn=False)
    return ordered_trace(
        notes,
        arrival_s - arrival_s.min(),
        tuple(str(name) for name in log_type.cat.categories),
        request_class=log_type.cat.codes.to_numpy().astype(np.int16),
        prompt_tokens=prompt_tokens[kept],
        output_tokens=output_tokens[kept],
        session=session,
    )
