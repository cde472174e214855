"""Mooncake's rows of agents: those that say whom they wait for, and turns."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from capplan.records import Record
from capplan.workload.readers.agents import AgentFormat, Reading, Row, has
from capplan.workload.readers.token_counts import ESTIMATE_NOTE, estimate

_BLOCK = 512


def agentic_mooncake(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield rows that say for which requests, and how long, they wait."""
    root_of = dict[str, str]()
    for record in records:
        fields = record.fields
        waits = fields.get("wait_for") or []
        names = [str(name) for name in (waits if isinstance(waits, list) else [waits])]
        think_ms = sum(float(fields.get(k) or 0) for k in ("delay", "tool_wait_ms"))
        own = str(fields.get("request_id"))
        root_of[own] = root_of.get(names[0], own) if names else own
        yield Row(
            record.place,
            root_of[own],
            int(reading.number(record, "input_length", 1)),
            int(reading.number(record, "output_length")),
            start_s=_seconds(fields.get("timestamp")),
            think_s=think_ms / 1e3,
            blocks=fields.get("hash_ids"),
            id=own,
            after=tuple(names),
        )


def mooncake_sessions(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield turns of sessions: whole prompts with blocks, else what each turn adds."""
    history = Counter[str]()
    for record in records:
        session, turns = (record.fields.get(k) for k in ("session_id", "turns"))
        parts = [record]
        if isinstance(turns, list):
            notes, is_estimate = reading.notes, reading.count_tokens is estimate
            if is_estimate and ESTIMATE_NOTE not in notes.texts:
                notes.add(ESTIMATE_NOTE)
            parts = [
                Record(f"{record.place}, turn {k}", turn)
                for k, turn in enumerate(turns, 1)
            ]
        for part in parts:
            yield _turn(part, str(session), history, reading)


def _turn(record: Record, session: str, history: Counter[str], reading: Reading) -> Row:
    fields = dict(record.fields)
    if "input_length" not in fields:
        said = fields.get("texts") or [fields.get("text") or ""]
        fields["input_length"] = int(reading.count_tokens([*map(str, said)]).sum())
    record = Record(record.place, fields)
    prompt = int(reading.number(record, "input_length", 1))
    output = int(reading.number(record, "output_length"))
    if (blocks := fields.get("hash_ids")) is None:
        prompt += history[session]
    history[session] = prompt + output
    return Row(
        record.place,
        session,
        prompt,
        output,
        start_s=_seconds(fields.get("timestamp")),
        think_s=_seconds(fields.get("delay_ms", fields.get("delay"))),
        blocks=blocks,
    )


def _seconds(ms: Any) -> float:
    return np.nan if ms is None else float(ms) / 1e3


def _is_sessions(first: Mapping[str, Any]) -> bool:
    if "session_id" not in first:
        return False
    delays = not isinstance(first.get("timestamp"), str)
    hashed = not any(name.startswith("hash_ids.") for name in first)
    counted = has("input_length", "output_length")(first) and delays and hashed
    return isinstance(first.get("turns"), list) or counted


FORMATS = {
    "agentic-mooncake": AgentFormat(
        has("request_id", "input_length", "output_length"), agentic_mooncake, _BLOCK
    ),
    "mooncake-sessions": AgentFormat(_is_sessions, mooncake_sessions, _BLOCK),
}
