"""The placement problem in integers, the same for heuristics and solvers.

Contexts and their limits are in 1/1000 token, KV in tokens, prefill in tokens, or in
nanoseconds where attention's quadratic term counts. Weights round up and limits down,
so a placement that is valid in integers is valid. Nothing is lost while 1000 * gamma
is whole and prefill is linear; then ``exact`` is true.
"""

from dataclasses import dataclass

import numpy as np

from capplan.errors import InputError
from capplan.placement.problem import (
    PlacementProblem,
    context_tokens,
    decode_limit_tokens,
    saved_s,
)

UNITS_PER_TOKEN = 1000
UNITS_PER_SECOND = 1_000_000_000
LARGEST_SUM = 2**50
"""Above this, sums in doubles would lose units."""

_SLACK = 1e-12  # the rounding that ``violations`` allows


@dataclass(frozen=True, eq=False)
class IntegerUnits:
    """Weights and limits as integers; columns have shape (n,), int64."""

    context: np.ndarray  # weight in (b) [1/1000 token]
    tpot_class: np.ndarray  # row of ``limit`` of each request, 0 the tightest
    # Right side of (b), -1 where the batch is too slow, (classes, max batch + 1).
    limit: np.ndarray
    prefill: np.ndarray  # weight in (c) and (d), 0 without prefill
    # Largest sum of prefills on its replica: (c) if new, (d) if it decodes.
    prefill_ceiling: np.ndarray
    prefill_unit: str  # of ``prefill``: "tokens", "ns" or "requests"
    exact: bool  # whether rounding changes nothing

    @property
    def scale_text(self) -> str:
        """One sentence on the units, for reports."""
        rounding = "exact" if self.exact else "weights rounded up, limits down"
        return (
            f"context in 1/{UNITS_PER_TOKEN} token, KV in tokens, prefill in "
            f"{self.prefill_unit}; {rounding}"
        )


def integer_units(problem: PlacementProblem) -> IntegerUnits:
    """Return the weights and limits of the problem as integers."""
    # Less than a thousandth of a unit is rounding of doubles, not a weight.
    context = np.ceil(context_tokens(problem) * UNITS_PER_TOKEN - 1e-3)
    _refuse_large(problem, "contexts", float(context.sum()))
    prefill, ceiling, unit = _prefill(problem)
    tpots_s, tpot_class = np.unique(problem.tpot_slo_s, return_inverse=True)
    limit = np.array([_limit(problem, float(t), context.sum()) for t in tpots_s])
    gamma_units = problem.gamma * UNITS_PER_TOKEN
    return IntegerUnits(
        context=context.astype(np.int64),
        tpot_class=tpot_class.astype(np.int64),
        limit=limit,
        prefill=prefill,
        prefill_ceiling=ceiling,
        prefill_unit=unit,
        exact=abs(gamma_units - round(gamma_units)) < 1e-9 and unit != "ns",
    )


def _limit(problem: PlacementProblem, tpot_s: float, total: float) -> np.ndarray:
    tokens = decode_limit_tokens(problem, tpot_s) * (1 + _SLACK)
    # Infinite limits as the sum of all contexts, which no batch exceeds.
    units = np.floor(np.clip(tokens * UNITS_PER_TOKEN, -1, total))
    units[0] = 0
    return units.astype(np.int64)


def _prefill(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray, str]:
    template = problem.template
    new = problem.generated_tokens == 0
    limit_s = np.where(new, problem.ttft_slo_s, problem.theta * saved_s(problem))
    # 0 * inf would be nan.
    limit_s = np.where(problem.theta == 0, np.where(new, limit_s, 0.0), limit_s)
    room_s = limit_s + _SLACK * np.abs(limit_s) - template.prefill_fixed_s
    if template.prefill_s_per_token2 > 0:
        unit, per_s = "ns", float(UNITS_PER_SECOND)
        work = np.ceil(template.prefill_work_s(problem.prompt_tokens) * per_s - 1e-3)
    elif template.prefill_s_per_token > 0:
        unit, per_s = "tokens", 1 / template.prefill_s_per_token
        work = problem.prompt_tokens.astype(np.float64)
    else:
        unit, per_s = "requests", np.inf
        # Prefill takes no time for its tokens: only whether there is any counts.
        work = np.ones(len(problem))
    # At least 1, so that a limit of 0 keeps every new request away.
    prefill = np.where(new, np.maximum(work, 1), 0).astype(np.int64)
    total = float(prefill.sum())
    _refuse_large(problem, "prefills", total)
    with np.errstate(invalid="ignore"):
        ceiling = np.floor(np.clip(np.nan_to_num(room_s * per_s, nan=0.0), -1, total))
    return prefill, np.where(room_s < 0, 0, ceiling).astype(np.int64), unit


def _refuse_large(problem: PlacementProblem, what: str, total: float) -> None:
    if total > LARGEST_SUM:
        raise InputError(
            f"{problem.source}: {what} sum to {total:.3g} units, beyond the integer "
            f"scale of {LARGEST_SUM:.3g}; split the heartbeat or check the lengths"
        )
