"""Trace formats: what a file of each has, and what its columns mean.

``requests.read`` does the rest. ``csv`` is every other table whose columns are known by
their names or said with ``--columns``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.workload.readers import requests
from capplan.workload.readers.cells import parsed
from capplan.workload.readers.columns import NAMES, columns_among
from capplan.workload.readers.hashed_blocks import arrivals_in_buckets, chat_sessions
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes
from capplan.workload.readers.table import Table
from capplan.workload.trace import Trace

FirstRow = Mapping[str, Any]
"""Columns of a file, with the values of its first row where it is JSON or Parquet."""


@dataclass(frozen=True)
class Format:
    """A source of requests whose columns are known."""

    what: str  # one sentence
    knows: Callable[[FirstRow], bool]
    # names, best first; none is guessed where the last is empty
    columns: Mapping[str, str] = field(default_factory=dict)
    is_guessed: bool = True  # columns that are not said may be guessed
    also: Mapping[str, str | None] = field(default_factory=dict)  # columns that the
    # functions below read, with their dtype
    from_zero: bool = False  # the first request arrives at 0 s
    note: str = ""
    block_tokens: int = 0  # of a block of ``hash_ids``
    arrivals: Callable[[np.ndarray, int, Notes], np.ndarray] | None = None
    sessions: Callable[[Table, np.ndarray], np.ndarray] | None = None
    check: Callable[[Table, Notes], None] | None = None
    tidy: Callable[[Table, Notes], Table] | None = None  # before rows are left out

    def read(self, path: str | Path, options: ReadOptions) -> Trace:
        """Return the requests of a file of this format."""
        return requests.read(path, options, self)

    def given(
        self, header: Mapping[str, Any], said: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the columns in a file by what the user and then the format say."""
        of = {} if self.is_guessed else dict.fromkeys(NAMES, "")
        for column, names in self.columns.items():
            present = [_found(name, header) for name in names.split("|") if name]
            if any(present) or names.endswith("|"):
                of[column] = next(filter(None, present), "")
        if any(column.startswith("arrival") for column in said):
            of = {name: text for name, text in of.items() if name[:7] != "arrival"}
        taken = set(said.values())
        return {name: text for name, text in of.items() if text not in taken} | dict(
            said
        )


def _found(name: str, header: Mapping[str, Any]) -> str:
    """Return a name as a file has it, at any depth, the least deep; else nothing."""
    nested = sorted((at for at in header if at.endswith(f".{name}")), key=len)
    return next(iter([name] * (name in header) + nested), "")


def _has(*names: str) -> Callable[[FirstRow], bool]:
    return lambda first: first.keys() >= set(names)


_HASHED = {"prompt_tokens": "input_length", "output_tokens": "output_length"}
_STAMPED = ("timestamp", "input_length", "output_length")


def _is_ragpulse(first: FirstRow) -> bool:
    named = any(name.startswith("hash_ids.") for name in first)
    return _has(*_STAMPED)(first) and (named or "session_id" in first)


def _is_mooncake(first: FirstRow) -> bool:
    numeric = type(first.get("timestamp")) in (int, float)
    return numeric and _has(*_STAMPED)(first) and "chat_id" not in first


def _is_plain(first: FirstRow) -> bool:
    try:
        names = columns_among(first).names
    except InputError:  # ambiguous: that is said when it is read
        return True
    return {"prompt_tokens", "output_tokens"} <= set(names)


def _images(table: Table, notes: Notes) -> None:
    if "NumImages" not in table.frame or table.frame["NumImages"].isna().all():
        return
    images = table.tokens("NumImages", least=0)
    if images.any():
        notes.add(
            f"{images.sum():,} images in {(images > 0).sum():,} requests count "
            "only as far as ContextTokens holds their tokens"
        )


_CLAUDE_OUTPUT = "message.usage.output_tokens"
_CLAUDE_PREFIX = "message.usage.cache_read_input_tokens"
_CLAUDE_ALSO: dict[str, str | None] = {"timestamp": None, _CLAUDE_PREFIX: None}
_CLAUDE_ALSO |= dict.fromkeys(("message.id", "uuid", "parentUuid"), "category")


def _is_claude_code(first: FirstRow) -> bool:
    marks = ("sessionId", "leafUuid", "snapshot.messageId")
    return "type" in first and any(mark in first for mark in marks)


def _answers_once(table: Table, notes: Notes) -> Table:
    """Return the answers, each once, at the time of what it answers.

    Claude Code writes a line for each part of an answer, with its usage so far.
    """
    names = "message.id", "uuid", "parentUuid", "timestamp", _CLAUDE_OUTPUT
    columns = (table.frame[name].astype(object) for name in names)
    answer, own, parent, stamp, output = columns
    at = dict(zip(own.fillna(""), stamp, strict=True))
    of = dict(zip(own.fillna(""), answer, strict=True))
    asked = [at.get(k) or now for k, now in zip(parent, stamp, strict=True)]
    begins = [of.get(k) != one for k, one in zip(parent, answer, strict=True)]
    kept = output.notna() & np.array(begins, bool)
    kept &= answer.isna() | ~answer.where(kept).duplicated()
    notes.add(
        f"{(~kept).sum():,} of {len(kept):,} rows are no answers or go on with one: "
        "left out",
        warn=False,
    )
    most = parsed(output).groupby(answer).transform("max")
    read = table.frame[_CLAUDE_PREFIX].astype(object)
    frame = table.frame.assign(timestamp=asked)
    frame[_CLAUDE_OUTPUT] = most.where(most.notna(), output)
    frame[_CLAUDE_PREFIX] = read.where(read.notna(), 0)
    return Table(table.path, frame).select(kept.to_numpy(bool))


FORMATS = {
    "azure": Format(
        "Azure's LLM inference traces of 2023, 2024 and 2025 (AzurePublicDataset).",
        _has("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        {
            "arrival_s": "TIMESTAMP",
            "prompt_tokens": "ContextTokens",
            "output_tokens": "GeneratedTokens",
        },
        is_guessed=False,
        also={"NumImages": None},
        from_zero=True,
        check=_images,
    ),
    "burstgpt": Format(
        "BurstGPT: whole seconds, failures with no response tokens (HPMLL/BurstGPT).",
        _has("Timestamp", "Request tokens", "Response tokens"),
        {
            "arrival_s": "Timestamp",
            "prompt_tokens": "Request tokens",
            "output_tokens": "Response tokens",
            "class": "Log Type",
            "session": "Session ID",
        },
        is_guessed=False,
        from_zero=True,
        note="arrivals are whole seconds in this source",
    ),
    "qwen-bailian": Format(
        "Qwen-Bailian's usage traces: seconds, prompts as hashed 16-token blocks.",
        _has("chat_id", *_STAMPED),
        {"arrival_s": "timestamp", "class": "type", **_HASHED},
        is_guessed=False,
        also={"hash_ids": None, "chat_id": "category", "parent_chat_id": "category"},
        from_zero=True,
        block_tokens=16,
        sessions=chat_sessions,
    ),
    "ragpulse": Format(
        "RAGPulse: seconds as text, prompts of named parts (flashserve/RAGPulse).",
        _is_ragpulse,
        {"arrival_s": "timestamp", "session": "session_id", **_HASHED},
        is_guessed=False,
        from_zero=True,
        note="what prompts share of their passages is not read",
    ),
    "mooncake": Format(
        "Mooncake's traces: milliseconds, prompts as hashed 512-token blocks.",
        _is_mooncake,
        {"arrival_ms": "timestamp", **_HASHED},
        is_guessed=False,
        also={"hash_ids": None},
        from_zero=True,
        block_tokens=512,
        arrivals=arrivals_in_buckets,
    ),
    "langfuse": Format(
        "Langfuse's observations, of its API or its export; generations are requests.",
        _has("type", "startTime", "level"),
        {
            "prompt_tokens": "usage.input|inputUsage|promptTokens|usageDetails.input",
            "output_tokens": (
                "usage.output|outputUsage|completionTokens|usageDetails.output"
            ),
            **{"kind": "type", "status": "level", "session": "sessionId"},
        },
    ),
    "langsmith": Format(
        "LangSmith's runs; those of type llm are requests.",
        _has("run_type", "start_time"),
        {"kind": "run_type", "session": "thread_id|"},  # session_id is the project
    ),
    "litellm": Format(
        "LiteLLM's spend logs (LiteLLM_SpendLogs, /spend/logs).",
        _has("call_type", "startTime", "prompt_tokens", "completion_tokens"),
        {"kind": "call_type", "status": "status"},
    ),
    "bedrock": Format(
        "Amazon Bedrock's invocation logs, of which the first may have failed.",
        _has("schemaType", "modelId", "operation"),
        {
            "arrival_s": "timestamp",
            "prompt_tokens": "input.inputTokenCount",
            "output_tokens": "output.outputTokenCount",
            **{"class": "modelId", "error": "errorCode", "kind": ""},
        },
    ),
    "opentelemetry": Format(
        "OpenTelemetry's spans of generative AI: OTLP JSON, or a flat table of them.",
        lambda first: any("startTimeUnixNano" in at or "gen_ai." in at for at in first),
        {
            "arrival_ns": "startTimeUnixNano",
            "prompt_tokens": "gen_ai.usage.input_tokens|gen_ai.usage.prompt_tokens",
            "output_tokens": (
                "gen_ai.usage.output_tokens|gen_ai.usage.completion_tokens"
            ),
            "class": "gen_ai.request.model",
            "kind": "gen_ai.operation.name",
            **{"status": "status.code", "error": "error.type"},
            "session": "gen_ai.conversation.id",
        },
    ),
    "claude-code": Format(
        "Claude Code's logs (~/.claude/projects): a line for each part of an answer.",
        _is_claude_code,
        {
            "arrival_s": "timestamp",
            "prompt_tokens": "message.usage.input_tokens",
            "output_tokens": _CLAUDE_OUTPUT,
            "class": "message.model",
            "session": "sessionId",
            "prefix_tokens": _CLAUDE_PREFIX,
        },
        is_guessed=False,
        also=_CLAUDE_ALSO,
        note="tokens that the provider read from its cache are a prefix of the session",
        tidy=_answers_once,
    ),
    "csv": Format(
        "Columns by their names, of a CSV, JSON lines, a JSON array or Parquet.",
        _is_plain,
    ),
}
"""Formats by name, in the order in which they are tried."""
