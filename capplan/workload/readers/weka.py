"""Sessions of kv-cache-tester (Weka, AgentX): an object each."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from capplan.records import Record
from capplan.workload.readers.agents import AgentFormat, Reading, Row, has

_BLOCK = 64
_SLACK_S = 1.0  # stamps are whole seconds


def weka(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield the requests of sessions.

    ``hash_ids`` are of whole blocks and of the session alone; sessions share the
    text of their tools and system prompts where it has the same lengths.
    """
    for number, record in enumerate(records):
        fields = record.fields
        if fields.get("block_size", _BLOCK) != _BLOCK:
            text = f"block_size is {fields['block_size']}; expected {_BLOCK}"
            raise reading.wrong(record, text)
        tools, system = (
            int(fields.get(f"{k}_tokens") or 0) for k in ("tool", "system")
        )
        text = f"tools {tools}, system {system}" if tools + system else ""
        asked = fields.get("requests")
        if not isinstance(asked, list):
            raise reading.wrong(record, "no requests; expected a list of them")
        for row, agent in list(_requests(record.place, asked)):
            yield _row(row, f"{number}", agent, (text, tools + system), reading)


def _requests(place: str, asked: list[Any]) -> Iterator[tuple[Record, str]]:
    """Yield the requests of a session and of its sub-agents, with whose they are."""
    for k, request in enumerate(asked, 1):
        at = f"{place}, request {k}"
        inner = request.get("requests")
        if not isinstance(inner, list):
            yield Record(at, request), ""
            continue
        spawn = float(request.get("t") or 0)
        agent = str(request.get("agent_id") or f"agent {k}")
        for j, each in enumerate(inner, 1):
            t = float(each.get("t") or 0)
            absolute = {**each, "t": t if t >= spawn else spawn + t}
            yield Record(f"{at}.{j}", absolute), agent


def _row(
    record: Record, session: str, agent: str, text: tuple[str, int], reading: Reading
) -> Row:
    fields, start_s = record.fields, reading.number(record, "t")
    took_s, think_s = fields.get("api_time"), fields.get("think_time")
    return Row(
        record.place,
        session,
        int(reading.number(record, "in", 1)),
        int(reading.number(record, "out")),
        agent,
        start_s,
        start_s + (float(took_s) if took_s is not None else np.nan),
        np.nan if think_s is None or agent else max(0.0, float(think_s)),
        fields.get("hash_ids"),
        *text,
    )


FORMATS = {
    "weka": AgentFormat(has("t", "in", "out", "hash_ids"), weka, _BLOCK, _SLACK_S, True)
}
