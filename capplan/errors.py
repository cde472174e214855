"""Errors that a user can fix, and warnings about the reliability of a result."""

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


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


def check_at_least(least: int, record: object, *names: str, where: str = "") -> None:
    """Refuse fields of a record that are below ``least``, infinite or no number."""
    for name in names:
        value = getattr(record, name)
        if not least <= value < math.inf:
            raise InputError(f"{where}{name} is {value}; expected >= {least}")


@contextmanager
def placed(where: object) -> Iterator[None]:
    """Say in an error where it is: in a file, a row, a text."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint at the known word that is nearest; empty where none is near.

    Examples
    --------
    >>> nearest("llmd", ["jsq", "llm-d"])
    '; did you mean llm-d?'
    """
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


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


def warn(text: str, kind: type[CapplanWarning] = CapplanWarning) -> None:
    """Warn the caller of the function that calls this one."""
    warnings.warn(text, kind, stacklevel=3)


@contextmanager
def collected_warnings(without: tuple[type[Warning], ...] = ()) -> Iterator[list[str]]:
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
