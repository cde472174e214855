"""Run a command line under a pseudo-terminal, so that rich draws as for a person."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from capplan.cli.main import exit_code


class Screen(NamedTuple):
    """What a command left on a terminal."""

    exit_code: int
    text: str  # stdout and stderr together, escape codes included


@pytest.fixture
def terminal(monkeypatch) -> Callable[..., Screen]:
    """Run ``capplan *arguments`` on a terminal of 120 columns; return its screen."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object) -> Screen:
        keyboard, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        chunks: list[bytes] = []
        # A terminal holds few bytes: unless read at once, the command would block.
        reader = threading.Thread(target=_read_to_end, args=(keyboard, chunks))
        reader.start()
        try:
            with monkeypatch.context() as patch, open(screen, "w", buffering=1) as tty:
                patch.setattr(sys, "stdout", tty)
                patch.setattr(sys, "stderr", tty)
                code = exit_code([str(argument) for argument in arguments])
        finally:
            reader.join()
            os.close(keyboard)
        return Screen(code, b"".join(chunks).decode().replace("\r\n", "\n"))

    return run


def _read_to_end(keyboard: int, chunks: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(keyboard, 4096)
        except OSError:  # Linux says EIO when the last writer has closed
            return
        if not chunk:
            return
        chunks.append(chunk)


@pytest.fixture
def lawful(monkeypatch):
    """Name of the profiling backend with a known law, importable by processes too."""
    folder = str(Path(__file__).parents[1] / "profiling")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder)
    return "lawful_backend:LawfulBackend"
