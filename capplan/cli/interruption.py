"""Ctrl-C during a simulation: the first stops and reports, the second quits."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed.

    The simulator calls it between steps. Before its first call there is nothing to
    report yet, so Ctrl-C quits.
    """
    begun = pressed = False

    def stopped() -> bool:
        nonlocal begun
        begun = True
        return pressed

    def press(number: int, frame: object) -> None:
        nonlocal pressed
        if pressed or not begun:
            raise KeyboardInterrupt
        pressed = True
        print("capplan: stopping; press Ctrl-C again to quit at once", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():
        yield stopped  # only the main thread may handle signals
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield stopped
    except KeyboardInterrupt:
        # typer returns 130 without a word.
        print("capplan: interrupted before any result", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGINT, before)
