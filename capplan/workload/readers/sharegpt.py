"""ShareGPT's own JSON: an array of conversations, streamed.

``[{"id": …, "conversations": [{"from": "human", "value": …}, …]}, …]``. Three
rules select the messages that make a request:

``first``
    The first human message and its answer. A conversation that begins with an
    answer is the rest of a longer one without its history: left out.
``vllm``
    Messages 0 and 1 whatever their roles, at least 4 tokens each, at most 1,024 in
    the prompt and 2,048 in total, as in vLLM's benchmark of this data set.
``multiturn``
    Every answered human message; its prompt is everything before the answer. The
    turns of a conversation share it as their prefix, and are a session.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.json_array import BrokenArrayError, iterate_items
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.readers.token_counts import (
    ESTIMATE_NOTE,
    CountTokens,
    estimate,
    tokenizer_counter,
)
from capplan.workload.trace import Trace

_ASKS = {"human", "user"}
_ANSWERS = {"gpt", "chatgpt", "assistant", "bing", "bard", "model"}
_BATCH_CONVERSATIONS = 512

_VLLM_LEAST_TOKENS = 4
_VLLM_MOST_PROMPT_TOKENS = 1024
_VLLM_MOST_TOKENS = 2048

Message = tuple[str, str]
"""Role and text."""


def knows(first: Mapping[str, Any]) -> bool:
    """Return whether the first item of an array is a conversation."""
    return isinstance(first.get("conversations"), list)


def first_turn(messages: list[Message]) -> list[int]:
    """Return the answer to the first question; system text counts as prompt."""
    question = 0
    while question < len(messages) and messages[question][0] == "system":
        question += 1
    return [question + 1] if _answered(messages, question) else []


def first_two(messages: list[Message]) -> list[int]:
    """Return message 1, whatever the roles."""
    return [1] if len(messages) >= 2 else []


def every_turn(messages: list[Message]) -> list[int]:
    """Return every answer."""
    return [i + 1 for i in range(len(messages)) if _answered(messages, i)]


RULES: dict[str, Callable[[list[Message]], list[int]]] = {
    "first": first_turn,
    "vllm": first_two,
    "multiturn": every_turn,
}
"""Rules by name: indices of the answers; the messages before one are its prompt."""


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a ShareGPT file; it has no arrivals."""
    notes = Notes(path)
    count_tokens: CountTokens = estimate
    if options.tokenizer is not None:
        count_tokens = tokenizer_counter(options.tokenizer)
        notes.add(f"tokens counted with {Path(options.tokenizer)}", warn=False)
    else:
        notes.add(ESTIMATE_NOTE)
    tally: Counter[str] = Counter()
    rule = RULES[options.sharegpt_rule]
    conversations = _conversations(path, options.salvage, notes, tally)
    rows: list[tuple[int, int, int]] = []
    while batch := list(islice(conversations, _BATCH_CONVERSATIONS)):
        rows += _requests(batch, rule, count_tokens, tally["batched"])
        tally["batched"] += len(batch)
    if not rows:
        raise InputError(
            f"{path}: no request in {tally['read']:,} conversations under the rule "
            f"{options.sharegpt_rule!r}"
        )
    prompt, output, group = np.array(rows, np.int64).T
    right = (prompt > 0) & (output > 0)
    if options.sharegpt_rule == "vllm":
        right &= np.minimum(prompt, output) >= _VLLM_LEAST_TOKENS
        right &= prompt <= _VLLM_MOST_PROMPT_TOKENS
        right &= prompt + output <= _VLLM_MOST_TOKENS
    if not right.any():
        raise InputError(f"{path}: every message is empty or out of bounds")
    prompt, output, group = prompt[right], output[right], group[right]
    notes.add(
        f"{len(prompt):,} requests from {tally['read']:,} conversations "
        f"(rule {options.sharegpt_rule!r}; "
        f"{(~right).sum():,} with empty or out-of-bounds messages left out)",
        warn=False,
    )
    shared = options.sharegpt_rule == "multiturn"
    return ordered_trace(
        notes,
        None,
        prompt_tokens=prompt,
        output_tokens=output,
        prefix_group=group if shared else None,
        prefix_tokens=prompt if shared else None,
        session=group if shared else None,
    )


def _requests(
    batch: list[list[Message]],
    rule: Callable[[list[Message]], list[int]],
    count_tokens: CountTokens,
    first_group: int,
) -> Iterator[tuple[int, int, int]]:
    """Yield prompt tokens, output tokens and the index of the conversation."""
    answers = [rule(messages) for messages in batch]
    used = [max(indices, default=-1) + 1 for indices in answers]
    texts = [
        text
        for messages, count in zip(batch, used, strict=True)
        for _, text in messages[:count]
    ]
    tokens = count_tokens(texts)
    start = 0
    for group, (indices, count) in enumerate(
        zip(answers, used, strict=True), first_group
    ):
        of_conversation = tokens[start : start + count]
        before = np.cumsum(of_conversation) - of_conversation
        start += count
        for index in indices:
            yield int(before[index]), int(of_conversation[index]), group


def _conversations(
    path: str | Path, salvage: bool, notes: Notes, tally: Counter[str]
) -> Iterator[list[Message]]:
    try:
        for item in iterate_items(path):
            tally["read"] += 1
            yield _messages(path, item, tally["read"])
    except BrokenArrayError as broken:
        whole = f"{broken}, after {tally['read']:,} whole conversations"
        if not salvage:
            raise InputError(
                f"{path}: {whole}; get the whole file, or keep these with --salvage"
            ) from None
        notes.add(f"{whole}, which are kept")


def _messages(path: str | Path, item: Any, number: int) -> list[Message]:
    try:
        # + "" refuses values that are not text.
        return [(said["from"], said["value"] + "") for said in item["conversations"]]
    except (TypeError, KeyError):
        raise InputError(
            f"{path}: conversation {number:,} is not ShareGPT's; expected "
            '{"conversations": [{"from": …, "value": …}, …]}'
        ) from None


def _answered(messages: list[Message], index: int) -> bool:
    """Return whether a message is a question and the next one answers it."""
    roles = [role for role, _ in messages[index : index + 2]]
    return len(roles) == 2 and roles[0] in _ASKS and roles[1] in _ANSWERS
