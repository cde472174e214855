"""What a deployment takes from a plan."""

import math
import re
from dataclasses import dataclass

from capplan.errors import InputError
from capplan.planning.autoscale.known_to_policies import SHARE
from capplan.planning.configure.launch import Launch
from capplan.planning.evaluate.replica_load import ReplicaLoad

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
"""A Hugging Face repository, as in ``meta-llama/Llama-3.1-8B``."""
TP, RANKS, STAGES = (
    "--tensor-parallel-size",
    "--data-parallel-size",
    "--pipeline-parallel-size",
)
"""Flags of the degrees, whose product is the GPUs of a replica."""


@dataclass(frozen=True)
class PlannedPool:
    """Replicas of one kind."""

    role: str  # PREFILL or DECODE of two pools; empty of one
    gpu: str
    gpus: int  # of a replica, of all its ranks
    replica_count: int
    node: str  # that its price is of, with its provider; empty where not known
    gpus_per_node: int | None  # of that node; None: not known
    max_num_seqs: int  # most requests running at once on a replica
    launch: Launch
    weight_bytes: float | None  # of a replica [bytes]
    cold_start_s: float  # from a replica's order to its first request [s]
    assumed: tuple[str, ...]  # parts of it that rest on a default

    @property
    def tp(self) -> int:
        """Tensor-parallel degree of a rank or stage."""
        return self._degree(TP)

    @property
    def ranks(self) -> int:
        """Ranks of a replica that step together."""
        return self._degree(RANKS)

    def _degree(self, flag: str) -> int:
        return int(self.launch.flags.get(flag) or 1)

    @property
    def nodes_per_replica(self) -> int:
        """Nodes that a replica spans; 1 where their size is not known."""
        return math.ceil(self.gpus / (self.gpus_per_node or self.gpus))


@dataclass(frozen=True)
class Planned:
    """The best candidate of a plan, as deployments need it."""

    sha256: str  # of the file
    path: str
    is_fetched: bool  # whether the checkpoint has a name, no path of this machine
    pools: tuple[PlannedPool, ...]  # one, or those of PREFILL and DECODE
    router: str
    rebalancer: str | None  # that moves requests between replicas
    rate_per_s: float  # of the requests [requests/s]
    e2e_p99_s: float  # of the requests [s]
    most_replicas: int  # that an autoscaler may have, of one pool
    sustained: ReplicaLoad | None  # of a replica within the SLO; None: not measured
    assumed: tuple[str, ...]  # what the plan rests on, a line each

    @property
    def pool(self) -> PlannedPool:
        """Its only pool, or the one that decodes."""
        return self.pools[-1]

    @property
    def is_disaggregated(self) -> bool:
        """Whether prefill and decode are disaggregated."""
        return len(self.pools) > 1

    @property
    def checkpoint(self) -> str:
        """The checkpoint that all replicas serve."""
        return self.pool.launch.checkpoint

    @property
    def name(self) -> str:
        """The checkpoint as a DNS label, for the names of resources."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.checkpoint.rsplit("/", 1)[-1].lower())
        return f"llm-{plain}"[:40].strip("-")

    @property
    def target_in_flight(self) -> float | None:
        """Requests in flight on a replica that an autoscaler aims at."""
        return None if self.sustained is None else SHARE * self.sustained.in_flight

    @property
    def target_per_s(self) -> float | None:
        """Requests per second of a replica that an autoscaler aims at."""
        return None if self.sustained is None else SHARE * self.sustained.rate_per_s


def check_repository(planned: Planned) -> None:
    """Refuse a checkpoint that a container cannot fetch."""
    if planned.is_fetched and REPOSITORY.fullmatch(planned.checkpoint):
        return
    raise InputError(
        f"{planned.path}: serves {planned.checkpoint}, which is no Hugging Face "
        "repository that a container can fetch; give --checkpoint ORGANISATION/NAME"
    )
