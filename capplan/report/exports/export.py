"""A deployment of a plan: its files, and what is to be known of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from capplan.errors import InputError
from capplan.report.exports.planned import RANKS, Planned, PlannedPool, check_repository
from capplan.shipped import own_version

Document = Mapping[str, Any]

API_SERVERS = "--api-server-count"
"""Flag of ``vllm serve`` that says nothing of its engine."""
_IMAGE = re.compile(
    r"[A-Za-z0-9][\w./-]*(:\d+/[\w./-]+)?(:[\w.-]+|@sha256:[0-9a-f]{64})?"
)


_OF_ONE_POOL = "k8s, compose, skypilot, lws, "
"""Targets that start ranks, and have no proxy."""


@dataclass(frozen=True)
class Export:
    """Files of a deployment."""

    # documents of YAML by the name of their file, or the text of a script
    files: Mapping[str, Sequence[Document] | str]
    lacks: tuple[str, ...] = ()  # what of the plan the target cannot express
    needs: tuple[str, ...] = ()  # before it runs
    unverified: tuple[str, ...] = ()  # names and tags that nobody looked up
    told: tuple[str, ...] = ()  # on the terminal, beside the names of files
    kind: str = "deployment"  # what the files are


class Given(NamedTuple):
    """What a target writes: a plan that it can express."""

    planned: Planned
    image: str  # of the container; empty for the target's own
    router: str | None  # the target's name of the plan's; None where it has none
    lacks: tuple[str, ...]  # of the plan's router and rebalancer


@dataclass(frozen=True)
class Target:
    """A target of ``capplan export``: what it can express, and how it is written."""

    write: Callable[[Given], Export]
    image: str | None = None  # by default, see ``Given``; None: its files name none
    has_proxy: bool = True  # sends a prompt to a prefill, then to a decode replica
    has_ranks: bool = True  # is known to start ranks that step together on a node
    has_nodes: bool = False  # a replica may span several
    is_local: bool = False  # serves any checkpoint, not only what containers can fetch
    routers: Mapping[str, str] = field(default_factory=dict)  # its names by capplan's
    otherwise: str = ""  # what it does in place of the plan's router

    def given(self, planned: Planned, target: str, image: str | None) -> Given:
        """Return what the target of this name is to write."""
        if image is not None and self.image is None:
            raise InputError(f"--image has no effect on --to {target}")
        if planned.is_disaggregated and not self.has_proxy:
            raise InputError(
                f"{planned.path}: prefill and decode are disaggregated, and {target} "
                "has no proxy that sends a prompt to a prefill replica, then to a "
                "decode replica; expected --to llm-d, kserve, dynamo or ray"
            )
        self._check_ranks_and_nodes(planned, target)
        if not self.is_local:
            check_repository(planned)
        if image is not None and not _IMAGE.fullmatch(image):
            raise InputError(f"--image {image}: expected NAME:TAG")
        router, lacks = self._routed(planned)
        return Given(planned, image or self.image or "", router, lacks)

    def _check_ranks_and_nodes(self, planned: Planned, target: str) -> None:
        """Refuse ranks, and replicas on several nodes, that the target cannot start."""
        for pool in planned.pools:
            of_ranks, nodes = pool.ranks > 1, pool.nodes_per_replica
            if of_ranks and not self.has_ranks:
                others = "" if planned.is_disaggregated else _OF_ONE_POOL
                raise InputError(
                    f"{planned.path}: its replicas are of ranks that step together "
                    f"({RANKS}), and whether {target} starts those is not known; "
                    f"expected --to {others}kserve, llm-d or vllm"
                )
            if of_ranks and nodes > 1:
                raise InputError(
                    f"{planned.path}: ranks that step together on {nodes} nodes need "
                    "an address of the first and a start rank on each "
                    "(--data-parallel-address, --data-parallel-start-rank), which no "
                    "target has; start them by hand"
                )
            if nodes > 1 and not self.has_nodes:
                raise InputError(
                    f"{planned.path}: a replica of {pool.gpus} GPUs spans {nodes} "
                    f"nodes of {pool.gpus_per_node}, which {target} cannot say; "
                    "expected --to lws or vllm"
                )

    def _routed(self, planned: Planned) -> tuple[str | None, tuple[str, ...]]:
        """Return its name of the plan's router, and what of routing it lacks."""
        if not self.otherwise:
            return None, ()
        name, lacks = planned.router.partition(":")[0], []
        if name not in self.routers:
            lacks.append(
                f"the plan's router {planned.router}: {self.otherwise}, which was not "
                "simulated"
            )
        if planned.rebalancer is not None:
            lacks.append(
                f"the plan's rebalancer {planned.rebalancer}: requests stay where they "
                "are"
            )
        return self.routers.get(name), tuple(lacks)


def no_api_servers(planned: Planned, frontend: str) -> tuple[str, ...]:
    """Return that a target's own frontend stands for several API servers of vLLM."""
    are_given = any(API_SERVERS in pool.launch.flags for pool in planned.pools)
    return (f"{API_SERVERS}: {frontend} takes the requests",) * are_given


def node_needs(pool: PlannedPool) -> str:
    """Return what nodes a pool needs."""
    per = pool.gpus // pool.nodes_per_replica
    size = "the plan does not know the size of nodes"
    if pool.gpus_per_node:
        which = f": {pool.node}" if pool.node else ""
        size = f"planned on nodes of {pool.gpus_per_node}{which}"
    return (
        f"{pool.replica_count * pool.nodes_per_replica} times {per} free {pool.gpu} on "
        f"one node ({size})"
    )


def nodes_needed(planned: Planned) -> tuple[str, ...]:
    """Return what nodes each pool needs."""
    return tuple(map(node_needs, planned.pools))


class _Dumper(yaml.SafeDumper):
    """YAML without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return that a value that appears twice is written twice."""
        return True


def text_of(export: Export, planned: Planned, target: str) -> dict[str, str]:
    """Return the text of each file, which begins with what it rests on."""
    lines = [
        f"A {export.kind} of {planned.checkpoint} ({target}), by capplan "
        f"{own_version()} from a plan with SHA-256 {planned.sha256}.",
        *(f"assumed: {line}" for line in planned.assumed),
        *(f"not in this file: {line}" for line in export.lacks),
        *(f"needs: {line}" for line in export.needs),
        *(f"not verified: {line}" for line in export.unverified),
    ]
    header = "".join(f"# {_one_line(line)}\n" for line in lines)
    texts = {}
    for name, content in export.files.items():
        if isinstance(content, str):
            start, _, rest = content.partition("\n")
            is_script = start.startswith("#!")
            texts[name] = f"{start}\n{header}{rest}" if is_script else content
        else:
            texts[name] = header + yaml.dump_all(
                content,
                Dumper=_Dumper,
                sort_keys=False,
                allow_unicode=True,
                width=10_000,
            )
    return texts


def _one_line(text: str) -> str:
    """Return a text of a plan as one line of a comment."""
    return "".join(x for x in " ".join(text.split()) if x.isprintable())
