"""The state of groups: times that all ranks share, and the rules between them."""

from collections.abc import Sequence

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.rank_tables import RankTables
from capplan.simulator.engine.group_queue import BALANCES
from capplan.simulator.hand_offs import computes_last_again, parse_hand_off
from capplan.simulator.routers import parse_router
from capplan.simulator.state import Shared, State

SYNC_INTERVAL = 16
"""Steps after which ranks agree whether any has work: vLLM's ``dp_sync_interval``."""
SCHEDULERS = ("vllm-v1", "sglang", "trtllm")
"""Schedulers whose engines have ranks."""
READ_SCHEDULERS = ("best-fit", "dynamo-kv", "llumnix")
"""Routers that read more of a replica than its counts, for which a group has no sum."""


def check_ranks(
    engine: EngineSettings,
    tables: RankTables | None,
    router: str,
    *,
    moves: bool,
    hand_off: str = "",
) -> None:
    """Refuse ranks of which the engine, the latency or the fleet knows nothing.

    ``moves``: requests are held to a beat, or move between replicas, by more than a
    hand-off of prompts.
    """
    ranks = engine.data_parallel_size
    if ranks < 1:
        raise InputError(f"data_parallel_size is {ranks}; expected >= 1")
    if engine.dp_balance not in BALANCES:
        raise InputError(
            f"dp_balance is {engine.dp_balance!r}; expected one of "
            f"{', '.join(BALANCES)}"
        )
    interval = engine.prefill_schedule_interval
    if interval < 1:
        raise InputError(f"prefill_schedule_interval is {interval}; expected >= 1")
    if interval > 1 and (ranks == 1 or engine.scheduler.name != "vllm-v1"):
        raise InputError(
            f"prefill_schedule_interval {interval} is for ranks of vLLM that take "
            "prompts together; expected data_parallel_size above 1 and vllm-v1"
        )
    if interval > 1 and engine.speculation is not None:
        raise InputError(
            f"prefill_schedule_interval {interval} with speculative decoding is not "
            "modelled; expected 1"
        )
    if engine.decode_context_parallel_size > 1 and ranks > 1:
        raise InputError(
            f"decode context parallelism with data_parallel_size {ranks} is not "
            "modelled; expected one of them"
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
    if engine.scheduler.name not in SCHEDULERS:
        raise InputError(
            f"scheduler {engine.scheduler.name} with data_parallel_size {ranks} is not "
            f"modelled; expected {', '.join(SCHEDULERS)}"
        )
    name = parse_router(router).name
    if name in READ_SCHEDULERS:
        raise InputError(
            f"router {name} reads the queue and the KV of one scheduler, not of "
            "ranks that step together; expected another, as jsq"
        )
    if moves:
        raise InputError(
            "ranks that step together are not modelled with a rebalancer or a "
            "dispatcher, which reads or moves requests of one scheduler; expected none"
        )
    if hand_off and (reason := no_disaggregated_ranks(hand_off, interval)):
        raise InputError(reason)


def no_disaggregated_ranks(hand_off: str, interval: int) -> str:
    """Return why pools that hand prompts over have no ranks; empty: they may.

    ``interval``: the steps in which ranks take prompts.
    """
    reason = ""
    if not computes_last_again(hand_off):
        reason = f"hand-off {hand_off} gives the first token before"
    elif parse_hand_off(hand_off).settings.get("threshold"):
        reason = f"hand-off {hand_off} looks at what replicas have cached, not ranks"
    elif interval > 1:
        reason = f"prefill_schedule_interval {interval} is of prompts beside decodes"
    if not reason:
        return ""
    return (
        f"ranks that step together, with disaggregated prefill and decode: {reason}; "
        "expected hand-off nixl without a threshold and no interval"
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
