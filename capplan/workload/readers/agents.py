"""Recordings of agents: kv-cache-tester (Weka, AgentX), Dynamo, Mooncake, AIPerf.

A line or an object is a session (Weka, AIPerf's ``turns``) or a request. Prompts are
hashed blocks, lengths, or texts of which only the token counts are kept.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.records import Record
from capplan.workload.forest import NONE
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace, say_left_out
from capplan.workload.readers.recorded import Recording, Waits
from capplan.workload.readers.table import whole_records
from capplan.workload.readers.token_counts import (
    ESTIMATE_NOTE,
    CountTokens,
    estimate,
    tokenizer_counter,
)
from capplan.workload.trace import MAX_TOKENS, Trace

_WEKA_BLOCK, _MOONCAKE_BLOCK = 64, 512
_WEKA_SLACK_S = 1.0  # stamps are whole seconds
_SUBAGENT = "::sa:"


class Row(NamedTuple):
    """A request as a recording has it."""

    place: str  # in the file, for messages
    session: str
    prompt: int
    output: int
    agent: str = ""  # of the session; empty: the main one
    start_s: float = np.nan
    end_s: float = np.nan
    think_s: float = np.nan
    blocks: list[int | str] | None = None
    text: str = ""  # that the session's first prompt begins with
    text_tokens: int = 0
    id: str = ""
    after: tuple[str, ...] | None = None  # ids, where they are recorded
    block_tokens: int = 0  # where rows say it
    is_alone: bool = False  # of no conversation that is told


class Reading(NamedTuple):
    """What a format makes of its records."""

    notes: Notes
    count_tokens: CountTokens
    left_out: Counter[str]


Rows = Callable[[Iterable[Record], Reading], Iterable[Row]]


@dataclass(frozen=True)
class AgentFormat:
    """A format of recorded conversations."""

    knows: Callable[[Mapping[str, Any]], bool]  # of the first row
    rows: Rows
    block_tokens: int = 0
    slack_s: float = 0.0
    is_relative: bool = False  # times count from the begin of each session

    def read(self, path: str | Path, options: ReadOptions) -> Trace:
        """Return the conversations of a file, whose turns come after answers."""
        notes, left_out = Notes(path), Counter[str]()
        count: CountTokens = estimate
        if options.tokenizer is not None:
            count = tokenizer_counter(options.tokenizer)
        place = ""

        def followed() -> Iterator[Record]:
            nonlocal place
            for record in whole_records(notes, options.salvage, wrappers=()):
                place = record.place
                yield record

        try:
            read = list(self.rows(followed(), Reading(notes, count, left_out)))
            rows = [row for row in read if row.output]
            left_out["without output tokens"] = len(read) - len(rows)
            say_left_out(notes, +left_out, len(rows) + left_out.total())
            if not rows:
                raise InputError(f"{path}: no requests in it; expected some")
            columns = self._recording(rows, path).columns(notes)
            arrival_s = columns.pop("arrival_s", None)
            return ordered_trace(notes, arrival_s, **columns)
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{path}{place}: no request as this format has it ({error}); see "
                "docs/inputs.md"
            ) from None

    def _recording(self, rows: list[Row], path: str | Path) -> Recording:
        session = _numbers(row.session for row in rows)
        begin_s = np.array([row.start_s for row in rows])
        start_s = end_s = root_s = None
        if np.isfinite(begin_s).all():
            order = np.lexsort((begin_s, session if self.is_relative else begin_s))
            rows, session = [rows[k] for k in order], session[order]
            session = _numbers(map(str, session))
            start_s = begin_s[order] - begin_s.min()
            end_s = np.array([row.end_s for row in rows]) - begin_s.min()
        if self.is_relative and session.max():
            root_s = np.full(len(rows), np.nan)  # when sessions begin is not told
        elif start_s is None:
            root_s = begin_s - np.fmin.reduce(begin_s)
        think_s = np.array([row.think_s for row in rows])
        tokens = np.array([row.text_tokens for row in rows])
        has_blocks = all(row.blocks is not None for row in rows)
        return Recording(
            session,
            np.array([row.prompt for row in rows]),
            np.array([row.output for row in rows]),
            start_s,
            None if end_s is None or np.isnan(end_s).all() else end_s,
            _agents(rows, session),
            [row.blocks or [] for row in rows] if has_blocks else None,
            self.block_tokens or rows[0].block_tokens or 1,
            None if np.isnan(think_s).all() else think_s,
            self.slack_s,
            ([row.text for row in rows], tokens) if tokens.any() else None,
            _waits(rows, path),
            root_s,
            all(row.is_alone for row in rows),
        )


def _numbers(names: Iterable[str]) -> np.ndarray:
    number: dict[str, int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], np.int64)


def _agents(rows: list[Row], session: np.ndarray) -> np.ndarray:
    """Return the number of each row's agent in its session, 0 the main one."""
    number: dict[tuple[int, str], int] = {}
    counts: Counter[int] = Counter()
    found = np.zeros(len(rows), np.int64)
    for k, row in enumerate(rows):
        if row.agent:
            key = int(session[k]), row.agent
            if key not in number:
                counts[key[0]] += 1
                number[key] = counts[key[0]]
            found[k] = number[key]
    return found


def _waits(rows: list[Row], path: str | Path) -> Waits | None:
    """Return for whom each row waits, where the recording says so."""
    if all(row.after is None for row in rows):
        return None
    at = {row.id: k for k, row in enumerate(rows)}
    after, joins = np.full(len(rows), NONE), list[tuple[int, int]]()
    for k, row in enumerate(rows):
        for name in row.after or ():
            if name not in at:
                raise InputError(
                    f"{path}{row.place}: waits for {name}; expected the id of a request"
                )
        named = [at[name] for name in row.after or ()]
        after[k] = named[0] if named else NONE
        joins += [(k, other) for other in named[1:]]
    pairs = np.array(joins, np.int64).reshape(-1, 2)
    return Waits(after, pairs, np.array([row.think_s for row in rows]), after)


def _number(record: Record, path: Any, name: str, least: float = 0) -> float:
    value: Any = record.fields.get(name)
    if type(value) not in (int, float) or not least <= value <= MAX_TOKENS * 1e12:
        raise InputError(
            f"{path}{record.place}: {name} is {value!r}; expected a number from {least}"
        )
    return float(value)


def weka(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield the requests of kv-cache-tester's sessions, one an object.

    ``hash_ids`` are of whole blocks and of the session alone; sessions share the
    text of their tools and system prompts where it has the same lengths.
    """
    path = reading.notes.path
    for number, record in enumerate(records):
        fields = record.fields
        if fields.get("block_size", _WEKA_BLOCK) != _WEKA_BLOCK:
            raise InputError(
                f"{path}{record.place}: block_size is {fields['block_size']}; expected "
                f"{_WEKA_BLOCK}"
            )
        tools, system = (
            int(fields.get(f"{k}_tokens") or 0) for k in ("tool", "system")
        )
        session = f"{number}"
        text = f"tools {tools}, system {system}" if tools + system else ""
        asked = fields.get("requests")
        if not isinstance(asked, list):
            raise InputError(
                f"{path}{record.place}: no requests; expected a list of them"
            )
        rows = []
        for k, request in enumerate(asked, 1):
            place = f"{record.place}, request {k}"
            inner = request.get("requests")
            if isinstance(inner, list):
                spawn = float(request.get("t") or 0)
                agent = str(request.get("agent_id") or f"agent {k}")
                for at, each in enumerate(inner, 1):
                    t = float(each.get("t") or 0)
                    absolute = {**each, "t": t if t >= spawn else spawn + t}
                    rows.append((f"{place}.{at}", agent, absolute))
            else:
                rows.append((place, "", request))
        for place, agent, request in rows:
            yield _weka_row(
                Record(place, request), session, agent, (text, tools + system), reading
            )


def _weka_row(
    record: Record, session: str, agent: str, text: tuple[str, int], reading: Reading
) -> Row:
    path, fields = reading.notes.path, record.fields
    start_s = _number(record, path, "t")
    took_s = fields.get("api_time")
    think_s = fields.get("think_time")
    return Row(
        record.place,
        session,
        int(_number(record, path, "in", 1)),
        int(_number(record, path, "out")),
        agent,
        start_s,
        start_s + (float(took_s) if took_s is not None else np.nan),
        np.nan if think_s is None or agent else max(0.0, float(think_s)),
        fields.get("hash_ids"),
        *text,
    )


def dynamo(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield the requests of Dynamo's request trace; sub-agents name their parents."""
    path, above = reading.notes.path, dict[str, str]()
    found: list[tuple[Record, str]] = []
    for record in records:
        fields = record.fields
        kind = fields.get("event_type")
        if kind != "request_end":
            continue  # of a tool: stamps of requests tell its time
        session = str(fields.get("agent_context.session_id") or "")
        if found and bool(session) != bool(found[0][1]):
            raise InputError(
                f"{path}{record.place}: rows with and without agent_context; expected "
                "one kind"
            )
        if parent := fields.get("agent_context.parent_session_id"):
            above[session] = str(parent)
        found.append((record, session))
    for record, session in found:
        yield _dynamo_row(record, session, above, path)


def _dynamo_row(
    record: Record, session: str, above: Mapping[str, str], path: Any
) -> Row:
    fields, root, below = record.fields, session, set[str]()
    while root in above and root not in below:
        below.add(root)
        root = above[root]
    received_ms = _number(record, path, "request.request_received_ms")
    took_ms = fields.get("request.total_time_ms")
    return Row(
        record.place,
        root or record.place,
        int(_number(record, path, "request.input_tokens", 1)),
        int(_number(record, path, "request.output_tokens")),
        session if session != root else "",
        received_ms / 1e3,
        np.nan if took_ms is None else (received_ms + float(took_ms)) / 1e3,
        blocks=fields.get("request.replay.input_sequence_hashes"),
        block_tokens=int(fields.get("request.replay.trace_block_size") or 0),
        is_alone=not session,
    )


def agentic_mooncake(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield Mooncake's rows that say for which requests, and how long, they wait."""
    path, root_of = reading.notes.path, dict[str, str]()
    for record in records:
        fields = record.fields
        waits = fields.get("wait_for") or []
        names = [str(name) for name in (waits if isinstance(waits, list) else [waits])]
        think_ms = sum(float(fields.get(k) or 0) for k in ("delay", "tool_wait_ms"))
        stamp, own = fields.get("timestamp"), str(fields.get("request_id"))
        root_of[own] = root_of.get(names[0], own) if names else own
        yield Row(
            record.place,
            root_of[own],
            int(_number(record, path, "input_length", 1)),
            int(_number(record, path, "output_length")),
            start_s=np.nan if stamp is None else float(stamp) / 1e3,
            think_s=think_ms / 1e3,
            blocks=fields.get("hash_ids"),
            id=own,
            after=tuple(names),
        )


def mooncake_sessions(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield turns of sessions: whole prompts with blocks, else what each turn adds."""
    path, history = reading.notes.path, Counter[str]()
    for record in records:
        session = str(record.fields.get("session_id"))
        turns = record.fields.get("turns")
        parts = [record]
        if isinstance(turns, list):
            if (
                ESTIMATE_NOTE not in reading.notes.texts
                and reading.count_tokens is estimate
            ):
                reading.notes.add(ESTIMATE_NOTE)
            parts = [
                Record(f"{record.place}, turn {k}", turn)
                for k, turn in enumerate(turns, 1)
            ]
        for part in parts:
            yield _mooncake_turn(part, session, history, reading, path)


def _mooncake_turn(
    record: Record, session: str, history: Counter[str], reading: Reading, path: Any
) -> Row:
    fields = dict(record.fields)
    if "input_length" not in fields:
        said = fields.get("texts") or [fields.get("text") or ""]
        fields["input_length"] = int(reading.count_tokens([*map(str, said)]).sum())
    record = Record(record.place, fields)
    new = int(_number(record, path, "input_length", 1))
    output = int(_number(record, path, "output_length"))
    blocks = fields.get("hash_ids")
    prompt = new if blocks is not None else history[session] + new
    history[session] = prompt + output
    delay = fields.get("delay_ms", fields.get("delay"))
    stamp = fields.get("timestamp")
    return Row(
        record.place,
        session,
        prompt,
        output,
        start_s=np.nan if stamp is None else float(stamp) / 1e3,
        think_s=np.nan if delay is None else float(delay) / 1e3,
        blocks=blocks,
    )


def aiperf(records: Iterable[Record], reading: Reading) -> Iterable[Row]:
    """Yield the completed requests of AIPerf's ``profile_export.jsonl``."""
    path = reading.notes.path
    for record in records:
        fields = record.fields
        of = {
            name: fields.get(f"metadata.{name}")
            for name in ("benchmark_phase", "was_cancelled")
        }
        prompt = fields.get("metrics.usage_prompt_tokens.value")
        if prompt is None:
            prompt = fields.get("metrics.input_sequence_length.value")
        output = fields.get("metrics.output_sequence_length.value")
        if (of["benchmark_phase"] or "profiling") != "profiling":
            reading.left_out["of the warm-up"] += 1
        elif of["was_cancelled"] or not prompt or output is None:
            reading.left_out["failed"] += 1
        else:
            conversation = str(fields.get("metadata.conversation_id"))
            root, _, agent = conversation.partition(_SUBAGENT)
            yield Row(
                record.place,
                root,
                int(prompt),
                int(output),
                agent,
                _number(record, path, "metadata.request_start_ns") / 1e9,
                _number(record, path, "metadata.request_end_ns") / 1e9,
            )


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda first: first.keys() >= {*names}


def _is_mooncake_sessions(first: Mapping[str, Any]) -> bool:
    if "session_id" not in first:
        return False
    has_turns = isinstance(first.get("turns"), list)
    delays = not isinstance(first.get("timestamp"), str)
    hashed = not any(name.startswith("hash_ids.") for name in first)
    return has_turns or (
        _has("input_length", "output_length")(first) and delays and hashed
    )


FORMATS = {
    "weka": AgentFormat(
        _has("t", "in", "out", "hash_ids"), weka, _WEKA_BLOCK, _WEKA_SLACK_S, True
    ),
    "dynamo": AgentFormat(_has("event_type", "event_time_unix_ms"), dynamo),
    "agentic-mooncake": AgentFormat(
        _has("request_id", "input_length", "output_length"),
        agentic_mooncake,
        _MOONCAKE_BLOCK,
    ),
    "mooncake-sessions": AgentFormat(
        _is_mooncake_sessions, mooncake_sessions, _MOONCAKE_BLOCK
    ),
    "aiperf": AgentFormat(
        _has("metadata.conversation_id", "metadata.request_start_ns"), aiperf
    ),
}
"""Formats by name."""
