"""Work that another process sends, which takes its compiled simulator first."""

import atexit
import pickle
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

_CODE = "capplan.simulator.jit"
"""Module that is not imported before compiled code is taken."""


def work(code: list[Any], call: bytes, *shared: bytes) -> Any:
    """Return what a pickled call returns of its pickled arguments.

    ``call`` is the function with its last arguments. ``code`` holds Ray's reference to
    what :func:`compiled` returned; it is fetched once, and only where it is needed.
    """
    _take(*code)
    function, *rest = pickle.loads(call)
    return function(*map(pickle.loads, shared), *rest)


def compiled() -> bytes:
    """Return what plans were compiled to, compiling it where it is not."""
    from capplan.simulator import jit, shipped
    from capplan.simulator.of_plans import compiled_of_plans

    return shipped.packed(jit.DIGEST, compiled_of_plans())


def _take(code: Any) -> None:
    """Unpack compiled code where this process has not imported any."""
    if _CODE in sys.modules:
        return
    import ray

    from capplan.simulator import shipped

    if not shipped.has_some():
        folder = tempfile.mkdtemp(prefix="capplan-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        shipped.unpack(ray.get(code), Path(folder))
