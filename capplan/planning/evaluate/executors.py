"""Evaluate candidates side by side: on threads of this machine, or on Ray."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    redirect_stdout,
)
from functools import cache
from os import cpu_count, environ
from socket import create_connection
from typing import Any, Protocol, TypeVar

from capplan.errors import CapplanError, InputError

Task = TypeVar("Task")
Result = TypeVar("Result")

_REACH_S = 5.0
"""Time in which a Ray cluster must accept a connection. [s]"""


class Interrupted(Exception):
    """A simulation was stopped before anything was known."""


@cache
def _threads() -> ThreadPoolExecutor:
    """Return threads for the samples of all candidates, one per processor."""
    return ThreadPoolExecutor(cpu_count() or 1)


def side_by_side(work: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """Return the result of each task, worked on by threads; none may call it again."""
    return list(_threads().map(work, tasks))


class Executor(Protocol):
    """Calls ``work(shared, task)`` for each task; results in the order of the tasks.

    ``shared`` is sent to a worker once.
    """

    def __call__(
        self, work: Callable[[Any, Task], Result], shared: Any, tasks: Sequence[Task]
    ) -> list[Result]:
        """Return the result of each task."""


def executor(
    name: str = "local", ray_address: str | None = None
) -> AbstractContextManager[Executor]:
    """Open the named executor for the length of a plan.

    ``name`` is one of EXECUTORS; ``ray_address`` is that of a running Ray cluster,
    "auto" for one on this machine.
    """
    if name not in EXECUTORS:
        known = ", ".join(sorted(EXECUTORS))
        raise InputError(f"--executor is {name!r}; expected one of {known}")
    return EXECUTORS[name](ray_address)


@contextmanager
def _local(ray_address: str | None) -> Iterator[Executor]:
    """Threads: the compiled core runs outside Python's lock."""
    if ray_address is not None:
        raise InputError("--ray-address is given without --executor ray")
    with ThreadPoolExecutor(cpu_count() or 1) as pool:

        def run(
            work: Callable[[Any, Task], Result], shared: Any, tasks: Sequence[Task]
        ) -> list[Result]:
            attempt = _twice(work)
            return list(pool.map(lambda task: attempt(shared, task), tasks))

        yield run


@contextmanager
def _ray(ray_address: str | None) -> Iterator[Executor]:
    """Workers of a Ray cluster; Ray restarts the task of a dead worker once."""
    try:
        import ray
    except ImportError:
        raise InputError(
            "--executor ray needs Ray; install it with pip install 'capplan[ray]'"
        ) from None
    begun = not ray.is_initialized()  # else it is the caller's, and stays
    with ExitStack() as stack:
        # Ray's threads print what befell a worker, where an answer may be expected.
        stack.enter_context(redirect_stdout(sys.stderr))
        if begun:
            _connect(ray, ray_address)
            stack.callback(ray.shutdown)

        def run(
            work: Callable[[Any, Task], Result], shared: Any, tasks: Sequence[Task]
        ) -> list[Result]:
            remote = ray.remote(max_retries=1)(_twice(work))
            sent = ray.put(shared)
            pending = [remote.remote(sent, task) for task in tasks]
            return list(_collected(ray, pending, tasks))

        yield run


def _connect(ray: Any, address: str | None) -> None:
    """Join a cluster, or start one on this machine where no address is given."""
    where = environ.get("RAY_ADDRESS", "") if address in (None, "auto") else address
    host, colon, port = where.rpartition("://")[2].rpartition(":")
    try:
        if colon:  # Ray itself would try for minutes
            create_connection((host, int(port)), _REACH_S).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises a bare one where it cannot start
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"--ray-address {where or 'is not given'}: no Ray cluster answers: {reason}"
        ) from None


def _collected(ray: Any, pending: list[Any], tasks: Sequence[Any]) -> Iterable[Any]:
    for future, task in zip(pending, tasks, strict=True):
        try:
            yield ray.get(future)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, CapplanError):
                raise cause from None
            raise CapplanError(f"{task}: the worker failed: {cause!r}") from None
        except ray.exceptions.RayError as error:
            raise CapplanError(
                f"{task}: the worker died twice: {type(error).__name__}"
            ) from None


def _twice(work: Callable[..., Result]) -> Callable[..., Result]:
    """Return work that is tried once more unless the input was at fault."""

    def attempt(shared: Any, task: Any) -> Result:
        try:
            return work(shared, task)
        except (CapplanError, Interrupted):
            raise
        except Exception:
            try:
                return work(shared, task)
            except Exception as error:
                raise CapplanError(f"{task}: failed twice: {error!r}") from error

    return attempt


EXECUTORS = {"local": _local, "ray": _ray}
