"""Conversations: ShareGPT's, OpenAI messages and batches, LMSYS-Chat-1M, WildChat.

A row of a JSON or Parquet file has one as a list of messages with a role and a text:
``{"from": …, "value": …}`` or ``{"role": …, "content": …}``, under a key of ``_LISTS``.
Three rules select the messages that make a request:

``first``
    The first human message and its answer; left out where an answer comes first.
``vllm``
    Messages 0 and 1 whatever their roles, at least 4 tokens each, at most 1,024 in
    the prompt and 2,048 in total, as in vLLM's benchmark of ShareGPT.
``multiturn``
    Every answered message; its prompt is everything before the answer. The turns of a
    conversation share it as their prefix, and are a session.

A request of a batch that has no answer is as long as its ``max_tokens``.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.records import Record
from capplan.workload.readers import first_row, requests
from capplan.workload.readers.columns import NAMES, PER_S, Columns, columns_among
from capplan.workload.readers.formats import FORMATS
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes
from capplan.workload.readers.table import Table, table_of, whole_records
from capplan.workload.readers.token_counts import (
    ESTIMATE_NOTE,
    CountTokens,
    estimate,
    tokenizer_counter,
)
from capplan.workload.trace import Trace

_LISTS = ["conversations", "messages", "conversation"]
_LISTS += ["conversation_a", "conversation_b"]  # of two LLMs, asked the same
_TEXTS = ("content", "value", "text")
_LIMITS = ("max_completion_tokens", "max_tokens")
_BEFORE = ("system", "developer")
_ASKS = ("human", "user", "tool", "function")
_ANSWERS = ("gpt", "chatgpt", "assistant", "bing", "bard", "model")
_BATCH_CONVERSATIONS = 512
_SAID = {
    "parts": "images and other parts without text: not counted",
    "limits": "answers are not in the file: as long as max_tokens allows",
}

_BOUNDS = {"vllm": (4, 1024, 2048)}
"""Least tokens of a text, most of a prompt and of both, by rule."""


class Message(NamedTuple):
    """What was said in a conversation, and when."""

    role: str
    text: str
    stamp: Any = None
    tokens: int = 0  # of an answer of which only its limit is known
    usage: tuple[Any, ...] = ()  # tokens of prompt and answer, where they are told


Conversation = tuple[int, Mapping[str, Any], list[Message]]
"""A row of a file, from 0, its fields and the messages of one of its lists."""


def knows(first: Mapping[str, Any]) -> bool:
    """Return whether the first row of a file holds conversations."""
    return bool(_lists(first))


def first_turn(messages: list[Message]) -> list[int]:
    """Return the answer to the first question; system text counts as prompt."""
    question = 0
    while question < len(messages) and messages[question].role in _BEFORE:
        question += 1
    return [question + 1] if _answered(messages, question) else []


RULES: dict[str, Callable[[list[Message]], list[int]]] = {
    "first": first_turn,
    "vllm": lambda said: [1] if len(said) >= 2 else [],
    "multiturn": lambda said: [k + 1 for k in range(len(said)) if _answered(said, k)],
}
"""Rules by name: indices of the answers; the messages before one are its prompt."""


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a file of conversations."""
    notes = Notes(path)
    count_tokens: CountTokens = estimate
    if options.tokenizer is not None:
        count_tokens = tokenizer_counter(options.tokenizer)
        notes.add(f"tokens counted with {Path(options.tokenizer)}", warn=False)
    else:
        notes.add(ESTIMATE_NOTE)
    tally: Counter[str] = Counter()
    if options.turns:
        options = replace(options, sharegpt_rule="multiturn")
    rule = options.sharegpt_rule
    columns = _columns(path, options)
    conversations = _conversations(notes, options.salvage, tally)
    index: list[int] = []
    rows: list[dict[str, Any]] = []
    while batch := list(islice(conversations, _BATCH_CONVERSATIONS)):
        for row, fields in _requests(batch, RULES[rule], count_tokens, columns, tally):
            index.append(row)
            rows.append(fields)
    table = table_of(path, rows, index, requests.wanted(columns))
    right = _right(table, rule)
    if not right.any():
        why = "all are empty or out of bounds" if rows else "none is answered"
        raise InputError(
            f"{path}: no request in {tally['read']:,} conversations under the rule "
            f"{rule!r}: {why}"
        )
    notes.add(
        f"{right.sum():,} requests from {tally['read']:,} conversations (rule {rule!r};"
        f" {(~right).sum():,} with empty or out-of-bounds messages left out)",
        warn=False,
    )
    for kind, said in _SAID.items():
        if tally[kind]:
            notes.add(f"{tally[kind]:,} {said}")
    chosen = table.select(right)
    if options.turns:
        names = {**columns.names, "session": "prefix_group"}
        names.pop("prefix_group")
        named = chosen.frame["prefix_group"].astype(str).astype("category")
        chosen = Table(path, chosen.frame.assign(prefix_group=named))
        columns = replace(columns, names=names)
    trace = requests.of_table(chosen, columns, notes, FORMATS["csv"], options)
    if rule != "multiturn" or options.turns:
        return trace
    return trace.changed(session=trace.prefix_group)


def _columns(path: str | Path, options: ReadOptions) -> Columns:
    """Return the columns of the requests, and which fields of a row are read."""
    counted = ["prompt_tokens", "output_tokens"]
    if options.sharegpt_rule == "multiturn":
        counted += ["prefix_group", "prefix_tokens"]
    header = first_row(path) | dict.fromkeys(counted)
    of = dict.fromkeys(NAMES, "") | {name: name for name in counted}
    for column in (*PER_S, "class"):
        del of[column]
    columns = columns_among(header, of | dict(options.columns), str(path))
    return replace(columns, unread=())


def _right(table: Table, rule: str) -> np.ndarray:
    """Return which requests have tokens, as many as a rule allows, shape (n,), bool."""
    prompt, output = (
        table.frame[f"{k}_tokens"].to_numpy() for k in ("prompt", "output")
    )
    least, most_prompt, most = _BOUNDS.get(rule, (1, np.inf, np.inf))
    long = (prompt > most_prompt) | (prompt + output > most)
    return (np.minimum(prompt, output) >= least) & ~long


def _requests(
    batch: list[Conversation],
    rule: Callable[[list[Message]], list[int]],
    count_tokens: CountTokens,
    columns: Columns,
    tally: Counter[str],
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each request's row of the file, and its fields by ``columns``."""
    answers = [
        [len(said) - 1] if said and said[-1].tokens else rule(said)
        for *_, said in batch
    ]
    used = [max(indices, default=-1) + 1 for indices in answers]
    said = [each for k, (*_, all_) in enumerate(batch) for each in all_[: used[k]]]
    tokens = count_tokens([each.text for each in said])
    tokens = tokens + np.array([each.tokens for each in said], np.int64)
    start = 0
    for k, (row, fields, messages) in enumerate(batch):
        of_conversation = tokens[start : start + used[k]]
        before = np.cumsum(of_conversation) - of_conversation
        start += used[k]
        for index in answers[k]:
            found = {name: fields.get(name) for name in columns.names.values()}
            prompt, output = int(before[index]), int(of_conversation[index])
            prompt, output = messages[index].usage or (prompt, output)
            found |= {"prompt_tokens": prompt, "output_tokens": output}
            found["prefix_tokens"] = prompt
            found["prefix_group"] = tally["asked"]
            if columns.arrival:
                stamps = messages[index].stamp, messages[index - 1].stamp
                name = columns.names[columns.arrival]
                found[name] = stamps[0] or stamps[1] or found[name]
            yield row, found
        tally["asked"] += 1


def _conversations(
    notes: Notes, salvage: bool, tally: Counter[str]
) -> Iterator[Conversation]:
    for row, record in enumerate(whole_records(notes, salvage)):
        for listed in _lists(record.fields):
            yield row, record.fields, _messages(notes.path, record, listed, tally)
        tally["read"] += 1


def _lists(fields: Mapping[str, Any]) -> list[list[Any]]:
    return [
        value
        for name, value in fields.items()
        if name.rpartition(".")[2] in _LISTS and isinstance(value, list)
    ]


def _messages(
    path: str | Path, record: Record, listed: list[Any], tally: Counter[str]
) -> list[Message]:
    """Return the messages of a list, behind the tools that the LLM is told of."""
    fields = {name.rpartition(".")[2]: value for name, value in record.fields.items()}
    try:
        messages = [
            Message(
                said["role"] if "role" in said else said["from"],
                _text(said, tally),
                said.get("timestamp"),
                usage=_usage(said),
            )
            for said in listed
        ]
    except (TypeError, KeyError, AttributeError):
        raise InputError(
            f"{path}{record.place}: not the messages of a conversation; expected "
            '[{"role": …, "content": …}, …] or [{"from": …, "value": …}, …]'
        ) from None
    if tools := fields.get("tools"):
        messages.insert(0, Message("system", json.dumps(tools, default=str)))
    limit = next((fields[name] for name in _LIMITS if type(fields.get(name)) is int), 0)
    if (
        "custom_id" in fields
        and limit > 0
        and messages[-1:]
        and messages[-1].role in _ASKS
    ):
        tally["limits"] += 1
        messages.append(Message("assistant", "", None, limit))
    return messages


def _usage(said: dict[str, Any]) -> tuple[Any, ...]:
    """Return the tokens of prompt and answer that a message tells, or none."""
    usage = said.get("usage") or {}
    counts = tuple(usage.get(f"{kind}_tokens") for kind in ("prompt", "completion"))
    return counts if all(type(count) is int and count > 0 for count in counts) else ()


def _text(said: dict[str, Any], tally: Counter[str]) -> str:
    """Return the text of a message: of its parts, its thoughts and its calls."""
    content = said[next(name for name in (*_TEXTS, "") if name in said or not name)]
    parts = [said.get("reasoning_content")]
    parts += content if isinstance(content, list) else [content]
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if text is None:
            tally["parts"] += part is not None
        else:
            texts.append(text + "")  # refuses what is no text
    for call in said.get("tool_calls") or []:
        texts += [str(value) for value in call["function"].values()]
    return "".join(texts)


def _answered(messages: list[Message], index: int) -> bool:
    roles = [message.role for message in messages[index : index + 2]]
    return len(roles) == 2 and roles[0] in _ASKS and roles[1] in _ANSWERS
