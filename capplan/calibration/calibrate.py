"""Find the iteration time of an engine from the requests that it served.

A client or a log sees when requests got their tokens, not the iterations. But the
scheduler is known, so a served run says what the iterations must have taken: the
coefficients of ``c0 + ca*T + cq*Q + cd*b + ce*L`` are sought under which the
simulated requests get their tokens when the measured ones did.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize

from capplan.calibration.served_work import served_work
from capplan.deployment import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import LatencyTables, linear_tables
from capplan.latency.served_run import ServedRun
from capplan.simulator.simulate import simulate
from capplan.simulator.times import RequestTimes
from capplan.workload.trace import Trace

NAMES = ("fixed_s", "prefill_s", "attention_s", "decode_s", "context_s")
"""The arguments of ``linear_tables``, in order."""

FEWEST_REQUESTS = 20
"""With a TTFT and a TPOT, so that five coefficients can be found."""

_ROUNDS = 12
_DAMPING = 0.7
_OUTLIER = 0.1
_RELATIVE_STEPS = (0.02, 0.002)
_LEAST_RELATIVE = 0.01
_REPEATS = 0.004  # no two runs of an engine agree better than this
_BLOCKS = 10


class Calibration(NamedTuple):
    """Coefficients that explain a served run, and how well it determines them."""

    coefficients_s: np.ndarray  # (5,), in the order of NAMES
    standard_errors_s: np.ndarray  # (5,): inf where the run says nothing
    singular_values: np.ndarray  # (5,): of the sensitivities, largest first
    ttft_error: float  # root mean square over the requests fitted, of their e2e time
    tpot_error: float  # root mean square over the requests fitted, of their TPOT
    fitted_rows: np.ndarray  # int64: which requests of the run were fitted
    times: RequestTimes  # all requests of the run, as simulated

    @property
    def identified(self) -> np.ndarray:
        """Which coefficients are known to a factor of two or better, bool, (5,)."""
        return 2 * self.standard_errors_s < self.coefficients_s

    def tables(self, engine: EngineSettings) -> LatencyTables:
        """Return the latency tables of an engine with these limits."""
        return _tables(self.coefficients_s, engine)


def calibrate(
    run: ServedRun,
    engine: EngineSettings,
    *,
    rows: np.ndarray | None = None,
) -> Calibration:
    """Return the coefficients of the iteration time that explain a served run.

    Squared errors of TTFT, relative to the request's end-to-end time, and of TPOT,
    relative to itself, are minimised with a loss that forgives outliers. A simulated
    schedule says what work lies behind each TTFT and TPOT, which makes them linear in
    the coefficients; these are solved for, the run is simulated with them, and so on.
    From the best of the rounds the loss is followed down by differences of whole
    simulations; the schedule is discrete, so first over steps of 2 %, then of 0.2 %.

    Standard errors are those of the linear problem at the end. Requests of a queue
    share their delays, so residuals are summed over ten stretches of the run before
    their spread is taken, and to each 0.4 % is added, within which no engine repeats
    itself. What the law itself leaves out is not in them.

    Parameters
    ----------
    run
        Requests as one engine served them, with TTFT.
    engine
        Settings of that engine.
    rows
        Requests to fit; all by default. All are simulated.

    Raises
    ------
    InputError
        When too few of the requests have a TTFT and a TPOT, or one fits no replica.
    """
    chosen = np.arange(len(run.arrival_s)) if rows is None else np.asarray(rows)
    seen = np.isfinite(run.ttft_s[chosen]) & np.isfinite(run.tpot_s[chosen])
    chosen = chosen[seen & (run.tpot_s[chosen] > 0)]
    if len(chosen) < FEWEST_REQUESTS:
        raise InputError(
            f"{run.source}: {len(chosen)} requests have a TTFT and a TPOT; "
            f"expected at least {FEWEST_REQUESTS}"
        )
    trace = Trace(
        run.prompt_tokens, run.output_tokens, run.arrival_s, source=run.source
    )
    scale_s = _first_guess(run)

    def times(relative: np.ndarray) -> RequestTimes:
        return simulate(trace, _tables(relative * scale_s, engine), engine, 1).table

    def residuals(relative: np.ndarray) -> np.ndarray:
        return np.concatenate(_errors(run, times(relative), chosen))

    def linear(relative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tables = _tables(relative * scale_s, engine)
        simulation = simulate(trace, tables, engine, 1, record_iterations=True)
        work = served_work(simulation)
        rows_of_work = (
            work.ttft[chosen] / run.e2e_s[chosen, None],
            work.tpot[chosen] / run.tpot_s[chosen, None],
        )
        errors = _errors(run, simulation.table, chosen)
        return np.concatenate(rows_of_work) * scale_s, np.concatenate(errors)

    best = _refine(residuals, _solve_in_rounds(linear))
    work, left = linear(best)
    errors, singular = _uncertainty(work, left)
    spent_s = best * scale_s
    simulated = times(best)
    ttft, tpot = _errors(run, simulated, chosen)
    return Calibration(
        coefficients_s=spent_s,
        standard_errors_s=errors * scale_s,
        singular_values=singular,
        ttft_error=float(np.sqrt((ttft**2).mean())),
        tpot_error=float(np.sqrt((tpot**2).mean())),
        fitted_rows=chosen,
        times=simulated,
    )


def _tables(coefficients_s: np.ndarray, engine: EngineSettings) -> LatencyTables:
    fixed_s, prefill_s, attention_s, decode_s, context_s = coefficients_s.tolist()
    return linear_tables(
        fixed_s,
        prefill_s,
        attention_s,
        decode_s,
        context_s,
        max_batch=engine.max_num_seqs,
        max_tokens=engine.max_num_batched_tokens,
    )


def _first_guess(run: ServedRun) -> np.ndarray:
    """Return coefficients of a likely size, from the run's fastest tokens.

    The fastest TPOT is mostly the fixed time. Its order is spread over what else
    an iteration does: a thousand prompt tokens cost a few times as much, a hundred
    decoding requests and a hundred thousand tokens of context about as much.
    """
    tpot_s = float(np.nanquantile(run.tpot_s, 0.05))
    return tpot_s * np.array([1.0, 3e-3, 1e-7, 1e-2, 1e-5])


def _errors(
    run: ServedRun, times: RequestTimes, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    ttft = (times.ttft_s[rows] - run.ttft_s[rows]) / run.e2e_s[rows]
    tpot = times.tpot_s[rows] / run.tpot_s[rows] - 1
    return ttft, tpot


def _solve_in_rounds(
    linear: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Return the best of the coefficients that solve what the last ones scheduled."""
    relative = np.ones(len(NAMES))
    seen: list[tuple[float, np.ndarray]] = []
    for _ in range(_ROUNDS):
        work, left = linear(relative)
        seen.append((float(np.log1p((left / _OUTLIER) ** 2).sum()), relative))
        spread = max(1.5 * float(np.median(np.abs(left))), 1e-3)
        weight = 1 / np.sqrt(1 + (left / spread) ** 2)
        # As simulated, less by how much that was wrong: what was measured.
        wanted = (work @ relative - left) * weight
        size = np.linalg.norm(work * weight[:, None], axis=0)
        size[size == 0] = 1.0
        solved, _ = optimize.nnls(work * weight[:, None] / size, wanted)
        solved = np.maximum(solved / size, 1e-6)
        relative = relative + _DAMPING * (solved - relative)
    return min(seen, key=lambda one: one[0])[1]


def _refine(
    residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray
) -> np.ndarray:
    """Return the nearest least squares: first over wide steps, then over short ones."""
    # A step is a share of the coefficient: from nothing none would lead away.
    start = np.maximum(start, _LEAST_RELATIVE)
    for step in _RELATIVE_STEPS:
        found = optimize.least_squares(
            residuals,
            start,
            bounds=(1e-6, np.inf),
            loss="cauchy",
            f_scale=_OUTLIER,
            diff_step=np.full(len(start), step),
            x_scale="jac",
            xtol=1e-4,
            max_nfev=40,
        )
        start = np.asarray(found.x)
    return start


def _uncertainty(work: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return standard errors, and the singular values of the sensitivities.

    Parameters
    ----------
    work
        How the errors of TTFT, then those of TPOT, change with the coefficients.
    left
        The errors themselves.
    """
    weight = 1 / (1 + (left / _OUTLIER) ** 2)
    requests = len(left) // 2
    stretch = np.tile(np.arange(requests) * _BLOCKS // requests, 2)
    _, singular, directions = np.linalg.svd(
        work * np.sqrt(weight)[:, None], full_matrices=False
    )
    known = singular > 1e-9 * singular[0]
    seen = directions[known]
    pulls = np.zeros((_BLOCKS, known.sum()))
    np.add.at(pulls, stretch, (left * weight)[:, None] * (work @ seen.T))
    pulls /= singular[known] ** 2
    shared = pulls.T @ pulls * _BLOCKS / (_BLOCKS - 1)
    shared += np.diag((_REPEATS / singular[known]) ** 2)
    variance = np.einsum("ij,ik,kj->j", seen, shared, seen)
    variance[(directions[~known] ** 2 > 1e-9).any(axis=0)] = np.inf
    return np.sqrt(variance), singular
