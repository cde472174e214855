"""Warnings on standard error: one line each, without Python's file and line."""

import warnings

from capplan.cli.outputs import say
from capplan.errors import CapplanWarning


class Notices:
    """Warnings of a command that no report has printed."""

    def __init__(self) -> None:
        self._texts: list[str] = []

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

    def print_all(self) -> None:
        """Print each warning once, then forget them."""
        for text in dict.fromkeys(self._texts):
            say(f"capplan: warning: {text}")
        self._texts.clear()


def announce_compilation() -> None:
    """Print a line on standard error when the simulator must be compiled first."""
    from capplan.simulator.jit import is_cold

    if is_cold():
        say(
            "capplan: compiling the simulator, about half a minute; only the first run "
            "after an install or update needs it"
        )
