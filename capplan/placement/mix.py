"""Split a workload over GPU types at the least cost: Mélange's allocation problem.

Griggs et al., "Mélange: Cost Efficient Large Language Model Serving by Exploiting GPU
Heterogeneity", arXiv:2404.14527, section 5. Requests are bucketed by length; the
rate of a bucket is divided into equal slices, each for one kind of replica. Slices of a
bucket are identical, so an integer per (bucket, kind) replaces a binary per slice and
avoids its symmetry. Replicas are placed on whole nodes, which are what is paid for.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.fleet.nodes import nodes_for
from capplan.placement.result import Status
from capplan.placement.solvers import math_opt, math_opt_result

_SOLVER = "scip"


@dataclass(frozen=True)
class NodeKind:
    """Nodes that are rented whole."""

    name: str
    gpus: int  # of a node
    usd_per_h: float  # of a node [$/h]
    max_count: int | None = None  # that can be had; None: any number


@dataclass(frozen=True)
class ReplicaKind:
    """Replicas that are alike, on nodes of one kind."""

    name: str
    gpus: int  # of a replica
    node: int  # index of its kind of node


@dataclass(frozen=True, eq=False)
class MixProblem:
    """Buckets of requests and the kinds of replicas that could serve them."""

    requests_per_s: np.ndarray  # rate of each bucket, (buckets,) [requests/s]
    replicas: tuple[ReplicaKind, ...]
    nodes: tuple[NodeKind, ...]
    # Requests of a bucket that one replica of a kind serves within the SLO, 0 if none,
    # (buckets, replicas) [requests/s]
    capacity_per_s: np.ndarray
    slices: int = 4  # of each bucket
    min_replicas: int = 1  # of a kind that is used

    def loads(self, slices: np.ndarray) -> np.ndarray:
        """Return the replicas of each kind that slices fill, (replicas,).

        Exact sums, so that slices which fill a replica do not open another by rounding.
        """
        rate = slices * self.requests_per_s[:, None] / self.slices
        load = np.zeros(slices.shape)
        np.divide(rate, self.capacity_per_s, out=load, where=rate > 0)
        return np.array([math.fsum(column) for column in load.T])

    def nodes_of(self, replica_count: np.ndarray) -> np.ndarray:
        """Return the whole nodes of each kind that replicas take, (nodes,)."""
        counts = []
        for index, node in enumerate(self.nodes):
            placed = [
                (kind.gpus, int(count))
                for kind, count in zip(self.replicas, replica_count, strict=True)
                if kind.node == index and count
            ]
            counts.append(nodes_for(placed, node.gpus)[0] if placed else 0)
        return np.array(counts, np.int64)

    def within_quota(self, replica_count: np.ndarray) -> bool:
        """Return whether the nodes that replicas take can be had."""
        return all(
            node.max_count is None or count <= node.max_count
            for node, count in zip(
                self.nodes, self.nodes_of(replica_count), strict=True
            )
        )

    def usd_per_h(self, replica_count: np.ndarray) -> float:
        """Return what the nodes of replicas cost. [$/h]"""
        usd = np.array([node.usd_per_h for node in self.nodes])
        return float(usd @ self.nodes_of(replica_count))


@dataclass(frozen=True, eq=False)
class Allocation:
    """Replicas of each kind and the slices they serve; None without a solution."""

    status: Status  # optimal only when proven
    replica_count: np.ndarray | None  # of each kind, (replicas,)
    slices: np.ndarray | None  # of a bucket on a kind, (buckets, replicas)
    usd_per_h: float | None  # cost [$/h]
    lower_bound_usd_per_h: float  # on the cost [$/h]
    runtime_s: float  # wall time [s]


def allocate_mix(problem: MixProblem, time_limit_s: float = 60.0) -> Allocation:
    """Return the cheapest nodes whose replicas serve all slices.

    By SCIP, since CP-SAT cannot take fractions of a replica. After the time limit the
    best allocation known is returned with its bound.
    """
    mathopt = math_opt(_SOLVER)
    start = time.perf_counter()
    model = mathopt.Model(name="mix")
    variables = _Variables(model, problem)
    usd = [
        node.usd_per_h * count
        for node, count in zip(problem.nodes, variables.nodes, strict=True)
    ]
    model.minimize(mathopt.fast_sum(usd))
    result = math_opt_result(model, _SOLVER, time_limit_s)
    runtime_s = time.perf_counter() - start
    if result.termination.reason == mathopt.TerminationReason.INFEASIBLE:
        return Allocation(Status.INFEASIBLE, None, None, None, math.inf, runtime_s)
    bound = max(float(result.termination.objective_bounds.dual_bound), 0.0)
    if not result.has_primal_feasible_solution():
        return Allocation(Status.UNKNOWN, None, None, None, bound, runtime_s)
    slices = np.zeros(problem.capacity_per_s.shape, np.int64)
    for (bucket, kind), variable in variables.slices.items():
        slices[bucket, kind] = round(result.variable_values(variable))
    # Counted from whole slices: the solver keeps its rows only within a tolerance.
    replica_count = replicas_for(problem, slices)
    # Largest first, sizes as 4, 3 and 2 GPUs may take more nodes than the solver needs.
    if not problem.within_quota(replica_count):
        return Allocation(Status.UNKNOWN, None, None, None, bound, runtime_s)
    usd_per_h = problem.usd_per_h(replica_count)
    proven = result.termination.reason == mathopt.TerminationReason.OPTIMAL
    # Optimal is said only where the cost found meets the bound itself.
    proven = proven and usd_per_h <= bound * (1 + 1e-6) + 1e-9
    status = Status.OPTIMAL if proven else Status.FEASIBLE
    return Allocation(status, replica_count, slices, usd_per_h, bound, runtime_s)


class _Variables:
    """Integers of a model, with the rows that tie them."""

    def __init__(self, model: Any, problem: MixProblem) -> None:
        from ortools.math_opt.python import mathopt

        self.nodes = [
            model.add_integer_variable(
                lb=0,
                ub=math.inf if node.max_count is None else node.max_count,
                name=f"nodes_{node.name}",
            )
            for node in problem.nodes
        ]
        replicas = [
            model.add_integer_variable(lb=0, name=f"n_{kind.name}")
            for kind in problem.replicas
        ]
        # Slices of a bucket on a kind; none where it serves no request of the bucket.
        self.slices: dict[tuple[int, int], Any] = {}
        terms: list[list[Any]] = [[] for _ in problem.replicas]
        for bucket, rate in enumerate(problem.requests_per_s.tolist()):
            if rate == 0:
                continue
            parts = []
            for kind in np.flatnonzero(problem.capacity_per_s[bucket] > 0).tolist():
                variable = model.add_integer_variable(
                    lb=0, ub=problem.slices, name=f"s_{bucket}_{kind}"
                )
                self.slices[bucket, kind] = variable
                parts.append(variable)
                # Load of one slice: the share of a replica of this kind that it takes.
                capacity = problem.capacity_per_s[bucket, kind]
                terms[kind].append(rate / (problem.slices * capacity) * variable)
            model.add_linear_constraint(mathopt.fast_sum(parts) == problem.slices)
        for kind, loads in enumerate(terms):
            model.add_linear_constraint(mathopt.fast_sum(loads) <= replicas[kind])
        self._place(model, problem, replicas)
        if problem.min_replicas > 1:
            self._fewest(model, problem, replicas)

    def _place(self, model: Any, problem: MixProblem, replicas: list[Any]) -> None:
        """Ask for as many nodes as hold the replicas of all sizes together."""
        from ortools.math_opt.python import mathopt

        for index, (node, count) in enumerate(
            zip(problem.nodes, self.nodes, strict=True)
        ):
            placed = [
                (kind.gpus, n)
                for kind, n in zip(problem.replicas, replicas, strict=True)
                if kind.node == index
            ]
            for part in range(1, node.gpus + 1):
                taken = [_half_parts(gpus, node.gpus, part) * n for gpus, n in placed]
                most = _half_parts(node.gpus, node.gpus, part)
                model.add_linear_constraint(mathopt.fast_sum(taken) <= most * count)

    def _fewest(self, model: Any, problem: MixProblem, replicas: list[Any]) -> None:
        """Ask for so many replicas of each kind that serves a slice."""
        used = [
            model.add_binary_variable(name=f"used_{kind.name}")
            for kind in problem.replicas
        ]
        for (_, kind), variable in self.slices.items():
            model.add_linear_constraint(variable <= problem.slices * used[kind])
        for kind, n in enumerate(replicas):
            model.add_linear_constraint(n >= problem.min_replicas * used[kind])


def _half_parts(gpus: int, node_gpus: int, part: int) -> int:
    """Return twice the parts of a node that a replica takes, of ``part`` GPUs each.

    More than half a node takes all parts but those that fit beside it, half a node half
    of them: no node holds replicas of more parts than its own. This is f_CCM,1 of
    Clautiaux et al., "A survey of dual-feasible and superadditive functions", Annals of
    Operations Research 179 (2010). Where replicas are no larger than a node and their
    sizes divide one another, the rows of all parts ask for exactly the nodes they take.
    """
    whole, rest = divmod(gpus, node_gpus)
    parts = node_gpus // part
    if 2 * rest == node_gpus:
        return 2 * parts * whole + parts
    if 2 * rest > node_gpus:
        return 2 * (parts * (whole + 1) - (node_gpus - rest) // part)
    return 2 * (parts * whole + rest // part)


def replicas_for(problem: MixProblem, slices: np.ndarray) -> np.ndarray:
    """Return the replicas of each kind that an allocation needs, shape (replicas,)."""
    wanted = np.where(problem.requests_per_s > 0, problem.slices, 0)
    if (slices.sum(axis=1) != wanted).any():
        raise InputError("slices do not sum to each bucket's number")
    counts = [math.ceil(total - 1e-9) for total in problem.loads(slices)]
    fewest = np.where(slices.any(axis=0), problem.min_replicas, 0)
    return np.maximum(counts, fewest).astype(np.int64)
