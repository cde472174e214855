"""The state of groups: times that all ranks share, and the rules between them."""

from collections.abc import Sequence

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.rank_tables import RankTables
from capplan.simulator.group_queue import BALANCES
from capplan.simulator.state import Shared, State

SYNC_INTERVAL = 16
"""Steps after which ranks agree whether any has work: vLLM's ``dp_sync_interval``."""
SCHEDULERS = ("vllm-v1", "sglang")
"""Schedulers whose engines have ranks."""


def check_ranks(engine: EngineSettings, tables: RankTables | None) -> None:
    """Refuse ranks of which the engine, or the latency, knows nothing."""
    ranks = engine.data_parallel_size
    if ranks < 1:
        raise InputError(f"data_parallel_size is {ranks}; expected >= 1")
    if engine.dp_balance not in BALANCES:
        raise InputError(
            f"dp_balance is {engine.dp_balance!r}; expected one of "
            f"{', '.join(BALANCES)}"
        )
    if tables is None:
        if ranks > 1:
            raise InputError(
                f"data_parallel_size is {ranks}, and the latency is not of ranks that "
                "step together; expected a profile of them"
            )
        return
    if tables.ranks != ranks:
        raise InputError(
            f"data_parallel_size is {ranks}, and the latency is of {tables.ranks} "
            "ranks; expected as many"
        )
    if engine.scheduler.name not in SCHEDULERS:
        raise InputError(
            f"scheduler {engine.scheduler.name} with data_parallel_size {ranks} is not "
            f"modelled; expected {' or '.join(SCHEDULERS)}"
        )


def with_groups(
    state: State,
    engine: EngineSettings,
    tables: RankTables,
    graph_sizes: Sequence[int],
) -> State:
    """Return a state whose replicas are groups of ranks."""
    row = state.engine[0]
    row.ranks = tables.ranks
    row.tokens_per_request = tables.tokens_per_request
    row.largest_graph = max(graph_sizes, default=0)
    row.balance = BALANCES.index(engine.dp_balance)
    row.sync_interval = SYNC_INTERVAL if tables.ranks > 1 else 1
    row.prefill_interval = engine.prefill_schedule_interval
    return state._replace(shared_s=_shared(tables, sorted(graph_sizes)))


def _shared(tables: RankTables, graph_sizes: Sequence[int]) -> np.ndarray:
    """Return the times that all ranks share, by tokens; see ``Shared``."""
    rows = (
        tables.experts_s,
        tables.experts_prefill_s,
        tables.exchange_s,
        tables.exchange_prefill_s,
    )
    shared = np.zeros((len(Shared), max(map(len, rows))))
    for row, values in enumerate(rows):
        shared[row, : len(values)] = values
    if graph_sizes:
        tokens = np.arange(graph_sizes[-1] + 1)
        at = np.searchsorted(graph_sizes, tokens)
        shared[Shared.PADDED, : len(tokens)] = np.array(graph_sizes)[at]
    return shared
