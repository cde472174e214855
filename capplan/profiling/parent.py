"""Start, question and stop the process that runs an engine."""

import contextlib
import fcntl
import json
import re
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from capplan.errors import CapplanError, InputError
from capplan.profiling.backend import EngineFacts, EngineRequest, facts_from_document
from capplan.profiling.child import STARTED
from capplan.profiling.scenes import Point, Sample, Scene

_ERROR_LINE = re.compile(r"\b((?:\w+\.)*\w*(?:Error|Exception)): (\S.*)$")
_NOT_A_CAUSE = (
    "WorkerProc",
    "Engine core",
    "EngineCore",
    "See root cause",
    "cancelled",
)
_CAPTURED = re.compile(r"Graph capturing finished in (\d+) secs")
_STOP_TIMEOUT_S = 60


def _locked(log: Path) -> str:
    """Return what to say of the engine that still prints into a log; empty of none."""
    with open(log, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            named = re.search(rb"%s (.*)" % STARTED.encode(), file.read())
            who = f" ({named[1].decode('ascii', 'replace')})" if named else ""
            return (
                f"{log}: an engine process{who} still measures into this folder; wait "
                "for it, end it, or measure into another folder with -o"
            )
        except OSError:  # a file system without locks
            return ""
    return ""


class EngineFailure(CapplanError):
    """The engine failed; the text is the engine's own reason."""


class EngineProcess:
    """An engine in a process of its own, which prints into the file ``log``."""

    def __init__(self, backend: str, request: EngineRequest, log: Path) -> None:
        document = {"backend": backend, **asdict(request)}
        self.log = log
        with open(log, "wb") as printed:
            # The engine's processes inherit the lock and hold it while one lives.
            with contextlib.suppress(OSError):
                fcntl.flock(printed, fcntl.LOCK_EX)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "capplan.profiling.child", json.dumps(document)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                text=True,
                encoding="utf-8",
            )

    def __enter__(self) -> "EngineProcess":
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the engine; it closes itself when there are no more questions."""
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def device(self) -> str:
        """Return the name of the hardware."""
        return str(self._ask({"device": True})["device"])

    def load(self) -> EngineFacts:
        """Start the engine and return what it reports of itself."""
        facts = facts_from_document(self._ask({"load": True})["facts"])
        captured = _CAPTURED.findall(self._printed())
        if captured and facts.capture_s is None:
            facts = replace(facts, capture_s=float(captured[-1]))
        return facts

    def run(self, scene: Scene) -> list[Sample]:
        """Run a scene and return its timed iterations."""
        samples = self._ask({"scene": asdict(scene)})["samples"]
        return [Sample(Point(*row[:4]), row[4]) for row in samples]

    def all_reduce_s(self, tokens: int) -> float | None:
        """Return the time of one all-reduce of this many tokens. [s]"""
        return self._ask({"all_reduce": tokens})["seconds"]

    def move_log(self, log: Path) -> None:
        """Move the log; refuse the place of one that an engine still prints into."""
        if log.exists():
            alive = _locked(log)
            if alive:
                self.log.unlink()
                raise InputError(alive)
            log.unlink()
        self.log.rename(log)
        self.log = log

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise EngineFailure(self._death())
        reply: dict[str, Any] = json.loads(line)
        if "failed" in reply:
            raise EngineFailure(self._root_cause(reply["failed"]))
        return reply

    def _printed(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def _death(self) -> str:
        code = self._process.wait()
        how = f"exit status {code}"
        if code < 0:
            how = f"signal {-code} ({signal.Signals(-code).name})"
        if code == -signal.SIGKILL:
            how += ", which the kernel also sends when memory runs out"
        return self._root_cause(f"the engine's process ended with {how}")

    def _root_cause(self, reason: str) -> str:
        """Return a worker's error where the engine only says that a worker failed."""
        if not any(words in reason for words in (*_NOT_A_CAUSE, "process ended")):
            return reason
        for line in self._printed().splitlines():
            match = _ERROR_LINE.search(line)
            if match and not any(words in match.group(0) for words in _NOT_A_CAUSE):
                return match.group(0).strip()
        return reason
