"""Functions built once for each set of flags: what is off costs nothing.

A file's flags are globals, all False. A function of it that tests one, or calls one
that does, is marked ``capable``; all else is compiled once for all sets. For a set
these functions are copied with its flags True: numba takes a global as a constant and
drops the branch of ``if FLAG:`` before it looks at it. (Not that of ``if not FLAG or
f():``, whose ``f`` it compiles whatever the flag is.)
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Knob


def _never(_: EngineSettings) -> bool:
    return False


def _no_values(_: EngineSettings) -> dict[str, float]:
    return {}


def _no_columns(_: EngineSettings) -> tuple[str, ...]:
    return ()


class Capability(NamedTuple):
    """What the door must know of a flag; its rules are functions beside it.

    Users give ``knobs``, as ``vllm-v1:NAME=NUMBER``; an engine has ``values`` of the
    ``settings``. The other fields are as in ``Rules``.
    """

    is_on: Callable[[EngineSettings], bool] = _never
    knobs: Mapping[str, Knob] = {}
    # Of all that stand before it in the same order, and its own:
    settings: Mapping[str, Knob] = {}
    values: Callable[[EngineSettings], dict[str, float]] = _no_values
    # Behind those of columns.py, as many as the engine needs:
    request_columns: Callable[[EngineSettings], tuple[str, ...]] = _no_columns
    replica_columns: Callable[[EngineSettings], tuple[str, ...]] = _no_columns
    orders: bool = False
    in_order: bool = False
    keeps_batch: bool = False


class Capable:
    """The functions of a file that its flags change, callees before callers."""

    def __init__(self) -> None:
        self._functions: list[tuple[Any, Callable[[Any], Any]]] = []
        self.built = cache(self._built)

    def __call__(self, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Mark a function; ``make`` compiles it, as ``compiled()`` or ``inlined()``."""

        def marked(function: Any) -> Any:
            self._functions.append((function, make))
            return function

        return marked

    def _built(self, *on: str) -> dict[str, Any]:
        """Return the functions by name where these flags are on, in order."""
        made: dict[str, Any] = {}
        for function, make in self._functions:
            if not made:
                space = {**function.__globals__, **dict.fromkeys(on, True)}
            name = function.__name__
            copy = FunctionType(function.__code__, space, name)
            # numba keeps compiled code by this name, and does not look at globals.
            copy.__qualname__ = "__".join((name, *on))
            made[name] = space[name] = make(copy)
        return made
