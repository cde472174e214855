"""Errors that a user can fix, and warnings about the reliability of a result."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class CapplanError(Exception):
    """A problem that the user can fix; the command line prints it and exits 2."""


class InputError(CapplanError):
    """A file, option or value given by the user is wrong."""


class HostFullError(InputError):
    """The host has no room for the KV that a scheduler swaps out."""


class ProfileError(CapplanError):
    """A latency profile is missing, malformed or of another configuration."""


class SolverError(CapplanError):
    """A solver is missing or failed."""


class CapplanWarning(UserWarning):
    """The result rests on something that the reader should know."""


class ExtrapolationWarning(CapplanWarning):
    """A latency is outside the measured range."""


class PriceWarning(CapplanWarning):
    """A price is old, undated or a guess."""


class HorizonWarning(CapplanWarning):
    """A trace is too short for the percentile of the SLO."""


class TraceWarning(CapplanWarning):
    """A trace was corrected while reading (sorted, estimated, salvaged)."""


@contextmanager
def collected_warnings(
    without: tuple[type[Warning], ...] = (),
) -> Iterator[list[str]]:
    """Collect the texts of capplan's warnings, each once; pass on all others.

    The list is filled when the block ends, ``without`` those of some categories.
    """
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CapplanWarning)
        yield texts
    for warning in caught:
        if issubclass(warning.category, without):
            continue
        if issubclass(warning.category, CapplanWarning):
            texts.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    texts[:] = dict.fromkeys(texts)
