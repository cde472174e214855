"""Dynamo's request trace, whose sub-agents name their parents."""

from collections.abc import Iterable, Mapping

import numpy as np

from capplan.records import Record
from capplan.workload.readers.agents import AgentFormat, Reading, Row, has


def dynamo(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield the requests; stamps of requests tell the time of tools."""
    above, found = dict[str, str](), list[tuple[Record, str]]()
    for record in records:
        fields = record.fields
        if fields.get("event_type") != "request_end":
            continue
        session = str(fields.get("agent_context.session_id") or "")
        if found and bool(session) != bool(found[0][1]):
            text = "rows with and without agent_context; expected one kind"
            raise reading.wrong(record, text)
        if parent := fields.get("agent_context.parent_session_id"):
            above[session] = str(parent)
        found.append((record, session))
    for record, session in found:
        yield _row(record, session, above, reading)


def _row(
    record: Record, session: str, above: Mapping[str, str], reading: Reading
) -> Row:
    fields, root, below = record.fields, session, set[str]()
    while root in above and root not in below:
        below.add(root)
        root = above[root]
    received_ms = reading.number(record, "request.request_received_ms")
    took_ms = fields.get("request.total_time_ms")
    return Row(
        record.place,
        root or record.place,
        int(reading.number(record, "request.input_tokens", 1)),
        int(reading.number(record, "request.output_tokens")),
        session if session != root else "",
        received_ms / 1e3,
        np.nan if took_ms is None else (received_ms + float(took_ms)) / 1e3,
        blocks=fields.get("request.replay.input_sequence_hashes"),
        block_tokens=int(fields.get("request.replay.trace_block_size") or 0),
        is_alone=not session,
    )


FORMATS = {"dynamo": AgentFormat(has("event_type", "event_time_unix_ms"), dynamo)}
