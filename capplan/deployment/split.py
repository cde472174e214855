"""Which pool a request goes to, by its class and its lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise

import numpy as np

from capplan.errors import InputError
from capplan.workload.slo import base_classes
from capplan.workload.trace import MAX_TOKENS, Trace


@dataclass(frozen=True)
class SizeBand:
    """Requests of a class and a range of lengths."""

    class_name: str  # without limits of its own; empty: any class
    prompt_tokens: tuple[int, int]  # fewest and most [tokens]
    # predicted, fewest and most; None: answers are not looked at [tokens]
    output_tokens: tuple[int, int] | None = None

    def __str__(self) -> str:
        low, high = self.prompt_tokens
        name = f" of class {self.class_name}" if self.class_name else ""
        return f"requests{name} with prompts of {low:,} to {high:,} tokens"

    def holds(self, trace: Trace) -> np.ndarray:
        """Return which requests are of the band, shape (n,), bool."""
        found = np.zeros(len(trace), bool)
        rows, lengths = _of_class(trace, self.class_name)
        found[rows] = self.fits(*lengths)
        return found

    def fits(self, prompts: np.ndarray, predicted: np.ndarray | None) -> np.ndarray:
        """Return which lengths of requests of its class are of the band, bool."""
        low, high = self.prompt_tokens
        rows = (prompts >= low) & (prompts <= high)
        if self.output_tokens is not None:
            if predicted is None:
                raise InputError(
                    "the split looks at predicted answers and the requests have none; "
                    "give --predictor"
                )
            low, high = self.output_tokens
            rows &= (predicted >= low) & (predicted <= high)
        return np.asarray(rows)


@dataclass(frozen=True, eq=False)
class Split:
    """Sends the requests of each band to pools, in fixed parts.

    It looks at no replica: each pool serves its part as if it were alone. The requests
    of a band that goes to several pools are dealt in turn, in order of arrival.
    """

    bands: tuple[SizeBand, ...]  # each request is of exactly one
    parts: tuple[tuple[int, ...], ...]  # of each band, how many go to each pool in turn

    def __post_init__(self) -> None:
        pools = {len(row) for row in self.parts}
        if len(self.parts) != len(self.bands) or len(pools) != 1:
            raise InputError(
                f"{len(self.parts)} rows of parts for {len(self.bands)} bands; "
                "expected one each, of as many pools"
            )
        for band, row in zip(self.bands, self.parts, strict=True):
            if min(row) < 0 or not any(row):
                raise InputError(f"parts of {band} are {row}; expected some above 0")

    @property
    def pool_count(self) -> int:
        """Pools that it knows."""
        return len(self.parts[0])

    @cached_property
    def turns(self) -> tuple[np.ndarray, ...]:
        """The pools that take requests of each band in turn."""
        return tuple(dealt(row) for row in self.parts)

    def pools_of(self, trace: Trace) -> np.ndarray:
        """Return the pool of each request, shape (n,)."""
        pools = np.full(len(trace), -1, np.int64)
        of_class = cache(partial(_of_class, trace))
        for band, turn in zip(self.bands, self.turns, strict=True):
            rows, lengths = of_class(band.class_name)
            rows = rows[band.fits(*lengths)]
            of_one = (turn == turn[0]).all()
            pools[rows] = turn[0] if of_one else np.resize(turn, len(rows))
        if (pools < 0).any():
            row = int(np.flatnonzero(pools < 0)[0])
            raise InputError(
                f"request {row} with a prompt of {trace.prompt_tokens[row]:,} tokens "
                "is of no band of the split"
            )
        return pools


def dealt(parts: Sequence[int]) -> np.ndarray:
    """Return the turns in which pools get their parts, as evenly as can be.

    Each turn goes to the pool that is furthest behind its share, the first of equals:
    weighted round robin, whose counts after k turns are within 1 of k times the share.

    Examples
    --------
    >>> dealt((3, 1)).tolist(), dealt((2, 2)).tolist()
    ([0, 0, 1, 0], [0, 1, 0, 1])
    """
    total = sum(parts)
    credit = np.zeros(len(parts))
    turns = []
    for _ in range(total):
        credit += parts
        pool = int(np.argmax(credit))
        credit[pool] -= total
        turns.append(pool)
    return np.array(turns, np.int64)


def bands_of(
    trace: Trace, prompt_bands: int, output_bands: int, least_requests: int
) -> tuple[SizeBand, ...]:
    """Return bands of about as many requests each, that cover all lengths.

    Each class by itself: by quantiles of the prompt, and each of these by quantiles of
    the predicted answer, where there is a prediction. No band is made smaller than
    ``least_requests`` by being cut.
    """
    names, base = base_classes(trace.class_names)
    bands: list[SizeBand] = []
    for index, name in enumerate(names):
        of_class = base[trace.request_class] == index
        prompts = trace.prompt_tokens[of_class]
        for low, high in _ranges(prompts, prompt_bands, least_requests):
            class_name = name if len(names) > 1 else ""
            band = SizeBand(class_name, (low, high))
            if trace.predicted_output_tokens is None:
                bands.append(band)
                continue
            predicted = trace.predicted_output_tokens[band.holds(trace)]
            bands += [
                SizeBand(class_name, (low, high), outputs)
                for outputs in _ranges(predicted, output_bands, least_requests)
            ]
    return tuple(bands)


def _ranges(
    values: np.ndarray, most: int, least_requests: int
) -> list[tuple[int, int]]:
    """Return ranges of whole numbers from 1 on that share the values evenly."""
    count = max(1, min(most, len(values) // least_requests))
    shares = np.arange(1, count) / count
    lasts = np.quantile(values, shares, method="lower").astype(int)
    # Where many values are equal there are fewer ranges, and none that holds nothing.
    inner = sorted({*lasts[lasts < values.max()].tolist()})
    return [(low + 1, high) for low, high in pairwise([0, *inner, MAX_TOKENS])]


def _of_class(
    trace: Trace, name: str
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray | None]]:
    """Return the rows of a class, of any where it has no name, and their lengths."""
    rows = np.arange(len(trace))
    if name:
        names, base = base_classes(trace.class_names)
        index = names.index(name) if name in names else -1
        rows = np.flatnonzero((base == index)[trace.request_class])
    predicted = trace.predicted_output_tokens
    return rows, (
        trace.prompt_tokens[rows],
        None if predicted is None else predicted[rows],
    )
