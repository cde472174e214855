"""The process that runs one engine: scenes in and samples out, a JSON line each.

An engine may leak memory or crash, so each TP degree has a process of its own. What
the engine prints is redirected to standard error.
"""

import ctypes
import json
import os
import signal
import sys
import traceback
from datetime import datetime
from typing import Any, TextIO

from capplan.profiling.backend import Backend, EngineRequest, backend_class
from capplan.profiling.scenes import scene_from_json

STARTED = "capplan: engine process"
"""Begins the line of a log that names the process and when it started."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def serve(backend: Backend, questions: TextIO, replies: TextIO) -> None:
    """Write a JSON line for each JSON line of ``questions``, until they end.

    A question is ``{"device": true}``, ``{"load": true}``, ``{"scene": ...}`` or
    ``{"all_reduce": tokens}``; "load" comes before the last two. One that failed is
    answered with ``{"failed": reason}``.
    """
    for line in questions:
        try:
            reply = _reply(backend, json.loads(line))
        except Exception as error:
            traceback.print_exc()
            reply = {"failed": _reason(error)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _reply(backend: Backend, question: dict[str, Any]) -> dict[str, Any]:
    if "device" in question:
        return {"device": backend.device()}
    if "load" in question:
        return {"facts": backend.load().as_document()}
    if "all_reduce" in question:
        return {"seconds": backend.all_reduce_s(question["all_reduce"])}
    samples = backend.run(scene_from_json(question["scene"]))
    return {"samples": [[*sample.point, sample.seconds] for sample in samples]}


def _reason(error: BaseException) -> str:
    """Return the first cause, in the engine's words."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve the engine named on the command line."""
    _die_with_parent()
    print(f"{STARTED} {os.getpid()} at {datetime.now():%F %T}", file=sys.stderr)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    document = json.loads(sys.argv[1])
    backend = backend_class(document.pop("backend"))(EngineRequest(**document))
    try:
        serve(backend, sys.stdin, replies)
    except BrokenPipeError:
        pass  # the parent has ended
    finally:
        backend.close()


if __name__ == "__main__":
    main()
