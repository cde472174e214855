"""Evaluate candidates side by side: on threads of this machine, or on Ray."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    redirect_stdout,
)
from dataclasses import replace
from functools import cache, partial
from os import cpu_count, environ
from socket import create_connection
from threading import Lock
from typing import Any, Protocol, TypeVar

from capplan.deployment.pools import Deployment
from capplan.errors import CapplanError, InputError
from capplan.simulator import remote
from capplan.simulator.results.times import Simulation
from capplan.workload.trace import Trace

Task = TypeVar("Task")
Result = TypeVar("Result")

_KEPT = 8
"""Traces that stay in a cluster's memory for the next count."""
_REACH_S = 5.0
"""Time in which a Ray cluster must accept a connection. [s]"""


class Interrupted(Exception):
    """A simulation was stopped before anything was known."""


_width = cpu_count() or 1
"""Samples simulated at once: more where a cluster simulates them."""


@cache
def _threads(width: int) -> ThreadPoolExecutor:
    """Return threads for the samples of all candidates."""
    return ThreadPoolExecutor(width)


def side_by_side(work: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """Return the result of each task, worked on by threads; none may call it again."""
    return list(_threads(_width).map(work, tasks))


class Executor(Protocol):
    """Calls ``work(shared, task)`` for each task; results in the order of the tasks.

    ``shared`` is sent to a worker once. ``simulate`` is what its workers simulate with
    one by one; None: a simulation runs where it is asked for.
    """

    @property
    def simulate(self) -> Callable[..., Any] | None:
        """What simulates on its workers."""

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


def candidates_by(
    workers: Executor,
    work: Callable[[Any, Task], Result],
    inputs: Any,
    tasks: Sequence[Task],
) -> list[Result]:
    """Return the result of each candidate; a cluster's workers simulate their samples.

    Its unit is then a sample of a count of a candidate, of which there are more than of
    candidates.
    """
    if workers.simulate is None or not tasks:
        return workers(work, inputs, tasks)
    inputs = replace(inputs, simulate_with=workers.simulate)
    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(partial(_attempt, work, inputs), tasks))


class _Threads:
    """Threads: the compiled core runs outside Python's lock."""

    simulate = None

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def __call__(
        self, work: Callable[[Any, Task], Result], shared: Any, tasks: Sequence[Task]
    ) -> list[Result]:
        """Return the result of each task."""
        return list(self._pool.map(partial(_attempt, work, shared), tasks))


@contextmanager
def _local(ray_address: str | None) -> Iterator[Executor]:
    if ray_address is not None:
        raise InputError("--ray-address is given without --executor ray")
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        yield _Threads(pool)


class _Ray:
    """Workers of a Ray cluster; Ray restarts the task of a dead worker once.

    The compiled simulator of this process goes to each worker that has none.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._code = ray.put(remote.compiled())
        self._work = ray.remote(max_retries=1)(remote.work)
        self._sent: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
        self._lock = Lock()

    def __call__(
        self, work: Callable[[Any, Task], Result], shared: Any, tasks: Sequence[Task]
    ) -> list[Result]:
        """Return the result of each task."""
        attempt = partial(_attempt, work)
        sent = self._ray.put(self._packed(shared))
        pending = [self._begun((attempt, task), sent) for task in tasks]
        return [self._result(*each) for each in zip(pending, tasks, strict=True)]

    def simulate(self, trace: Trace, deployment: Deployment, **how: Any) -> Simulation:
        """Return a simulation that a worker has made."""
        del how["stopped"]  # Ctrl-C cannot be seen there
        call = partial(_simulate, **how), deployment
        pending = self._begun(call, self._kept(trace))
        return self._result(pending, f"{deployment}")

    def _begun(self, call: tuple[Any, ...], *shared: Any) -> Any:
        return self._work.remote([self._code], self._packed(call), *shared)

    def _packed(self, value: Any) -> bytes:
        content: bytes = self._ray.cloudpickle.dumps(value)
        return content

    def _kept(self, trace: Trace) -> Any:
        """Return requests as they were sent, which many counts serve."""
        with self._lock:
            known = self._sent.pop(id(trace), None)
            sent = known or (trace, self._ray.put(self._packed(trace)))
            self._sent[id(trace)] = sent
            while len(self._sent) > _KEPT:
                self._sent.popitem(last=False)
            return sent[1]

    def _result(self, pending: Any, task: Any) -> Any:
        ray = self._ray
        try:
            return ray.get(pending)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, CapplanError):
                raise cause from None
            raise CapplanError(f"{task}: the worker failed: {cause!r}") from None
        except ray.exceptions.RayError as error:
            raise CapplanError(
                f"{task}: the worker died twice: {type(error).__name__}"
            ) from None


def _simulate(trace: Trace, deployment: Deployment, **how: Any) -> Simulation:
    from capplan.simulator.simulate import simulate

    return simulate(trace, deployment, stopped=None, **how)


@contextmanager
def _ray(ray_address: str | None) -> Iterator[Executor]:
    global _width
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
        before, _width = _width, max(_width, int(ray.cluster_resources().get("CPU", 1)))
        try:
            yield _Ray(ray)
        finally:
            _width = before


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


def _attempt(work: Callable[..., Result], shared: Any, task: Any) -> Result:
    """Return the result of work, tried once more unless the input was at fault."""
    try:
        return work(shared, task)
    except (CapplanError, Interrupted):
        raise
    except Exception:
        try:
            return work(shared, task)
        except Exception as error:
            raise CapplanError(f"{task}: failed twice: {error!r}") from error


EXECUTORS = {"local": _local, "ray": _ray}
