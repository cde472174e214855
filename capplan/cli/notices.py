"""Warnings on standard error: one line each, without Python's file and line."""

import logging
import warnings
from collections.abc import Iterable

from capplan.cli.answer import note
from capplan.cli.outputs import say
from capplan.errors import CapplanWarning

_LOGGER = logging.getLogger("capplan")


class Notices(logging.Handler):
    """Warnings that no report has printed, and what a command logs, told at once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._texts: list[str] = []
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print what is logged, once."""
        if (text := record.getMessage()) not in self._told:
            self._told.add(text)
            note(text)

    def listen(self) -> None:
        """Keep capplan's warnings; show all others as before."""
        before = warnings.showwarning

        def catch(message, category, filename, lineno, file=None, line=None):
            if issubclass(category, CapplanWarning):
                self._texts.append(str(message))
            else:
                before(message, category, filename, lineno, file, line)

        warnings.simplefilter("always", CapplanWarning)
        warnings.showwarning = catch
        _LOGGER.handlers[:] = [self]
        _LOGGER.setLevel(logging.INFO)

    def print_all(self) -> None:
        """Print each warning once, then forget them."""
        for text in dict.fromkeys(self._texts):
            say(f"capplan: warning: {text}")
        self._texts.clear()
        _LOGGER.removeHandler(self)


def announce_compilation(schedulers: Iterable[str | None] = ()) -> None:
    """Print a line on standard error when something must be compiled first."""
    from capplan.simulator.jit import is_cold
    from capplan.simulator.schedulers import needs_compiling

    cold = ["the simulator"] if is_cold() else []
    seconds = 20 * len(cold)
    names = dict.fromkeys(given.partition(":")[0] for given in schedulers if given)
    if policies := [name for name in names if needs_compiling(name)]:
        cold.append("scheduler" + "s" * (len(policies) > 1) + f" {', '.join(policies)}")
        seconds += 5 * len(policies)
    if cold:
        note(
            f"compiling {' and '.join(cold)}, about {seconds} s; only the "
            "first run after an install or update needs it"
        )
