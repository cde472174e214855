"""Points of a profile, and the scenes that an engine runs to measure them."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from pydantic import TypeAdapter

SETTLE_ITERATIONS = 3
"""Iterations left out after the batch has changed."""
CHUNK_ITERATIONS = 3
"""Iterations for a chunk beside a decoding batch: one before, its own, one after."""


class Point(NamedTuple):
    """A kind of iteration: the key of a row of measurements."""

    phase: str  # prefill, decode or mixed
    batch: int  # decoding requests, or prompts of a prefill
    new_tokens: int  # of the whole iteration [tokens]
    context: int  # cached per prompt; KV with new token per decoding request [tokens]

    def __str__(self) -> str:
        if self.phase == "prefill":
            after = f" after {self.context}" if self.context else ""
            return f"prefill of {self.batch} x {self.new_tokens // self.batch}{after}"
        chunk = self.new_tokens - self.batch
        beside = f" beside a chunk of {chunk}" if self.phase == "mixed" else ""
        return f"{self.phase} of {self.batch} at {self.context}{beside}"


@dataclass(frozen=True)
class Prompts:
    """Equal prompts that arrive together, again and again."""

    count: int  # prompts at once
    prompt_tokens: int  # of each; beyond the token budget it is prefilled in chunks
    repeats: int  # sets measured in a row, after one to warm up

    def __str__(self) -> str:
        return f"prefill of {self.count} x {self.prompt_tokens}"

    def points(self, budget_tokens: int) -> tuple[Point, ...]:
        """Return the iterations that these prompts take, in order."""
        if self.count > 1:
            return (Point("prefill", self.count, self.count * self.prompt_tokens, 0),)
        starts = range(0, self.prompt_tokens, budget_tokens)
        return tuple(
            Point("prefill", 1, min(budget_tokens, self.prompt_tokens - start), start)
            for start in starts
        )


@dataclass(frozen=True)
class Rung:
    """A batch size on the way down a ladder."""

    batch: int  # decoding requests
    chunks: tuple[int, ...] = ()  # prompts added in turn while they decode [tokens]


@dataclass(frozen=True)
class Ladder:
    """A batch that decodes, made smaller rung by rung.

    Prefilling the cache takes most of the time, so one filled cache serves all batch
    sizes: requests are aborted between rungs, and the context grows by one token
    with each iteration.
    """

    context: int  # KV with new token where all of the first rung decode [tokens]
    rungs: tuple[Rung, ...]  # batch sizes, falling
    repeats: int  # decode iterations measured on each rung

    def __str__(self) -> str:
        return f"decode of {self.rungs[0].batch} and fewer at {self.context}"

    def _length(self, rung: Rung) -> int:
        return SETTLE_ITERATIONS + self.repeats + CHUNK_ITERATIONS * len(rung.chunks)

    @property
    def iterations(self) -> int:
        """Iterations from the first in which all decode to the last."""
        return sum(map(self._length, self.rungs))

    def rung_starts(self) -> dict[int, Rung]:
        """Return the rungs by the number, from 0, of their first iteration."""
        ends = accumulate(map(self._length, self.rungs), initial=0)
        return dict(zip(ends, self.rungs, strict=False))

    def chunk_starts(self) -> dict[int, int]:
        """Return the tokens of each chunk by the number of its iteration."""
        return {
            number: point.new_tokens - point.batch
            for number, point in self.schedule().items()
            if point.phase == "mixed"
        }

    def schedule(self) -> dict[int, Point]:
        """Return the point that each iteration measures, by the iteration's number.

        The decode iterations of a rung measure the point of their middle context.
        """
        measured: dict[int, Point] = {}
        for start, rung in self.rung_starts().items():
            first = start + SETTLE_ITERATIONS
            middle = self.context + first + self.repeats // 2
            point = Point("decode", rung.batch, rung.batch, middle)
            measured |= dict.fromkeys(range(first, first + self.repeats), point)
            at = first + self.repeats + 1
            for chunk in rung.chunks:
                tokens = rung.batch + chunk
                measured[at] = Point("mixed", rung.batch, tokens, self.context + at)
                at += CHUNK_ITERATIONS
        return measured

    def points(self, budget_tokens: int) -> tuple[Point, ...]:
        """Return the points of this ladder, in order."""
        return tuple(dict.fromkeys(self.schedule().values()))


Scene = Prompts | Ladder
_SCENE: TypeAdapter[Scene] = TypeAdapter(Scene)


class Sample(NamedTuple):
    """A measured iteration."""

    point: Point
    seconds: float


def scene_from_json(document: dict[str, Any]) -> Scene:
    """Return the scene whose ``asdict`` came as JSON to the measuring process."""
    return _SCENE.validate_python(document)
