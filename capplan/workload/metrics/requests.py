"""Requests that a fleet answered, with their times: rows of a gateway, spans, a client.

One row a request: when it came, its tokens, when its first and its last token were
there, whose conversation it is of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.records import form, records
from capplan.workload.readers.columns import EPOCH_S
from capplan.workload.readers.ordering import Notes
from capplan.workload.readers.recorded import Recording
from capplan.workload.running import replayed
from capplan.workload.trace import Trace

COLUMNS: Mapping[str, str] = {
    "start": "arrival_s start_ns startTime start_time startTimeUnixNano "
    "request_created_at metadata.request_start_ns",
    "first": "first_token_s completionStartTime completion_start_time",
    "end": "finish_s end_ns endTime end_time endTimeUnixNano response_created_at "
    "metadata.request_end_ns",
    "ttft": "ttft_s ttft_ms time_to_first_token gen_ai.latency.time_to_first_token "
    "metrics.time_to_first_token.value",
    "e2e": "e2e_s e2e_ms latency delay_ms request_duration_ms gen_ai.latency.e2e "
    "metrics.request_latency.value",
    "prompt": "prompt_tokens usage_prompt isl gen_ai.usage.prompt_tokens "
    "gen_ai.usage.input_tokens usage_details.input usageDetails.input "
    "metrics.input_sequence_length.value",
    "output": "output_tokens osl completion_tokens gen_ai.usage.completion_tokens "
    "gen_ai.usage.output_tokens usage_details.output usageDetails.output "
    "metrics.output_sequence_length.value",
    "session": "session session_id conversation sessionId gen_ai.conversation.id "
    "request_properties.Helicone-Session-Id metadata.conversation_id",
    "agent": "depth agent metadata.agent_depth",
    "failed": "cancelled metadata.was_cancelled cache_hit",
    "phase": "phase metadata.benchmark_phase",
}
"""Names of what is read, those of capplan first: LiteLLM, Langfuse, Helicone, spans of
vLLM and of clients, AIPerf."""

_NEEDED = ("start", "prompt", "output")
_PER_S = {"_ns": 1e9, "nano": 1e9, "_ms": 1e3, ".value": 1e3}
_HELICONE = "delay_ms"
_TRUE = ("true", "1", "1.0")


@dataclass(frozen=True, eq=False)
class ServedRequests:
    """Requests in order of arrival, with what was measured of each."""

    trace: Trace
    first_token_s: np.ndarray  # NaN where answers were not streamed, (n,) [s]
    finish_s: np.ndarray  # (n,) [s]
    left_out: int  # that failed, or were of a warm-up


def read_served_requests(path: str | Path) -> ServedRequests:
    """Return the requests of a file; their texts are not read."""
    path, rows, left_out = Path(path), [], 0
    names: dict[str, str] = {}
    for where, fields in _rows(path):
        names = names or _names(path, fields)
        if _is_left_out(fields, names):
            left_out += 1
            continue
        rows.append(_row(where, fields, names))
    if not rows:
        raise InputError(f"{path}: no answered request; expected some")
    rows.sort(key=lambda row: row[0])
    start_s, first_s, end_s, prompt, output, agent = np.array(
        [row[:6] for row in rows], np.float64
    ).T
    origin_s = 0.0 if start_s[0] < EPOCH_S else start_s[0]
    start_s, first_s, end_s = (x - origin_s for x in (start_s, first_s, end_s))
    columns = {
        "prompt_tokens": prompt.astype(np.int64),
        "output_tokens": output.astype(np.int64),
        "arrival_s": start_s,
    }
    if "session" in names:
        columns |= _turns(path, columns, [row[6] for row in rows], agent, end_s)
    trace = Trace(**columns, source=str(path))
    if trace.has_turns:
        trace = replayed(trace)
        assert trace.arrival_s is not None
        trace = trace.changed(arrival_s=trace.arrival_s + start_s[0])
    return ServedRequests(trace, first_s, end_s, left_out)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if form(path) == "csv":
        for line, row in read_rows(path)[1]:
            yield f"{path}:{line}", row
    else:
        for at, fields in records(path):
            yield f"{path}{at}", fields


def _names(path: Path, fields: Mapping[str, Any]) -> dict[str, str]:
    found = {
        what: name
        for what, names in COLUMNS.items()
        if (name := next((x for x in names.split() if x in fields), ""))
    }
    lacking = [COLUMNS[what].split()[0] for what in _NEEDED if what not in found]
    if not {"end", "e2e"} & found.keys():
        lacking.append("finish_s or e2e_s")
    if lacking:
        raise InputError(
            f"{path}: has no {', '.join(lacking)}; expected a row a request with when "
            "it came, its tokens, and when its last token was there"
        )
    return found


def _is_left_out(fields: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    failed = str(fields.get(names.get("failed", ""), "")).lower() in _TRUE
    phase = str(fields.get(names.get("phase", ""), "") or "profiling")
    empty = any(fields.get(names[what]) in (None, "", 0, "0") for what in _NEEDED[1:])
    return failed or phase != "profiling" or empty


def _row(
    where: str, fields: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[float, float, float, float, float, float, str]:
    def value(what: str) -> float:
        name = names.get(what, "")
        cell = fields.get(name)
        if cell in (None, ""):
            return float("nan")
        try:
            return _seconds(name, cell, names)
        except ValueError:
            raise InputError(
                f"{where}: {name} is {cell!r}; expected a number or a date"
            ) from None

    start_s, first_s, end_s = value("start"), value("first"), value("end")
    if not np.isfinite(first_s):
        first_s = start_s + value("ttft")
    if not np.isfinite(end_s):
        end_s = start_s + value("e2e")
    tokens = value("prompt"), value("output")
    if not np.isfinite([start_s, end_s, *tokens]).all() or end_s < start_s:
        raise InputError(
            f"{where}: begins at {start_s:g} s and ends at {end_s:g} s with "
            f"{tokens[0]:g} and {tokens[1]:g} tokens; expected an end after the begin"
        )
    session = str(fields.get(names.get("session", ""), "") or "")
    return start_s, first_s, end_s, *tokens, np.nan_to_num(value("agent")), session


def _seconds(name: str, cell: Any, names: Mapping[str, str]) -> float:
    """Return a cell in seconds, tokens as they are. Raises ValueError."""
    per_s = next((of for end, of in _PER_S.items() if name.lower().endswith(end)), 1.0)
    if "token" in name and "time" not in name and "ttft" not in name:
        per_s = 1.0
    if "sequence_length" in name:
        per_s = 1.0
    if name == "time_to_first_token" and _HELICONE in names.values():
        per_s = 1e3
    try:
        return float(cell) / per_s
    except (TypeError, ValueError):
        moment = datetime.fromisoformat(str(cell))
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def _turns(
    path: Path,
    columns: Mapping[str, np.ndarray],
    sessions: list[str],
    agent: np.ndarray,
    end_s: np.ndarray,
) -> dict[str, Any]:
    """Return what each prompt shares with that before it of its conversation."""
    named = [name or f"\0{at}" for at, name in enumerate(sessions)]
    found = Recording(
        np.unique(named, return_inverse=True)[1].astype(np.int64),
        columns["prompt_tokens"],
        columns["output_tokens"],
        columns["arrival_s"],
        end_s,
        agent=agent.astype(np.int64),
    ).columns(Notes(path))
    return {name: column for name, column in found.items() if name != "text_names"}
