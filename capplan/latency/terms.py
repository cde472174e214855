"""Coefficients of a latency model, and the curves that they define.

Every form fills some of the keys; the time is the sum of the terms that are filled.
So all forms are read, evaluated and drawn by the same code.
"""

from itertools import pairwise
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from capplan.latency.contract import LatencyTables

Coefficient = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**9)]


class _Terms(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    PAIRS: ClassVar[dict[str, tuple[str, ...]]] = {}

    @model_validator(mode="after")
    def _lists_match(self) -> Self:
        """Refuse knots that do not rise, and values that do not match them."""
        for at, values in self.PAIRS.items():
            knots = getattr(self, at)
            if any(a >= b for a, b in pairwise(knots)):
                raise ValueError(f"{at} must rise from each value to the next")
            for name in values:
                given = len(getattr(self, name))
                if given and given != len(knots):
                    raise ValueError(
                        f"{name} has {given} values; expected {len(knots)} as {at}"
                    )
        return self


class DecodeTerms(_Terms):
    """Time a(b) + s(b)·L of a decode iteration.

    a is ``constant_s + per_request_s·b + per_request_beyond_s·max(b −
    beyond_batch, 0) + saturation_s·(1 − exp(−saturation_rate·b))`` plus ``batch_s``
    interpolated between the knots ``batch``; s is ``per_context_s +
    per_mean_context_s/b`` plus ``batch_context_s`` interpolated likewise.
    """

    constant_s: Coefficient = 0.0
    per_request_s: Coefficient = 0.0
    beyond_batch: Count = 0
    per_request_beyond_s: Coefficient = 0.0
    saturation_rate: Coefficient = 0.0
    saturation_s: Coefficient = 0.0
    per_context_s: Coefficient = 0.0
    per_mean_context_s: Coefficient = 0.0
    batch: list[Count] = []
    batch_s: list[Coefficient] = []
    batch_context_s: list[Coefficient] = []

    PAIRS: ClassVar[dict[str, tuple[str, ...]]] = {
        "batch": ("batch_s", "batch_context_s")
    }

    def base_s(self, batch: np.ndarray) -> np.ndarray:
        """Return a(b). [s]"""
        b = np.asarray(batch, np.float64)
        time_s = self.constant_s + self.per_request_s * b
        beyond = np.maximum(b - self.beyond_batch, 0)
        time_s = time_s + self.per_request_beyond_s * beyond
        time_s = time_s - self.saturation_s * np.expm1(-self.saturation_rate * b)
        return time_s + piecewise(b, self.batch, self.batch_s)

    def context_s(self, batch: np.ndarray) -> np.ndarray:
        """Return s(b). [s/token]"""
        time_s = self.per_context_s + self.per_mean_context_s / np.maximum(batch, 1)
        if self.batch_context_s:
            time_s = time_s + np.interp(batch, self.batch, self.batch_context_s)
        return time_s


class FusedTerms(_Terms):
    """Time F(T + b) + D(b) + S(b)·L + q·Q of an iteration with prefill in it.

    F is ``constant_s + per_token_s·n``, an additional slope ``per_token_beyond_s`` from
    each of ``beyond_tokens``, and ``tokens_s`` between the knots ``tokens``; D is
    ``per_request_s·b`` and ``batch_s`` between the knots ``batch``; S is
    ``per_context_s`` and ``batch_context_s``; q is ``attention_s``.
    ``per_prompt_token_s`` is charged for all n tokens in F and subtracted for the b
    decode tokens in D, which leaves ``per_prompt_token_s·T``.
    """

    constant_s: Coefficient = 0.0
    per_token_s: Coefficient = 0.0
    per_prompt_token_s: Coefficient = 0.0
    beyond_tokens: list[Count] = []
    per_token_beyond_s: list[Coefficient] = []
    tokens: list[Count] = []
    tokens_s: list[Coefficient] = []
    attention_s: Coefficient = 0.0
    per_request_s: Coefficient = 0.0
    per_context_s: Coefficient = 0.0
    batch: list[Count] = []
    batch_s: list[Coefficient] = []
    batch_context_s: list[Coefficient] = []

    PAIRS: ClassVar[dict[str, tuple[str, ...]]] = {
        "batch": ("batch_s", "batch_context_s"),
        "tokens": ("tokens_s",),
        "beyond_tokens": ("per_token_beyond_s",),
    }

    def tokens_time_s(self, tokens: np.ndarray) -> np.ndarray:
        """Return F(n). [s]"""
        per_token_s = self.per_token_s + self.per_prompt_token_s
        time_s = self.constant_s + per_token_s * np.asarray(tokens, np.float64)
        hinges = zip(self.beyond_tokens, self.per_token_beyond_s, strict=True)
        for beyond, slope in hinges:
            time_s = time_s + slope * np.maximum(tokens - beyond, 0)
        return time_s + piecewise(tokens, self.tokens, self.tokens_s)

    def decode_share_s(self, batch: np.ndarray) -> np.ndarray:
        """Return D(b), 0 without decoding requests. [s]"""
        per_request_s = self.per_request_s - self.per_prompt_token_s
        time_s = per_request_s * np.asarray(batch, np.float64)
        time_s = time_s + piecewise(batch, self.batch, self.batch_s)
        return np.where(batch > 0, time_s, 0.0)

    def context_s(self, batch: np.ndarray) -> np.ndarray:
        """Return S(b). [s/token]"""
        time_s = np.full(np.shape(batch), self.per_context_s)
        if self.batch_context_s:
            time_s = time_s + np.interp(batch, self.batch, self.batch_context_s)
        return time_s


class PartTerms(_Terms):
    """Time of a part of an iteration, linear between the knots ``tokens``."""

    tokens: Annotated[list[Count], Field(min_length=1)]
    tokens_s: Annotated[list[Coefficient], Field(min_length=1)]

    PAIRS: ClassVar[dict[str, tuple[str, ...]]] = {"tokens": ("tokens_s",)}

    def at(self, tokens: np.ndarray) -> np.ndarray:
        """Return the time at token counts, 0 where the part does nothing. [s]"""
        return piecewise(tokens, self.tokens, self.tokens_s)

    def table(self, max_tokens: int) -> np.ndarray:
        """Return the time of 0 to this many tokens, shape (max_tokens + 1,). [s]"""
        return self.at(np.arange(max_tokens + 1, dtype=np.float64))


def piecewise(x: np.ndarray, at: list[int], values: list[float]) -> np.ndarray:
    """Return linear interpolation between knots, 0 without any.

    It is constant before the first knot. Past the last it continues with the mean slope
    of the last octave, since the slope between the last two knots alone may be noise; a
    falling slope counts as 0.

    Examples
    --------
    >>> piecewise(np.array([0, 3, 16]), [1, 4, 8], [1.0, 4.0, 6.0]).tolist()
    [1.0, 3.0, 10.0]
    """
    if not values:
        return np.zeros(np.shape(x))
    knots = np.asarray(at, np.float64)
    heights = np.asarray(values, np.float64)
    inside = np.interp(x, knots, heights)
    if len(knots) < 2:
        return inside
    half = min(np.searchsorted(knots, knots[-1] / 2, "right"), len(knots) - 1) - 1
    half = max(int(half), 0)
    slope = (heights[-1] - heights[half]) / (knots[-1] - knots[half])
    return inside + max(slope, 0.0) * np.maximum(x - knots[-1], 0)


def tables(
    decode: DecodeTerms,
    fused: FusedTerms,
    max_batch: int,
    max_tokens: int,
    *,
    request_s: float = 0.0,
    decode_scale: float = 1.0,
    fused_scale: float = 1.0,
) -> LatencyTables:
    """Return the tables of decode and fused terms, with factors on their times."""
    batch = np.arange(max_batch + 1, dtype=np.float64)
    tokens = np.arange(max_tokens + max_batch + 1, dtype=np.float64)
    return LatencyTables(
        decode_s=decode_scale * decode.base_s(batch),
        decode_context_s=decode_scale * decode.context_s(batch),
        fused_s=fused_scale * fused.tokens_time_s(tokens),
        fused_decode_s=fused_scale * fused.decode_share_s(batch),
        fused_context_s=fused_scale * fused.context_s(batch),
        attention_s=fused_scale * fused.attention_s,
        request_s=request_s,
    )
