"""Fit the iteration time of an engine to the requests that it served.

A client or a log sees tokens, not iterations. A simulation tells which iterations lie
behind each token; the coefficients of ``c0 + ca*T + cq*Q + cd*b + ce*L`` are fitted so
that the simulated requests get their tokens when the measured ones did.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize

from capplan.calibration.served_work import served_work
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.latency.least_squares import scaled_nnls
from capplan.latency.served_run import ServedRun
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.times import Simulation
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

NAMES = ("fixed_s", "prefill_s", "attention_s", "decode_s", "context_s")
"""The arguments of ``linear_tables``, in order."""

FEWEST_REQUESTS = 20
"""With a TTFT and a TPOT, so that five coefficients can be fitted."""

_ROUNDS = 12
_DAMPING = 0.7  # a whole step to the solution makes the schedule oscillate
_OUTLIER = 0.1  # relative error above which a request counts as an outlier
_RELATIVE_STEPS = (0.02, 0.002)
_LEAST_RELATIVE = 0.01
_REPEATS = 0.004  # two runs of the same engine differ by at least this
_STRETCHES = 10


class Calibration(NamedTuple):
    """Coefficients that explain a served run, and how well it determines them."""

    coefficients_s: np.ndarray  # (5,), in the order of NAMES
    standard_errors_s: np.ndarray  # (5,): inf where the run does not depend on it
    fitted_rows: np.ndarray  # int64: which requests of the run were fitted
    simulation: Simulation  # of all requests of the run, iterations recorded

    @property
    def times(self) -> RequestTimes:
        """All requests of the run, as simulated."""
        return self.simulation.table

    @property
    def identified(self) -> np.ndarray:
        """Which coefficients are known to a factor of two or better, bool, (5,)."""
        return 2 * self.standard_errors_s < self.coefficients_s


def calibrate(
    run: ServedRun, engine: EngineSettings, *, rows: np.ndarray | None = None
) -> Calibration:
    """Return the coefficients of the iteration time that explain a served run.

    Minimises the squared errors of TTFT, relative to the request's end-to-end time,
    and of TPOT, relative to itself, with a Cauchy loss so that outliers weigh little.

    1. A simulated schedule gives the work behind each TTFT and TPOT, which makes
       them linear in the coefficients. Solve for these, simulate with them, repeat.
    2. Start at the best round and minimise the loss over whole simulations. The
       schedule is discrete, so the loss is a staircase: differences are taken over
       steps of 2 % first, then of 0.2 %.
    3. Standard errors are those of the linear problem at the minimum.

    ``rows`` are the requests to fit, all by default; all are simulated.
    """
    chosen = np.arange(len(run.arrival_s)) if rows is None else np.asarray(rows)
    seen = np.isfinite(run.ttft_s[chosen]) & np.isfinite(run.tpot_s[chosen])
    chosen = chosen[seen & (run.tpot_s[chosen] > 0)]
    if len(chosen) < FEWEST_REQUESTS:
        raise InputError(
            f"{run.source}: {len(chosen)} requests have a TTFT and a TPOT; "
            f"expected at least {FEWEST_REQUESTS}"
        )
    trace = trace_of(run)
    # Coefficients differ by seven orders of magnitude; in units of a first guess all
    # are about 1, so one step size suits all.
    scale_s = _first_guess(run)

    def replica(relative: np.ndarray) -> Deployment:
        tables = linear_tables(
            *(relative * scale_s).tolist(),
            max_batch=engine.max_num_seqs,
            max_tokens=engine.max_num_batched_tokens,
        )
        return Deployment.of(Configuration(engine, tables), 1)

    def residuals(relative: np.ndarray) -> np.ndarray:
        times = simulate(trace, replica(relative)).table
        return _errors(run, times, chosen)

    def linear(relative: np.ndarray) -> tuple[np.ndarray, np.ndarray, Simulation]:
        simulation = simulate(trace, replica(relative), record_iterations=True)
        work = served_work(simulation)
        rows_of_work = (
            work.ttft[chosen] / run.e2e_s[chosen, None],
            work.tpot[chosen] / run.tpot_s[chosen, None],
        )
        errors = _errors(run, simulation.table, chosen)
        return np.concatenate(rows_of_work) * scale_s, errors, simulation

    best = _refine(residuals, _solve_in_rounds(lambda relative: linear(relative)[:2]))
    work, left, simulation = linear(best)
    return Calibration(
        coefficients_s=best * scale_s,
        standard_errors_s=_standard_errors(work, left) * scale_s,
        fitted_rows=chosen,
        simulation=simulation,
    )


def trace_of(run: ServedRun) -> Trace:
    """Return the requests of a served run as a trace."""
    return Trace(run.prompt_tokens, run.output_tokens, run.arrival_s, source=run.source)


def _first_guess(run: ServedRun) -> np.ndarray:
    """Return coefficients of a likely magnitude, from the run's fastest tokens.

    The fastest TPOT is mostly the fixed time. A thousand prompt tokens take about
    three times as much, a hundred decoding requests or a hundred thousand tokens of
    context about as much.
    """
    tpot_s = float(np.nanquantile(run.tpot_s, 0.05))
    return tpot_s * np.array([1.0, 3e-3, 1e-7, 1e-2, 1e-5])


def _errors(run: ServedRun, times: RequestTimes, rows: np.ndarray) -> np.ndarray:
    """Return the errors of TTFT, then of TPOT, shape (2 * requests,)."""
    ttft = (times.ttft_s[rows] - run.ttft_s[rows]) / run.e2e_s[rows]
    tpot = times.tpot_s[rows] / run.tpot_s[rows] - 1
    return np.concatenate([ttft, tpot])


def _solve_in_rounds(
    linear: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Solve for the coefficients, simulate with them, repeat; return the best."""
    relative = np.ones(len(NAMES))
    rounds: list[tuple[float, np.ndarray]] = []
    for _ in range(_ROUNDS):
        work, left = linear(relative)
        rounds.append((float(np.log1p((left / _OUTLIER) ** 2).sum()), relative))
        # Early rounds are wrong everywhere: a fixed outlier limit would discard all.
        spread = max(1.5 * float(np.median(np.abs(left))), 1e-3)
        weight = 1 / np.sqrt(1 + (left / spread) ** 2)
        # Simulated less its error is measured, here relative to the measured times.
        target = (work @ relative - left) * weight
        solved = np.maximum(scaled_nnls(work * weight[:, None], target), 1e-6)
        relative = relative + _DAMPING * (solved - relative)
    return min(rounds, key=lambda loss_and_relative: loss_and_relative[0])[1]


def _refine(
    residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray
) -> np.ndarray:
    """Return the nearest least squares: first over long steps, then over short ones."""
    # A step is a share of the coefficient: from zero it could not move.
    start = np.maximum(start, _LEAST_RELATIVE)
    for step in _RELATIVE_STEPS:
        solution = optimize.least_squares(
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
        start = np.asarray(solution.x)
    return start


def _standard_errors(work: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return standard errors, (5,); infinite where nothing depends on a coefficient.

    Requests in a queue share their delays, so their errors are correlated: they are
    summed over ten stretches of the run before their spread is taken (a block
    jackknife). To each direction 0.4 % is added, within which no engine repeats itself.

    ``left`` are the errors of TTFT, then of TPOT, shape (2 * requests,), and ``work``
    their derivatives, shape (2 * requests, 5).
    """
    weight = 1 / (1 + (left / _OUTLIER) ** 2)
    requests = len(left) // 2
    stretch = np.tile(np.arange(requests) * _STRETCHES // requests, 2)
    _, singular, directions = np.linalg.svd(
        work * np.sqrt(weight)[:, None], full_matrices=False
    )
    # Directions in which the run does not change are left out of the inverse; every
    # coefficient that has a part in one of them is undetermined.
    known = singular > 1e-9 * singular[0]
    seen = directions[known]
    pulls = np.zeros((_STRETCHES, known.sum()))
    np.add.at(pulls, stretch, (left * weight)[:, None] * (work @ seen.T))
    pulls /= singular[known] ** 2
    shared = pulls.T @ pulls * _STRETCHES / (_STRETCHES - 1)
    shared += np.diag((_REPEATS / singular[known]) ** 2)
    variance = np.einsum("ij,ik,kj->j", seen, shared, seen)
    variance[(directions[~known] ** 2 > 1e-9).any(axis=0)] = np.inf
    return np.sqrt(variance)
