"""Split a workload over GPU types at the least cost: Mélange's allocation problem.

Griggs et al., "Mélange: Cost Efficient Large Language Model Serving by Exploiting GPU
Heterogeneity", arXiv:2404.14527, section 5. Requests are bucketed by length; the
rate of a bucket is divided into equal slices, each for one GPU type. Slices of a bucket
are identical, so an integer per (bucket, GPU type) replaces a binary per slice and
avoids its symmetry.
"""

import json
import math
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np

from capplan.errors import InputError, SolverError
from capplan.placement.result import Status


@dataclass(frozen=True, eq=False)
class MixProblem:
    """Buckets of requests and the GPU types that could serve them.

    Raises
    ------
    InputError
        When shapes or values do not fit, or a bucket fits no GPU type.
    """

    requests_per_s: np.ndarray  # rate of each bucket, (buckets,) [requests/s]
    gpus: tuple[str, ...]  # names of the GPU types
    usd_per_h: np.ndarray  # price of one GPU of each type, (gpus,) [$/h]
    # Requests of a bucket that one GPU of a type serves within the SLO, 0 if none,
    # (buckets, gpus) [requests/s]
    capacity_per_s: np.ndarray
    slices: int = 4  # of each bucket

    def __post_init__(self) -> None:
        """Check shapes, values and that every bucket fits a GPU type."""
        shape = (len(self.requests_per_s), len(self.gpus))
        if np.shape(self.capacity_per_s) != shape or not self.gpus:
            raise InputError(
                f"capacity_per_s has shape {np.shape(self.capacity_per_s)}; "
                f"expected (buckets, GPU types) = {shape}"
            )
        for name in ("requests_per_s", "usd_per_h", "capacity_per_s"):
            values = np.asarray(getattr(self, name), np.float64)
            if not (np.isfinite(values) & (values >= 0)).all():
                raise InputError(f"{name} holds a value that is not >= 0")
            object.__setattr__(self, name, values)
        if self.slices < 1:
            raise InputError(f"slices is {self.slices}; expected >= 1")
        wanted = self.requests_per_s > 0
        unserved = wanted & ~(self.capacity_per_s > 0).any(axis=1)
        if unserved.any():
            raise InputError(
                f"bucket {int(np.flatnonzero(unserved)[0])} fits no GPU type; expected "
                "a capacity above 0 for one of them"
            )


@dataclass(frozen=True, eq=False)
class Mix:
    """GPUs of each type and the slices they serve; None without a solution."""

    status: Status  # optimal only when proven
    gpu_count: np.ndarray | None  # GPUs of each type, (gpus,)
    slices: np.ndarray | None  # of a bucket on a type, (buckets, gpus)
    usd_per_h: float | None  # cost [$/h]
    lower_bound_usd_per_h: float  # on the cost [$/h]
    runtime_s: float  # wall time [s]

    @property
    def gap(self) -> float:
        """Relative gap between cost and lower bound."""
        if not self.usd_per_h:
            return float("nan")
        return max(1 - self.lower_bound_usd_per_h / self.usd_per_h, 0.0)


def allocate_mix(
    problem: MixProblem, solver: str = "scip", time_limit_s: float = 60.0
) -> Mix:
    """Return the cheapest GPUs that serve all slices.

    Parameters
    ----------
    problem
        Buckets and GPU types.
    solver
        "scip" or "highs"; CP-SAT cannot take fractions of a GPU.
    time_limit_s
        Time after which the best mix known is returned with its gap. [s]

    Raises
    ------
    InputError
        When there is no such solver.
    SolverError
        When the solver is missing or fails.
    """
    try:
        from ortools.math_opt.python import mathopt
    except ImportError as error:
        raise SolverError(f"{solver} cannot be loaded: {error}") from error
    kinds = {"scip": mathopt.SolverType.GSCIP, "highs": mathopt.SolverType.HIGHS}
    if solver not in kinds:
        raise InputError(f"no solver {solver!r} for a mix; expected scip or highs")
    start = time.perf_counter()
    model = mathopt.Model(name="mix")
    count = [model.add_integer_variable(lb=0, name=f"n_{gpu}") for gpu in problem.gpus]
    # Slices of a bucket on a type; none where the type serves no request of the bucket.
    part: dict[tuple[int, int], object] = {}
    terms: list[list[object]] = [[] for _ in problem.gpus]
    for bucket, rate in enumerate(problem.requests_per_s.tolist()):
        if rate == 0:
            continue
        for gpu in np.flatnonzero(problem.capacity_per_s[bucket] > 0).tolist():
            variable = model.add_integer_variable(
                lb=0, ub=problem.slices, name=f"s_{bucket}_{gpu}"
            )
            part[bucket, gpu] = variable
            # Load of one slice: the share of a GPU of this type that it takes.
            share = rate / (problem.slices * problem.capacity_per_s[bucket, gpu])
            terms[gpu].append(share * variable)
        parts = [v for (b, _), v in part.items() if b == bucket]
        model.add_linear_constraint(mathopt.fast_sum(parts) == problem.slices)
    for gpu, loads in enumerate(terms):
        model.add_linear_constraint(mathopt.fast_sum(loads) <= count[gpu])
    costs = [p * n for p, n in zip(problem.usd_per_h.tolist(), count, strict=True)]
    model.minimize(mathopt.fast_sum(costs))
    parameters = mathopt.SolveParameters(
        time_limit=timedelta(seconds=time_limit_s), relative_gap_tolerance=0.0
    )
    try:
        result = mathopt.solve(model, kinds[solver], params=parameters)
    except (RuntimeError, ValueError) as error:
        raise SolverError(f"{solver} failed: {error}") from error
    runtime_s = time.perf_counter() - start
    bound = max(float(result.termination.objective_bounds.dual_bound), 0.0)
    if not result.has_primal_feasible_solution():
        return Mix(Status.UNKNOWN, None, None, None, bound, runtime_s)
    slices = np.zeros(problem.capacity_per_s.shape, np.int64)
    for (bucket, gpu), variable in part.items():
        slices[bucket, gpu] = round(result.variable_values(variable))
    # Counted from whole slices: the solver keeps its rows only within a tolerance.
    gpu_count = gpus_for(problem, slices)
    usd_per_h = float(problem.usd_per_h @ gpu_count)
    proven = result.termination.reason == mathopt.TerminationReason.OPTIMAL
    # Optimal is said only where the cost found meets the bound itself.
    proven = proven and usd_per_h <= bound * (1 + 1e-6) + 1e-9
    status = Status.OPTIMAL if proven else Status.FEASIBLE
    return Mix(status, gpu_count, slices, usd_per_h, bound, runtime_s)


def gpus_for(problem: MixProblem, slices: np.ndarray) -> np.ndarray:
    """Return the GPUs of each type that an allocation needs, shape (gpus,).

    Raises
    ------
    InputError
        When slices are missing or on a type that cannot serve their bucket.
    """
    wanted = np.where(problem.requests_per_s > 0, problem.slices, 0)
    if (slices.sum(axis=1) != wanted).any():
        raise InputError("slices do not sum to each bucket's number")
    if (slices[problem.capacity_per_s == 0] > 0).any():
        raise InputError("a slice is on a GPU type that cannot serve its bucket")
    rate = slices * problem.requests_per_s[:, None] / problem.slices
    load = np.zeros(slices.shape)
    np.divide(rate, problem.capacity_per_s, out=load, where=rate > 0)
    # Exact sums, so that slices which fill a GPU do not open another by rounding.
    totals = [math.fsum(column) for column in load.T]
    return np.array([math.ceil(total - 1e-9) for total in totals])


def read_mix(path: Path, requests_per_s: float, slices: int) -> MixProblem:
    """Read the problem from a JSON file of bucket shares and GPU types.

    The file has ``share_of_requests`` (input buckets × output buckets) and ``gpus``
    (name to ``usd_per_h`` and ``requests_per_s`` by bucket).

    Parameters
    ----------
    path
        The file.
    requests_per_s
        Rate over all buckets. [requests/s]
    slices
        Slices of each bucket.

    Raises
    ------
    InputError
        When the file cannot be read or lacks a key.
    """
    try:
        content = json.loads(path.read_text())
        gpus = content["gpus"]
        share = np.array(content["share_of_requests"], np.float64)
        capacity = np.array([gpu["requests_per_s"] for gpu in gpus.values()], float)
        prices = np.array([gpu["usd_per_h"] for gpu in gpus.values()], float)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: malformed: {error}") from error
    except KeyError as error:
        raise InputError(f"{path}: {error} is missing") from error
    return MixProblem(
        share.ravel() * requests_per_s,
        tuple(gpus),
        prices,
        capacity.reshape(len(gpus), -1).T,
        slices,
    )
