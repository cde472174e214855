"""What can go wrong that a user can mend, and what a result may rest on."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class CapplanError(Exception):
    """A problem the user can mend; the command line prints it and exits 2."""


class InputError(CapplanError):
    """A file, option or value given by the user is wrong."""


class ProfileError(CapplanError):
    """A latency profile is missing, malformed or of something else."""


class SolverError(CapplanError):
    """A solver is missing or failed."""


class CapplanWarning(UserWarning):
    """An answer rests on something the reader should know."""


class ExtrapolationWarning(CapplanWarning):
    """A latency is asked for beyond the range it was measured in."""


class PriceWarning(CapplanWarning):
    """A price is old, undated or a guess."""


class HorizonWarning(CapplanWarning):
    """A trace is too short for the percentile that is asked of it."""


class TraceWarning(CapplanWarning):
    """A trace was mended on the way in (sorted, estimated, salvaged)."""


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the texts of capplan's warnings, each once; pass on all others.

    The list is filled when the block ends.
    """
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CapplanWarning)
        yield texts
    for warning in caught:
        if issubclass(warning.category, CapplanWarning):
            texts.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    texts[:] = dict.fromkeys(texts)
