"""Standard output and error that may be closed, full, or limited to ASCII."""

import codecs
import os
import sys
from contextlib import suppress

from capplan.input_file import printable

_PLAIN = {"≤": "<=", "≥": ">=", "×": "x", "–": "-", "…": "...", "µ": "u", "±": "+-"}
_ERRORS = "capplan"


def open_outputs() -> None:
    """Make both outputs accept any text; a closed one loses what is written to it."""
    codecs.register_error(_ERRORS, _plain)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell: ``>&-``
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            # It is the process's output from now on: nobody closes it (SIM115).
            stream = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        stream.reconfigure(errors=_ERRORS)


def close_outputs() -> None:
    """Flush both outputs; what they cannot take is lost without a word."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def say(text: str) -> None:
    """Print on standard error, where that can be written."""
    with suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters that an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    wrong = error.object[error.start : error.end]
    return "".join(_PLAIN.get(each, ascii(each)[1:-1]) for each in wrong), error.end
