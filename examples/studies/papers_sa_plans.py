"""SA scheduling's worked plans, its cooling, and its search beside all plans."""

from itertools import chain
from typing import NamedTuple

import numpy as np
from numba import njit
from papers_claims import Claim

from capplan.latency.contract import LatencyTables, linear_tables
from capplan.simulator.engine import annealing
from capplan.simulator.engine.annealing import (
    E2E,
    ORDER,
    OUTPUT,
    PROMPT,
    SIZES,
    TPOT,
    TTFT,
    Cooling,
)
from capplan.simulator.jit import from_python
from capplan.simulator.state import Sizes, State, empty_state

anneal = from_python(annealing.anneal)
first_and_rest_s = from_python(annealing.first_and_rest_s)
goodput = from_python(annealing.goodput)

PUBLISHED = Cooling(500.0, 20.0, 0.95, 100, True, True)
"""Section 4.3 and 5.1, with the acceptance of Metropolis."""
LEVELS = {500: 63, 200: 45, 100: 32}
"""Temperatures from the hottest down to 20: 1 + floor(ln(T / 20) / ln(1 / 0.95))."""
BUDGET_TOKENS = 2048

MILLISECOND = linear_tables(0, 0, 0, 0, 0, max_batch=8, max_tokens=8)
MILLISECOND = MILLISECOND._replace(decode_s=np.full(9, 1e-3))
"""Each output token takes 1 ms, whatever the batch."""


def planning_state(
    tables: LatencyTables,
    prompt_tokens: np.ndarray | list[int],
    output_tokens: np.ndarray | list[int],
    e2e_s: np.ndarray | list[float] | float,
    ttft_s: np.ndarray | float = np.inf,
    tpot_s: np.ndarray | float = np.inf,
) -> State:
    """Return a state with requests that have just arrived, to be planned."""
    n = len(prompt_tokens)
    sizes = Sizes(1, n, 64, 16, 0, 1, 1, 1, 1, 1)
    state = empty_state(sizes, tuple(np.array(table) for table in tables[:5]))
    state.engine[0].max_num_batched_tokens = BUDGET_TOKENS
    for row, values in (
        (PROMPT, prompt_tokens),
        (OUTPUT, output_tokens),
        (TTFT, ttft_s),
        (TPOT, tpot_s),
        (E2E, e2e_s),
    ):
        state.scratch[row, :n] = values
    return state


def worth(state: State, batches: list[list[int]]) -> tuple[float, int, float]:
    """Return G [requests/s], requests that keep their SLO, sum of latencies [ms]."""
    rows = list(chain(*batches))
    state.scratch[ORDER, : len(rows)] = rows
    sizes = [[len(batch), *[0] * (len(batch) - 1)] for batch in batches]
    state.scratch[SIZES, : len(rows)] = list(chain(*sizes))
    objective, kept = goodput(state, len(rows), 0.0)
    return objective, kept, 1e3 * kept / objective


class Figure(NamedTuple):
    """Three requests of a figure with limits on e2e, and its two plans (B) and (C)."""

    tables: LatencyTables
    output_tokens: list[int]
    e2e_s: list[float]
    plans: tuple[list[list[int]], list[list[int]]]

    def worths(self) -> list[tuple[float, int, float]]:
        """Return ``worth`` of both plans."""
        state = planning_state(self.tables, [1, 1, 1], self.output_tokens, self.e2e_s)
        return [worth(state, plan) for plan in self.plans]


_IN_TURN = ([[0], [1], [2]], [[1], [0], [2]])
FIGURE_3 = Figure(MILLISECOND, [300, 500, 800], [0.8, 0.5, 1.8], _IN_TURN)
FIGURE_4 = Figure(  # a batch of 1, 2, 3 takes 300, 500, 800 ms
    MILLISECOND._replace(decode_s=np.array([0, 0.3, 0.5, 0.8, *[9.0] * 5])),
    [1, 1, 1],
    [0.5, 0.5, 0.8],
    ([[0, 1, 2]], [[0, 1], [2]]),
)
FIGURE_5 = Figure(MILLISECOND, [300, 500, 800], [0.2, 0.5, 1.8], _IN_TURN)


def levels(cooling: Cooling) -> int:
    """Return at how many temperatures a search makes its moves."""
    temperature, count = cooling.hottest, 0
    while temperature >= cooling.coldest:
        count += 1
        temperature *= cooling.decay
    return count


@njit
def _best(took_s, limits_s, outputs, left, begins_s, total_s, kept, largest):
    """Return the best objective of all plans whose last requests are those ``left``.

    ``left`` is a set, as bits. ``took_s`` are the times of prompt and tokens of each
    request in each batch, shape (largest + 1, n, 2), ``limits_s`` those of TTFT, TPOT
    and e2e, shape (3, n).
    """
    if left == 0:
        return kept / total_s
    best = 0.0
    batch = left
    while batch:
        b = 0
        for k in range(len(outputs)):
            b += (batch >> k) & 1
        if b <= largest:
            longest_s = 0.0
            sum_s = 0.0
            met = 0
            for k in range(len(outputs)):
                if (batch >> k) & 1:
                    first_s, rest_s = took_s[b, k]
                    ends_s = begins_s + first_s + rest_s
                    longest_s = max(longest_s, first_s + rest_s)
                    sum_s += ends_s
                    met += (
                        begins_s + first_s <= limits_s[0, k]
                        and rest_s / outputs[k] <= limits_s[1, k]
                        and ends_s <= limits_s[2, k]
                    )
            found = _best(
                took_s,
                limits_s,
                outputs,
                left & ~batch,
                begins_s + longest_s,
                total_s + sum_s,
                kept + met,
                largest,
            )
            best = max(best, found)
        batch = (batch - 1) & left
    return best


def best_of_all(state: State, n: int, largest: int) -> float:
    """Return the best objective of all orders and batches of n requests."""
    took_s = np.zeros((largest + 1, n, 2))
    for b in range(1, largest + 1):
        took_s[b] = [first_and_rest_s(state, k, b) for k in range(n)]
    limits_s = np.array([state.scratch[row, :n] for row in (TTFT, TPOT, E2E)])
    outputs = state.scratch[OUTPUT, :n].copy()
    return _best(took_s, limits_s, outputs, 2**n - 1, 0.0, 0.0, 0, largest)


def worked_claims() -> list[Claim]:
    """Return the objectives that the captions state, to their last digit."""
    (b3, c3), (b4, c4), (b5, c5) = (
        figure.worths() for figure in (FIGURE_3, FIGURE_4, FIGURE_5)
    )
    rows = [
        ("3 (B), in order", "0.74/s", b3, 0.005),
        ("3 (C), the urgent one first", "1.03/s", c3, 0.005),
        ("4 (B), one batch, of a millisecond", "0.0004", b4, 0.00005),
        ("4 (C), two batches, of a millisecond", "0.00167", c4, 0.000005),
        ("5 (B), the strictest first", "0.37/s", b5, 0.005),
        ("5 (C), the one that is late anyway second", "0.74/s", c5, 0.005),
    ]
    return [
        Claim(
            f"G of Fig. {figure}",
            published,
            found[0] if "/s" in published else found[0] / 1e3,
            (stated - half, stated + half),
            "/s" if "/s" in published else "",
            "2 of 3 within 2,900 ms are 0.690; 0.74 is 2 / 2,700 ms",
        )
        for figure, published, found, half in rows
        for stated in (float(published.removesuffix("/s")),)
    ]
