"""Ctrl-C: a simulation stops and reports; anything else quits within a second."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from capplan.cli.outputs import say

INTERRUPTED = 130

_GRACE_S = 0.6
"""Time in which a command may end by itself after Ctrl-C. [s]"""

_SHOW_CURSOR = "\x1b[?25h"

pressed = threading.Event()
"""Set by a Ctrl-C that quits: an error after it is one of what it broke off."""

_reporting = threading.Event()
"""Set while a simulation runs that the first Ctrl-C stops with a report."""


def quit_on_ctrl_c() -> None:
    """Quit within a second of Ctrl-C; to be called once, as the process begins.

    Python raises a ``KeyboardInterrupt`` only between two of its own instructions.
    A thread waits for the signal as well, and ends the process where a compilation,
    a solver or other threads would keep it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored, as in the background of a script
    signal.signal(signal.SIGINT, _press)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for hook in ("excepthook", "unraisablehook"):
        setattr(sys, hook, _without_ctrl_c(getattr(sys, hook)))
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()


def _press(number: int, frame: object) -> None:
    pressed.set()
    raise KeyboardInterrupt


def quit_interrupted() -> None:
    """Say that the command was interrupted and end the process at once."""
    with suppress(OSError):
        shown = _SHOW_CURSOR if os.isatty(2) else ""
        os.write(2, f"{shown}capplan: interrupted\n".encode())
    os._exit(INTERRUPTED)


def _watch(reading: int) -> None:
    stopped = False
    while True:
        if os.read(reading, 1)[0] != signal.SIGINT:
            continue
        if _reporting.is_set() and not stopped:
            stopped = True
            continue
        time.sleep(_GRACE_S)
        quit_interrupted()


def _without_ctrl_c(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook of ``sys`` that quits where it would show a Ctrl-C."""

    def quit_or_show(*shown: Any) -> Any:
        kind = getattr(shown[0], "exc_type", shown[0])
        if kind is KeyboardInterrupt:
            quit_interrupted()
        return hook(*shown)

    return quit_or_show


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed.

    The simulator calls it between steps. Before its first call there is nothing to
    report yet, so Ctrl-C quits.
    """
    begun = stopping = False
    before = signal.getsignal(signal.SIGINT)

    def stopped() -> bool:
        nonlocal begun
        begun = True
        _reporting.set()
        return stopping

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping or not begun:
            if callable(before):
                before(number, frame)
            raise KeyboardInterrupt
        stopping = True
        say("capplan: stopping; press Ctrl-C again to quit at once")

    if threading.current_thread() is not threading.main_thread():
        yield stopped  # only the main thread may handle signals
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield stopped
    finally:
        _reporting.clear()
        signal.signal(signal.SIGINT, before)
