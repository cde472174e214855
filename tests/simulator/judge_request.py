"""A request of the judge of vLLM V1, and what an iteration computes of it."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from judge_kv import Block

from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace


class Image(NamedTuple):
    """An image of a request: what it shows, its first token and the one behind."""

    shows: tuple
    begin: int
    end: int


@dataclass(eq=False)
class Request:
    """One request on its replica."""

    row: int
    arrival_s: float
    prompt_count: int
    output_count: int
    tokens: list  # prompt and collected output
    computed: int = 0  # tokens whose KV is there once what is in flight is done
    placeholders: int = 0  # output tokens in flight, drafts included (async only)
    in_flight: int = 0  # tokens scheduled, result not collected
    stale: int = 0  # of those, the ones scheduled before a preemption
    drafts: int = 0  # that its next iteration verifies
    in_prompt: bool = False  # more of its prompt is left than was scheduled
    next_step: int = 0  # it is scheduled from that step on
    findable: int = 0  # its blocks entered in the cache
    blocks: list[Block] = field(default_factory=list)
    bounded: list[Block] = field(default_factory=list)  # of windows and states
    states: list[list[Block | None]] = field(default_factory=list)  # of each group
    junction: int = 0  # tokens that it has in common, without a state behind them
    adapter: int = -1
    images: list[Image] = field(default_factory=list)
    scheduled_s: float | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    swaps: int = 0
    predicted_count: int = 0  # predicted output tokens
    slo: RequestSlo | None = None  # of its class
    most_output_count: int = 0  # that its client asked for
    priority: int = 0
    session: int = -1
    group: int = -1
    text_nodes: dict[int, int] | None = None  # number of each text, of conversations
    known_at_admission: int = 0  # tokens to prefill when last admitted
    token_s: list[float] = field(default_factory=list)
    kv: list[int] = field(default_factory=list)  # before each iteration with drafts
    contexts: list[float] = field(default_factory=list)  # of these iterations
    ran: int = 0  # of these scheduled since its prompt
    drawn: int = 0  # and before
    given: int = 0  # of all, those collected

    @property
    def last_count(self) -> int:
        return self.prompt_count + self.output_count

    @property
    def done(self) -> bool:
        return len(self.tokens) == self.last_count

    @property
    def held(self) -> int:
        """Tokens whose KV is there then, without drafts that will be rejected."""
        return self.kv[min(self.ran, len(self.kv) - 1)] if self.kv else self.computed

    def begin_again(self) -> None:
        """Have no KV; what was drawn for iterations in flight stays so."""
        self.computed = self.placeholders = self.drafts = 0
        self.drawn, self.ran, self.kv = self.drawn + self.ran, 0, []


class Part(NamedTuple):
    """What an iteration computes of a request."""

    request: Request
    before: int  # tokens computed before
    new: int
    drafts: int = 0  # of the new ones
    context: float = 0.0  # that a decode reads
    gained: int = 0  # tokens it is given
    turn: int = 0  # iterations drawn for the request so far


def prompt_of(trace: Trace, row: int) -> list[tuple]:
    """Return the tokens of a prompt: its parent's prompt and answer, or a text, begins.

    Those of a text are of an adapter.
    """
    parent, group = int(trace.parent[row]), int(trace.prefix_group[row])
    adapter = int(trace.adapter[row])
    before: list[tuple] = []
    if parent >= 0:
        first = int(trace.prompt_tokens[parent])
        answer = range(first, first + int(trace.output_tokens[parent]))
        before = prompt_of(trace, parent) + [("output", parent, k) for k in answer]
    elif group >= 0:
        own = group if adapter < 0 else (group, adapter)
        before = [("group", own, k) for k in range(int(trace.prompt_tokens[row]))]
    before = before[: int(trace.prefix_tokens[row])]
    count = int(trace.prompt_tokens[row])
    return before[:count] + [("prompt", row, k) for k in range(len(before), count)]


def text_nodes(trace: Trace) -> dict[int, int]:
    """Return the number of each text: they are numbered behind the rows."""
    texts = np.unique(trace.prefix_group[trace.prefix_group >= 0]).tolist()
    return {text: len(trace) + k for k, text in enumerate(texts)}


def request_of(
    trace: Trace,
    row: int,
    slo: RequestSlo | None = None,
    kind: Any = Request,
    asked_s: float | None = None,
) -> Any:
    """Return a request of a trace; those of a group and an adapter begin alike.

    As far as they show the same images.
    """
    if asked_s is None:
        assert trace.arrival_s is not None
        asked_s = float(trace.arrival_s[row])
    prompt, group = int(trace.prompt_tokens[row]), int(trace.prefix_group[row])
    adapter = int(trace.adapter[row])
    shared = int(trace.prefix_tokens[row]) if group >= 0 else 0
    tokens = prompt_of(trace, row)
    images = images_of(trace, row, shared)
    for image in images:
        for k in range(image.begin, image.end):
            tokens[k] = (*tokens[k], image.shows)
    predicted = trace.predicted_output_tokens
    if predicted is None:
        predicted = trace.output_tokens
    limits = Slo(slo or RequestSlo(ttft_s=np.inf, tpot_s=np.inf))
    return kind(
        row,
        asked_s,
        prompt,
        int(trace.output_tokens[row]),
        tokens,
        adapter=adapter,
        images=images,
        predicted_count=int(predicted[row]),
        most_output_count=int(trace.most_output_tokens[row]),
        priority=int(trace.priority[row]),
        session=int(trace.session[row]),
        group=group,
        text_nodes=text_nodes(trace) if trace.has_turns else None,
        slo=limits.of_class(trace.class_names[trace.request_class[row]]),
    )


def images_of(trace: Trace, row: int, shared: int) -> list[Image]:
    """Return the images of a request; its prefix has those of its group."""
    tokens = int(trace.image_tokens[row]) // max(1, int(trace.images[row]))
    found = []
    for k in range(int(trace.images[row])):
        begin = int(trace.image_offset[row]) + k * tokens
        own = (
            ("group", int(trace.prefix_group[row])) if begin < shared else ("own", row)
        )
        found.append(Image((*own, k, tokens), begin, begin + tokens))
    return found
