"""The work of the iterations behind each request's TTFT and TPOT, as simulated."""

from typing import NamedTuple

import numpy as np

from capplan.latency.profile import Validity, covered
from capplan.simulator.results.times import Iterations, Simulation


class ServedWork(NamedTuple):
    """Work done while each request waited for its tokens.

    The columns are those of ``c0 + ca*T + cq*Q' + cd*b + ce*L``: iterations, prompt
    tokens, pairs of new and earlier token, decoding requests, their context. A row
    times the coefficients is the simulated time.
    """

    ttft: np.ndarray  # (requests, 5): from the arrival to the first token
    tpot: np.ndarray  # (requests, 5): per token after it


def served_work(simulation: Simulation) -> ServedWork:
    """Return the work behind each request's TTFT and TPOT.

    The simulation is of one replica, with its iterations recorded. An iteration
    that runs when a request arrives counts by the share of its time that was left.
    """
    assert simulation.iterations is not None
    steps, times = simulation.iterations.steps, simulation.table
    work = iteration_work(simulation.iterations, times.prompt_tokens)
    before = np.vstack([np.zeros(5), np.cumsum(work, axis=0)])

    def done_by(moment_s: np.ndarray) -> np.ndarray:
        last = np.searchsorted(steps["end_s"], moment_s, side="left")
        last = np.minimum(last, len(steps) - 1)
        start_s, end_s = steps["start_s"][last], steps["end_s"][last]
        share = np.clip((moment_s - start_s) / (end_s - start_s), 0.0, 1.0)
        return before[last] + share[:, None] * work[last]

    first = done_by(times.first_token_s)
    later_tokens = np.maximum(times.output_tokens - 1, 1)[:, None]
    return ServedWork(
        ttft=first - done_by(times.arrival_s),
        tpot=(done_by(times.finish_s) - first) / later_tokens,
    )


def iteration_work(iterations: Iterations, prompt_tokens: np.ndarray) -> np.ndarray:
    """Return the five columns of each iteration, shape (iterations, 5)."""
    steps, entries = iterations.steps, iterations.entries
    new = entries["scheduled"].astype(np.float64)
    pairs = new * (entries["computed"] + (new + 1) / 2)
    pairs[decoding(iterations, prompt_tokens)] = 0.0
    return np.stack(
        [
            np.ones(len(steps)),
            steps["ctx_tokens"],
            np.bincount(step_of_entry(iterations), pairs, len(steps)),
            steps["gen_reqs"],
            steps["gen_ctx"],
        ],
        axis=1,
        dtype=np.float64,
    )


def step_of_entry(iterations: Iterations) -> np.ndarray:
    """Return the iteration that each entry belongs to, shape (entries,)."""
    counts = np.diff(iterations.steps["entries_end"], prepend=0)
    return np.repeat(np.arange(len(counts)), counts)


def decoding(iterations: Iterations, prompt_tokens: np.ndarray) -> np.ndarray:
    """Return which entries decode, shape (entries,), bool.

    A preempted request that recomputes its output and is left with one token of it
    is taken to decode: the record does not tell the two apart.
    """
    entries = iterations.entries
    past_prompt = entries["computed"] >= prompt_tokens[entries["row"]]
    return past_prompt & (entries["scheduled"] == 1)


def exercised(simulation: Simulation) -> Validity:
    """Return the ranges that the iterations of each phase covered.

    Those of ``prefill`` are of every iteration with a prompt in it, as the same
    coefficients hold for all.
    """
    assert simulation.iterations is not None
    iterations, times = simulation.iterations, simulation.table
    steps, entries = iterations.steps, iterations.entries
    step = step_of_entry(iterations)
    is_decode = decoding(iterations, times.prompt_tokens)
    has_prompt, has_decode = steps["ctx_reqs"] > 0, steps["gen_reqs"] > 0
    context = entries["computed"] + 1
    phases = {
        "decode": {
            "batch": steps["gen_reqs"][has_decode],
            "context": context[is_decode],
        },
        "prefill": {
            "new_tokens": steps["ctx_tokens"][has_prompt],
            "prefix": entries["computed"][~is_decode],
        },
        "mixed": {
            "batch": steps["gen_reqs"][has_decode & has_prompt],
            "context": context[is_decode & has_prompt[step]],
            "chunk": steps["ctx_tokens"][has_decode & has_prompt],
        },
    }
    return covered(phases)
