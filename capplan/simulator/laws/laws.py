"""What holds for every scheduler, on one case."""

from typing import NamedTuple

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.simulator.engine.examine import FAULTS
from capplan.simulator.fleet.fleet import Fleet
from capplan.simulator.fleet.pool_state import UNBOUNDED_JUMP, Options
from capplan.simulator.laws.cases import Case
from capplan.simulator.state import Count

ROUTER = "jsq"
"""Of every case; it draws nothing at random."""
_TIMES = ("scheduled_s", "first_token_s", "finish_s", "longest_gap_s", "paused_s")
_COUNTS = ("row", "replica", "preemptions", "cached_tokens", "swaps", "late_gaps")
_ROUNDING_S = 1e-9
"""Of times around a second; one iteration in closed form rounds unlike many."""


class Served(NamedTuple):
    """What became of a case's requests."""

    fault: str  # the first thing that was wrong; empty when none
    results: np.ndarray  # RESULT, in order of rows
    iteration_count: int
    entries: np.ndarray  # ENTRY of recorded iterations, else empty


def serve(
    case: Case,
    *,
    longest_jump: int = UNBOUNDED_JUMP,
    record: bool = False,
) -> Served:
    """Simulate a case and examine each call of the scheduler."""
    assert case.trace.arrival_s is not None
    options = Options(
        limits=case.slo.strictest(case.trace.class_names),
        slo=case.slo,
        seed=case.seed,
        bin_width_s=1.0,
        record_iterations=record,
        longest_jump=longest_jump,
        chunk=len(case.trace),
    )
    deployment = Deployment.of(case.configuration, case.replica_count, ROUTER)
    fleet = Fleet(deployment, options)
    fleet.state.engine[0].examined = 1
    try:
        done = [np.array(part) for part in fleet.serve_all(case.trace)]
    except InputError as error:
        fault = _fault(fleet) or _stuck(fleet, error)
        return Served(fault, np.zeros(0), 0, np.zeros(0))
    results = np.concatenate(done)
    results = results[np.argsort(results["row"])]
    (pool,) = fleet.pools
    recorded = pool.iterations()
    entries = np.zeros(0) if recorded is None else recorded.entries
    fault = _fault(fleet) or _left(fleet)
    return Served(fault, results, pool.iteration_count, entries)


def broken(case: Case) -> tuple[list[str], Served]:
    """Return the laws that the case's scheduler breaks, and what it did."""
    first = serve(case)
    if first.fault:
        return [first.fault], first
    if len(first.results) != len(case.trace):
        missing = len(case.trace) - len(first.results)
        return [f"{missing} of {len(case.trace)} requests did not finish"], first
    texts = _broken_times(case, first.results)
    again = serve(case)
    if again.results.tobytes() != first.results.tobytes():
        texts.append("the same inputs gave other results")
    cut = serve(case, longest_jump=1)
    texts += _differences(first, cut, "jumps cut to one iteration")
    recorded = serve(case, record=True)
    texts += _differences(first, recorded, "iterations recorded")
    texts += _broken_tokens(recorded)
    looser = case.looser()
    refused = looser.refused()
    if refused.any():
        row = int(np.argmax(refused)) + 1
        texts.append(f"request {row} is refused with twice the KV and budget")
    elif fault := serve(looser).fault:
        texts.append(f"with twice the KV and budget: {fault}")
    return texts, first


def _fault(fleet: Fleet) -> str:
    counts = fleet.state.counts
    text = FAULTS[counts[Count.FAULT]]
    return text.format(found=counts[Count.FOUND], limit=counts[Count.LIMIT])


def _stuck(fleet: Fleet, error: InputError) -> str:
    if not fleet.state.counts[Count.STUCK]:
        return str(error)
    return f"returned 0 with nothing in flight while {fleet.outstanding} requests wait"


def _left(fleet: Fleet) -> str:
    """Return what is still held when every request has finished."""
    replicas, engine = fleet.state.replicas, fleet.state.engine[0]
    for replica in replicas:
        if replica["free_blocks"] != engine.kv_blocks:
            return (
                f"left {replica['free_blocks']} of {engine.kv_blocks} KV blocks "
                "free at the end; expected all"
            )
        host = replica["host_free_blocks"]
        if host != engine.host_blocks:
            return (
                f"left {host} of {engine.host_blocks} blocks of the host free at "
                "the end; expected all"
            )
    return ""


def _broken_times(case: Case, results: np.ndarray) -> list[str]:
    """Return the first request with a token too early, or nothing."""
    tables = case.configuration.tables
    tokens = results["prompt_tokens"] - results["cached_tokens"]
    alone_s = tables.fused_s[0] + tokens * (tables.fused_s[1] - tables.fused_s[0])
    alone_s += tables.attention_s * tokens * (results["cached_tokens"] + tokens / 2)
    earliest_s = results["arrival_s"] + tables.request_s + alone_s
    early = results["first_token_s"] < earliest_s - _ROUNDING_S * (1 + earliest_s)
    if not early.any():
        return []
    row = int(np.argmax(early))
    return [
        f"request {row + 1} has its first token at {results['first_token_s'][row]:.6f} "
        f"s; its prompt alone ends at {earliest_s[row]:.6f} s"
    ]


def _differences(first: Served, other: Served, how: str) -> list[str]:
    """Return the first difference that must not be, or nothing."""
    if other.fault:
        return [f"with {how}: {other.fault}"]
    if len(first.results) != len(other.results):
        finished = f"{len(other.results)} requests finish, else {len(first.results)}"
        return [f"with {how} {finished}"]
    scale_s = _ROUNDING_S * max(1.0, float(first.results["finish_s"].max()))
    for name in (*_COUNTS, *_TIMES):
        one, two = first.results[name], other.results[name]
        far = np.abs(one - two) > (scale_s if name in _TIMES else 0)
        if far.any():
            row = int(np.argmax(far))
            return [
                f"with {how} request {row + 1} has {name} {two[row]:.9g}, else "
                f"{one[row]:.9g}"
            ]
    if first.iteration_count != other.iteration_count:
        return [
            f"with {how} there are {other.iteration_count} iterations, else "
            f"{first.iteration_count}"
        ]
    return []


def _broken_tokens(recorded: Served) -> list[str]:
    """Return the first request that did not compute its tokens in order, or nothing.

    It starts again from fewer tokens only where it was preempted.
    """
    entries, results = recorded.entries, recorded.results
    for result in results:
        own = entries[entries["row"] == result["row"]]
        after = own["computed"] + own["scheduled"]
        wanted = result["prompt_tokens"] + result["output_tokens"] - 1
        again = own["computed"][1:] != after[:-1]
        whole = len(own) > 0 and own["computed"][0] == result["cached_tokens"]
        if not whole or after[-1] < wanted or again.sum() > result["preemptions"]:
            done = int(after[-1]) if len(own) else 0
            return [
                f"request {result['row'] + 1} computed {done} of {wanted} tokens, and "
                f"went on elsewhere {again.sum()} times; it was preempted "
                f"{result['preemptions']} times"
            ]
    return []
