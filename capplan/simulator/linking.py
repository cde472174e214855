"""Compile what only compiled code calls to bitcode, and emit code of its callers alone.

numba optimises and emits each function as if Python called it, and again in each of
its callers: of 34 s that the simulator took to compile, 19 s (numba 0.68). What Python
never calls is only to be linked. This uses private methods of numba: without them
functions are compiled as numba does it, with the same results.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import codegen

_USED = ("_finalize_final_module", "_optimize_final_module", "_unserialize")
AVAILABLE = all(hasattr(codegen.JITCodeLibrary, name) for name in _USED)
"""Whether numba has what this needs."""


class _Bitcode(codegen.JITCodeLibrary):
    """Code to be linked into its callers."""

    def _optimize_final_module(self) -> None:
        """Nothing: callers are optimised with all that they call."""

    def _finalize_final_module(self) -> None:
        """Emit nothing."""
        self._finalized = True

    def serialize_using_object_code(self) -> Any:
        """Return what the disk cache keeps: there is no object code."""
        return self.serialize_using_bitcode()


@contextmanager
def for_callers(target: Any) -> Iterator[None]:
    """Let numba's CPU target compile, or load, what is only linked into callers."""
    compiler = target.codegen()
    if not AVAILABLE or "set_env" in vars(compiler):
        yield  # as numba does it, or within what compiles a caller so
        return
    compiler._library_class = _Bitcode
    compiler.set_env = lambda name, environment: None  # there is no symbol to set
    try:
        yield
    finally:
        del compiler._library_class, compiler.set_env
