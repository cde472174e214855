"""Distributions of times in memory that does not grow: histograms by the float.

The leading bits of a float64 number its bins: the exponent, then 7 bits of the
mantissa, so 128 bins share each doubling (as in Tene's HdrHistogram, 2012).
"""

from dataclasses import dataclass

import numpy as np

_MANTISSA_BITS = 7
_SHIFT = 52 - _MANTISSA_BITS
_LEAST_EXPONENT, _MOST_EXPONENT = -20, 30
_FIRST = int(np.float64(2.0**_LEAST_EXPONENT).view(np.int64)) >> _SHIFT

LEAST_S = 2.0**_LEAST_EXPONENT
"""Below this, about a microsecond, a time counts as 0. [s]"""
BINS = ((_MOST_EXPONENT - _LEAST_EXPONENT) << _MANTISSA_BITS) + 1
"""Bins of a histogram; the first is for what counts as 0."""
RELATIVE_ERROR = float(np.sqrt(1 + 2.0**-_MANTISSA_BITS)) - 1
"""Most that a percentile differs from the exact one, as a share of it."""


def bin_of(values_s: np.ndarray) -> np.ndarray:
    """Return the bin of each time, shape (n,), int64."""
    bits = np.ascontiguousarray(values_s, np.float64).view(np.int64)
    return np.clip((bits >> _SHIFT) - (_FIRST - 1), 0, BINS - 1)


def bin_middles_s() -> np.ndarray:
    """Return the geometric middle of each bin, 0 for the first, shape (BINS,). [s]"""
    edges = (np.arange(BINS, dtype=np.int64) + _FIRST) << _SHIFT
    edges_s = edges.view(np.float64)
    return np.concatenate([[0.0], np.sqrt(edges_s[:-1] * edges_s[1:])])


@dataclass(frozen=True, eq=False)
class Histogram:
    """A distribution of times, its mean exact and its percentiles nearly so."""

    counts: np.ndarray  # values in each bin, shape (BINS,)
    total_s: float  # their exact sum [s]

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    @property
    def mean_s(self) -> float:
        """Exact mean; NaN without values. [s]"""
        return self.total_s / self.count if self.count else float("nan")

    def quantiles_s(self, levels: np.ndarray) -> np.ndarray:
        """Return the values at levels from 0 to 1, within RELATIVE_ERROR. [s]

        Interpolates between neighbouring values as ``numpy.quantile`` does.
        """
        if not self.count:
            return np.full(np.shape(levels), np.nan)
        position = np.asarray(levels) * (self.count - 1)
        below = np.floor(position)
        low_s, high_s = self._nth_s(below), self._nth_s(np.ceil(position))
        return low_s + (position - below) * (high_s - low_s)

    def _nth_s(self, places: np.ndarray) -> np.ndarray:
        """Return the values at places in the sorted order, from 0. [s]"""
        bins = np.searchsorted(np.cumsum(self.counts), places, side="right")
        return bin_middles_s()[bins]
