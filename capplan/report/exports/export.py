"""A deployment of a plan: its files, and what is to be known of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from capplan.errors import InputError
from capplan.report.exports.planned import RANKS, Planned, PlannedPool
from capplan.shipped import own_version

Document = Mapping[str, Any]

API_SERVERS = "--api-server-count"
"""Flag of ``vllm serve`` that says nothing of its engine."""
_IMAGE = re.compile(
    r"[A-Za-z0-9][\w./-]*(:\d+/[\w./-]+)?(:[\w.-]+|@sha256:[0-9a-f]{64})?"
)


@dataclass(frozen=True)
class Export:
    """Files of a deployment."""

    # documents of YAML by the name of their file, or the text of a script
    files: Mapping[str, Sequence[Document] | str]
    lacks: tuple[str, ...] = ()  # what of the plan the target cannot express
    needs: tuple[str, ...] = ()  # before it runs
    unverified: tuple[str, ...] = ()  # names and tags that nobody looked up


def image_of(given: str | None, default: str) -> str:
    """Return the container image."""
    if given is not None and not _IMAGE.fullmatch(given):
        raise InputError(f"--image {given}: expected NAME:TAG")
    return given or default


def refuse_image(given: str | None, target: str) -> None:
    """Refuse an image for a target whose files name none."""
    if given is not None:
        raise InputError(f"--image has no effect on --to {target}")


def one_pool(planned: Planned, target: str) -> PlannedPool:
    """Return the only pool; two are refused by a target that has no proxy for them."""
    if planned.is_disaggregated:
        raise InputError(
            f"{planned.path}: prefill and decode are disaggregated, and {target} has "
            "no proxy that sends a prompt to a prefill replica, then to a decode "
            "replica; expected --to llm-d, kserve, dynamo or ray"
        )
    return planned.pool


def one_node(planned: Planned, target: str) -> None:
    """Refuse a replica that spans nodes, where the target has one node for each."""
    one_node_of_ranks(planned)
    for pool in planned.pools:
        if pool.nodes_per_replica > 1:
            raise InputError(
                f"{planned.path}: a replica of {pool.gpus} GPUs spans "
                f"{pool.nodes_per_replica} nodes of {pool.gpus_per_node}, which "
                f"{target} cannot say; expected --to lws or vllm"
            )


def no_ranks(planned: Planned, target: str) -> None:
    """Refuse ranks that step together, where a target was not found to start them."""
    if any(pool.ranks > 1 for pool in planned.pools):
        others = "" if planned.is_disaggregated else "k8s, compose, skypilot, lws, "
        others += "kserve, llm-d or vllm"
        raise InputError(
            f"{planned.path}: its replicas are of ranks that step together ({RANKS}), "
            f"and whether {target} starts those is not known; expected --to {others}"
        )


def one_node_of_ranks(planned: Planned) -> None:
    """Refuse ranks that step together on several nodes, which no target starts."""
    for pool in planned.pools:
        if pool.ranks > 1 and pool.nodes_per_replica > 1:
            raise InputError(
                f"{planned.path}: ranks that step together on "
                f"{pool.nodes_per_replica} nodes need an address of the first and a "
                "start rank on each (--data-parallel-address, "
                "--data-parallel-start-rank), which no target has; start them by hand"
            )


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


def routed(
    planned: Planned, known: Mapping[str, str], otherwise: str
) -> tuple[str | None, tuple[str, ...]]:
    """Return a target's name of the plan's router, and what it lacks where it has none.

    ``known`` has the target's names by capplan's; ``otherwise`` says what it does.
    """
    name, lacks = planned.router.partition(":")[0], []
    if name not in known:
        lacks.append(
            f"the plan's router {planned.router}: {otherwise}; what it attains is not "
            "simulated"
        )
    if planned.rebalancer is not None:
        lacks.append(
            f"the plan's rebalancer {planned.rebalancer}: requests stay where they are"
        )
    return known.get(name), tuple(lacks)


class _Dumper(yaml.SafeDumper):
    """YAML without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return that a value that stands twice is written twice."""
        return True


def text_of(export: Export, planned: Planned, target: str) -> dict[str, str]:
    """Return the text of each file, which begins with what it rests on."""
    lines = [
        f"A deployment of {planned.checkpoint} ({target}), by capplan "
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
            texts[name] = f"{start}\n{header}{rest}"
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
