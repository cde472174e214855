"""Run laws on a scheduler in a child process, which is stopped when it does not end."""

import multiprocessing
import signal
import warnings
from multiprocessing.connection import Connection
from typing import NamedTuple

from capplan.deployment.policy import Policy
from capplan.errors import CapplanWarning
from capplan.simulator.laws.cases import draw
from capplan.simulator.laws.laws import ROUTER, broken
from capplan.simulator.routers import router
from capplan.simulator.schedulers import parse_scheduler

_MOST_BROKEN = 10
"""Broken laws after which a check ends."""
_LIMIT_S = 30.0
"""For a case that takes milliseconds."""


class Checked(NamedTuple):
    """What the laws found."""

    scheduler: str  # with its content and all its settings
    broken: tuple[str, ...]  # one line each, with the seed of the case
    cases: int  # checked, those refused whole among them
    refused: int  # cases of which the scheduler refuses every request
    requests: int
    iterations: int
    preemptions: int
    swaps: int


def check_laws(
    given: str, cases: int, seed: int = 0, limit_s: float = _LIMIT_S
) -> Checked:
    """Return which laws a scheduler breaks on so many random cases.

    Case ``seed + k`` is the same in every check. A case that does not end within
    ``limit_s`` ends the check, as a crash does.
    """
    given = str(parse_scheduler(given))  # what cannot be loaded is refused here
    broken: list[str] = []
    counts = [0, 0, 0, 0, 0]
    done = 0
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(
        target=_check_cases, args=(theirs, given, seed, cases), daemon=True
    )
    child.start()
    theirs.close()
    try:
        ours.recv()  # it has loaded the scheduler
        while done < cases and len(broken) < _MOST_BROKEN:
            case = seed + done
            if not ours.poll(limit_s):
                broken.append(_line(f"does not end within {limit_s:g} s", case))
                break
            texts, more = ours.recv()
            broken += [_line(text, case) for text in texts]
            counts = [a + b for a, b in zip(counts, more, strict=True)]
            done += 1
    except EOFError:
        child.join()
        how = f"ends the process (exit code {child.exitcode})"
        broken.append(_line(how, seed + done))
    finally:
        child.kill()
        child.join()
        ours.close()
    return Checked(given, tuple(broken), done, *counts)


def _line(text: str, case: int) -> str:
    return f"{text} (again: --seed {case} --cases 1)"


def _check_cases(results: Connection, given: str, seed: int, cases: int) -> None:
    """Send the broken laws and the counts of each case."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    router(ROUTER)  # compiled here, where no time is limited
    policy = parse_scheduler(given)
    results.send("ready")
    for number in range(seed, seed + cases):
        results.send(check_case(policy, number))


def check_case(policy: Policy, seed: int) -> tuple[list[str], list[int]]:
    """Return the laws broken on a case, and what is counted of it in ``Checked``."""
    try:
        case = draw(policy, seed)
        if case is None:
            return [], [1, 0, 0, 0, 0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CapplanWarning)  # of times continued
            texts, served = broken(case)
    except Exception as error:  # of the scheduler's own refused, for one
        return [f"{type(error).__name__}: {error}"], [0, 0, 0, 0, 0]
    results = served.results
    if not len(results):
        return texts, [0, 0, 0, 0, 0]
    summed = [int(results[name].sum()) for name in ("preemptions", "swaps")]
    return texts, [0, len(results), served.iteration_count, *summed]
