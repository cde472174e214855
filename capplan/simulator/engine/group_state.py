"""The state of groups: times that all ranks share, and the rules between them."""

from collections.abc import Sequence

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.rank_tables import RankTables
from capplan.simulator.engine.group_queue import BALANCES
from capplan.simulator.state import Shared, State

SYNC_INTERVAL = 16
"""Steps after which ranks agree whether any has work: vLLM's ``dp_sync_interval``."""
READ_SCHEDULERS = ("best-fit", "dynamo-kv", "llumnix")
"""Routers that read more of a replica than its counts, for which a group has no sum."""


def check_ranks(engine: EngineSettings, tables: RankTables | None) -> None:
    """Refuse ranks of which the engine or the latency knows nothing."""
    ranks, interval = engine.data_parallel_size, engine.prefill_schedule_interval
    if engine.dp_balance not in BALANCES:
        raise InputError(
            f"dp_balance is {engine.dp_balance!r}; expected one of "
            f"{', '.join(BALANCES)}"
        )
    if interval > 1 and ranks == 1:
        raise InputError(
            f"prefill_schedule_interval {interval} is for ranks of vLLM that take "
            "prompts together; expected data_parallel_size above 1"
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
    if tables.tokens_per_request > 1 and engine.speculation is None:
        raise InputError(
            f"the latency is of {tables.tokens_per_request} tokens per request and "
            "iteration, and the engine drafts none; expected times of one token"
        )


def with_groups(
    state: State,
    engine: EngineSettings,
    tables: RankTables,
    graph_sizes: Sequence[int],
) -> State:
    """Return a state whose replicas are groups of ranks."""
    row = state.engine[0]
    most = max(engine.max_num_batched_tokens, *graph_sizes, 0)
    if min(len(tables.experts_s), len(tables.experts_prefill_s)) <= tables.ranks * most:
        raise InputError(
            f"the experts' times are not known to {tables.ranks * most} tokens, "
            f"{most} of each rank; expected tables that long"
        )
    if min(len(tables.exchange_s), len(tables.exchange_prefill_s)) <= most:
        raise InputError(
            f"the exchange's times are not known to {most} tokens of a rank; expected "
            "tables that long"
        )
    row.ranks = tables.ranks
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
