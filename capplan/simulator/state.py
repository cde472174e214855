"""Arrays of the simulator core, and the signatures of policies."""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numba import types

from capplan.simulator import jit  # noqa: F401  (names the cache directory first)
from capplan.simulator.by_pointer import by_pointer, pointer_to
from capplan.simulator.records import (
    BIN,
    BLOCK,
    BY_BATCH,
    ENGINE,
    ENTRY,
    GAP,
    ITERATION,
    ORDER,
    PAUSE,
    REPLICA,
    REQUEST,
    RESULT,
    RUN,
    SEGMENT,
    SWAP,
    TRANSFER,
    Bin,
    Block,
    ByBatch,
    Engine,
    Entry,
    Gap,
    Iteration,
    Order,
    Pause,
    Records,
    RecordsOfEach,
    Replica,
    Request,
    Result,
    Run,
    Segment,
    Swap,
    Transfer,
)

NONE = -1
"""No request, no block: the end of every linked list."""

ADVANCE_FIRST = -2
"""A router that returns this less r is asked again once replica r has come to now."""


class Phase(IntEnum):
    """Where a request is in its life on a replica."""

    FREE = 0  # the slot holds no request
    WAITING = 1
    PREFILLING = 2  # running, prompt not finished
    DECODING = 3  # running, one token an iteration
    DRAINING = 4  # running, its last token is in flight
    PREEMPTED_DRAINING = 5  # preempted while its last token is in flight
    PAUSED = 6  # waiting in a scheduler's own order, with KV if it ran before
    EXPECTED = 7  # in no list yet: its prompt is computed, or its KV is on its way here
    HANDED = 8  # its prompt is done; it holds its KV until that has been read


class Caching(IntEnum):
    """When the blocks that an iteration computes can be found: ``prefix_caching``."""

    NONE = 0
    AT_ONCE = 1  # by the next request of the same iteration too
    LATE = 2  # by the next iteration: the scheduler calls ``merge_full_blocks``


class Needs(IntEnum):
    """What a router reads of the replicas, hence how far they are advanced first."""

    NOTHING = 0
    COUNTS = 1  # the counts of outstanding requests and tokens
    ALL = 2
    SEEN = 3  # metrics as they stood at the last look: see looking.py


@by_pointer
class State(NamedTuple):
    """All that a policy may read; only the core and its primitives write to it."""

    requests: Records[Request]  # (slots,)
    replicas: Records[Replica]  # (replicas,)
    orders: Records[Order]  # (slots,); (0,) where the scheduler keeps no order
    pauses: Records[Pause]  # likewise
    swaps: Records[Swap]  # likewise
    request_memory: np.ndarray  # float64, (slots, columns): of the scheduler alone
    replica_memory: np.ndarray  # float64, (replicas, columns): likewise
    adapters: np.ndarray  # float64, (replicas, columns): see v1/adapters.py
    encoded: np.ndarray  # float64, (replicas, columns): see v1/encoder_cache.py
    engine: Records[Engine]  # (1,)
    ends: np.ndarray  # int64, (replicas, 2 * max_num_seqs): slots, a heap by end_step,
    # and those ``resuming``, see gaps.py
    residues: np.ndarray  # int64, (replicas, block_size): see kvcache.py
    gaps: RecordsOfEach[Gap]  # (replicas, GAPS): see gaps.py
    by_batch: Records[ByBatch]  # (max_num_seqs + 1,) or more
    fused_s: np.ndarray  # the latency table by tokens, see latency/contract.py
    blocks: RecordsOfEach[Block]  # (replicas, kv_blocks) with prefix caching
    spare: np.ndarray  # int64, (replicas, kv_blocks): unused records of these
    table: np.ndarray  # int32, (replicas, 2**k): hash table of full blocks
    holdings: np.ndarray  # int64, (slots, most): blocks held through the cache
    counts: np.ndarray  # int64, (COUNTS,): see Count
    results: Records[Result]  # requests in order of completion
    iterations: Records[Iteration]
    entries: Records[Entry]
    bins: Records[Bin]
    draws: np.ndarray  # float64, (requests of the chunk, 2): uniform, for routers
    scratch: np.ndarray  # float64: row 0 is the router's, the others of annealing.py
    settings: np.ndarray  # float64: of the scheduler, then of routers, see Setting
    classes: np.ndarray  # float64, (classes, 4 + replicas): see Limit, then gaps above
    # the class's TBT so far, of each replica
    runs: Records[Run]  # (2**k,): what a router remembers; (0,) if it does not
    ranks: Records[Replica]  # (replicas * ranks,) of groups, or micro-batches of
    # pipelines, else (0,); arrays by replica that no router reads have a row of each
    shared_s: np.ndarray  # float64, (5, tokens): times of all ranks, see Shared
    lineage: np.ndarray  # int64, (rows and texts, 5): of conversations, see Lineage
    # SEGMENT, (replicas, kv_blocks) of conversations, else (replicas, 0): see paths.py
    segments: RecordsOfEach[Segment]
    tips: np.ndarray  # int32, (replicas, rows and texts or 0, 2): see Tip
    trees: np.ndarray  # float64, (2, nodes): see tournament.py; (2, 0) without
    # TRANSFER, (replicas, chunks of the tier), else (replicas, 0): v1/transfers.py
    transfers: RecordsOfEach[Transfer]

    @property
    def by_rank(self) -> "State":
        """The same, whose replicas are the ranks."""
        return self._replace(replicas=self.ranks)


class _Count(NamedTuple):
    """Index of each counter of the simulation in ``State.counts``.

    No IntEnum: numba 0.65, which the engine pins, cannot index arrays by one.
    """

    FREE: int = 0  # the first free slot, NONE when there is none; ``next`` follows
    RESULTS: int = 1
    ITERATIONS: int = 2
    ENTRIES: int = 3
    DRAW: int = 4  # row of ``draws`` for the request being routed
    STUCK: int = 5  # 1: a request can never be scheduled; 2: see v1/adapters.py
    ROUTED: int = 6  # requests routed so far
    MOST_TOKENS: int = 7  # of an iteration, where prompts have no budget
    HOST_FULL: int = 8  # 1: KV was to be swapped out, and the host has no room
    FAULT: int = 9  # what an examined scheduler did wrong: see examine.py
    FOUND: int = 10  # the number that is wrong
    LIMIT: int = 11  # and what it may be
    OPEN: int = 12  # replicas that take requests: the first ones of the pool
    LOOKED: int = 13  # the router's last look, counted from 0; NONE before: looking.py
    # Requests of which the driver has not heard yet, NONE: none; ``next_in_list``
    # follows. Prompts that are done, or requests whose copy has begun:
    NEWS_FIRST: int = 14
    NEWS_LAST: int = 15
    CHOSEN: int = 16  # replica of an arrival that waits for the log; NONE: to be routed
    HOLDERS: int = 17  # of runs: see prefix_memory.py
    UNUSED_RUN: int = 18  # the first one; ``next`` follows
    UNUSED_RUNS: int = 19
    POINTS: int = 20  # of the ring: hash_ring.py
    NEW_RUNS: int = 21  # that an arrival may need; 0 without runs


Count = _Count()

OWN_SETTINGS = 40
"""Settings of its own that a scheduler may have."""


class _Setting(NamedTuple):
    """Index of each setting of routers in ``State.settings``; see _Count.

    Those of the scheduler stand before them, those of the router after, as in RULES.
    """

    TTFT_S: int = OWN_SETTINGS  # the strictest SLO of the trace's classes
    TPOT_S: int = OWN_SETTINGS + 1
    REFRESH_S: int = OWN_SETTINGS + 2  # between two looks at the replicas' metrics
    PULLS: int = OWN_SETTINGS + 3  # 1: prompts are computed in another pool
    HIGH: int = OWN_SETTINGS + 4  # priorities below are high to the router


Setting = _Setting()
ROUTER_SETTINGS = OWN_SETTINGS + len(Setting)
"""Index of the router's first own setting, in the order of its RULES."""
HAND_OFF_SETTINGS = ROUTER_SETTINGS + 12
"""Index of the first setting of the hand-off; a router has 12 settings at most."""
_MOST_HAND_OFF_SETTINGS = 8


class _Limit(NamedTuple):
    """Index of each limit in ``State.classes``, those of ``workload.slo.LIMITS``."""

    TTFT: int = 0
    TPOT: int = 1
    TBT: int = 2
    E2E: int = 3


Limit = _Limit()
LIMIT_COUNT = len(Limit)


class _Shared(NamedTuple):
    """Row of each table in ``State.shared_s``, see latency/rank_tables.py."""

    EXPERTS: int = 0  # by the tokens of all ranks
    EXPERTS_PREFILL: int = 1
    EXCHANGE: int = 2  # by those of the largest rank
    EXCHANGE_PREFILL: int = 3
    PADDED: int = 4  # tokens of the CUDA graph that has room


Shared = _Shared()


class _Lineage(NamedTuple):
    """Column of ``State.lineage``; see _Count."""

    PARENT: int = 0  # row or text with blocks before its own; NONE
    FIRST: int = 1  # of its own blocks
    SLOT: int = 2  # of the request of the row, while it runs
    NEAREST: int = 3  # row or text with tokens before its own, for routers; NONE
    TOKENS: int = 4  # before its own


Lineage = _Lineage()


class _Tip(NamedTuple):
    """Column of ``State.tips``: which blocks of a row or text can be found; see _Count.

    Dense, so that rows of a conversation stand side by side; pages of a replica to
    which none of their rows came are never written and take no memory.
    """

    END: int = 0  # its own before this one; none where that is its first one
    SEGMENT: int = 1  # that has the last of them


Tip = _Tip()

BITS = 62
"""Chunks of a tier in a word of ``State.holdings``."""
UNLIMITED = 2**62
"""A budget of tokens that binds nothing."""
PLANNED = 256
"""Most requests that a scheduler orders at once."""
GAPS = 256
"""Pairs that a replica keeps to find the longest gap since an iteration."""


def records(shape: int | tuple[int, ...], dtype: np.dtype) -> Any:
    """Return records of zeros."""
    return np.zeros(shape, dtype).view(np.recarray)


def _unwritten(count: int) -> Any:
    """Return room for results, which are written whole."""
    return np.empty(count, RESULT).view(np.recarray)


class Sizes(NamedTuple):
    """Lengths of the arrays of a simulation."""

    replicas: int
    slots: int
    max_num_seqs: int
    block_size: int
    cached_blocks: int  # 0 without prefix caching
    results: int
    iterations: int
    entries: int
    bins: int
    draws: int
    orders: int = 0
    pauses: int = 0
    swaps: int = 0
    request_columns: int = 0
    replica_columns: int = 0
    adapters: int = 0
    encoded: int = 0
    senders: int = 0  # prefill replicas that KV is copied from
    runs: int = 0
    ranks: int = 0  # of each replica; 0: they are no groups
    micro_batches: int = 0  # of each replica; 0: they are no pipelines

    @property
    def rows(self) -> int:
        """Ranks, micro-batches, or replicas that have neither."""
        return self.replicas * max(1, self.ranks, self.micro_batches)


def empty_state(sizes: Sizes, tables: tuple[np.ndarray, ...]) -> State:
    """Return the state of idle replicas; ``tables``: arrays of ``LatencyTables``."""
    state = State(
        requests=records(sizes.slots, REQUEST),
        replicas=idle_replicas(sizes.replicas),
        orders=records(sizes.orders, ORDER),
        pauses=records(sizes.pauses, PAUSE),
        swaps=records(sizes.swaps, SWAP),
        request_memory=np.zeros((sizes.slots, sizes.request_columns)),
        replica_memory=np.zeros((sizes.rows, sizes.replica_columns)),
        adapters=np.zeros((sizes.rows, sizes.adapters)),
        encoded=np.zeros((sizes.rows, sizes.encoded)),
        engine=records(1, ENGINE),
        ends=np.zeros((sizes.rows, 2 * sizes.max_num_seqs), np.int64),
        residues=np.zeros((sizes.rows, sizes.block_size), np.int64),
        gaps=records((sizes.rows, GAPS), GAP),
        by_batch=_by_batch(tables),
        fused_s=tables[2],
        blocks=records((sizes.rows, sizes.cached_blocks), BLOCK),
        spare=np.zeros((sizes.rows, sizes.cached_blocks), np.int64),
        table=np.zeros((sizes.rows, _table_size(sizes.cached_blocks)), np.int32),
        holdings=np.zeros((sizes.slots, 0), np.int64),
        counts=np.zeros(len(Count), np.int64),
        results=_unwritten(sizes.results),
        iterations=records(sizes.iterations, ITERATION),
        entries=records(sizes.entries, ENTRY),
        bins=records(sizes.bins, BIN),
        draws=np.zeros((sizes.draws, 2)),
        scratch=_scratch(sizes),
        settings=np.zeros(HAND_OFF_SETTINGS + _MOST_HAND_OFF_SETTINGS),
        classes=no_limits(1, sizes.rows),
        runs=records(sizes.runs, RUN),
        ranks=idle_replicas(sizes.replicas * max(sizes.ranks, sizes.micro_batches)),
        shared_s=np.zeros((len(Shared), 0)),
        lineage=np.zeros((0, len(Lineage)), np.int64),
        segments=records((sizes.rows, 0), SEGMENT),
        tips=np.zeros((sizes.rows, 0, len(Tip)), np.int32),
        trees=np.zeros((2, 0)),
        transfers=records((sizes.rows, 0), TRANSFER),
    )
    _chain(state.requests, 0)
    for count in (Count.LOOKED, Count.NEWS_FIRST, Count.NEWS_LAST, Count.CHOSEN):
        state.counts[count] = NONE
    state.counts[Count.OPEN] = sizes.replicas
    unused_blocks(state, slice(None))
    return state


def idle_replicas(count: int) -> Any:
    """Return replicas on which no request is; their KV blocks are still to be freed."""
    replicas = records(count, REPLICA)
    heads = ("running_head", "waiting_head", "queue_head", "joining", "prefilling")
    tails = ("running_tail", "waiting_tail", "queue_tail")
    others = ("oldest_finishing", "newest_finishing", "root")
    of_paths = ("unused_segment", "grown_step")
    for name in (*heads, *tails, *others, *of_paths):
        replicas[name] = NONE
    replicas["wake_s"] = np.inf
    return replicas


def unused_blocks(state: State, r: int | slice) -> None:
    """Let no KV block of a replica, or of several, be found."""
    for name in ("owner", "next_same"):
        state.blocks[name][r] = NONE
    state.table[r] = NONE
    state.tips[r] = 0


def _by_batch(tables: tuple[np.ndarray, ...]) -> Any:
    """Return the tables by batch as records."""
    rows = records(len(tables[0]), BY_BATCH)
    names = BY_BATCH.names or ()
    for name, table in zip(names, (*tables[:2], *tables[3:]), strict=True):
        rows[name] = table
    return rows


def no_limits(classes: int, replicas: int) -> np.ndarray:
    """Return classes without limits, of which no gap was late."""
    rows = np.zeros((classes, LIMIT_COUNT + replicas))
    rows[:, :LIMIT_COUNT] = np.inf
    return rows


def _scratch(sizes: Sizes) -> np.ndarray:
    """Return a row for the router, and those of annealing or of the senders."""
    return np.zeros((17, max(sizes.replicas, sizes.senders, sizes.ranks, PLANNED)))


def _chain(requests: np.recarray, first: int) -> None:
    """Let the slots from ``first`` on follow each other; they are charged nothing."""
    requests["charged_holder"][first:] = NONE
    requests["next"][first:] = np.arange(first + 1, len(requests) + 1)
    requests["next"][-1] = NONE


def with_more_slots(state: State) -> State:
    """Return the state with twice the room for outstanding requests."""
    old = len(state.requests)
    new = 2 * old
    requests = grown_records(state.requests, new)
    _chain(requests, old)
    state.counts[Count.FREE] = old
    assert state.counts[Count.RESULTS] == 0, "results are taken before"
    return state._replace(
        requests=requests,
        results=_unwritten(len(state.results) + old),
        orders=grown_records(state.orders, 2 * len(state.orders)),
        pauses=grown_records(state.pauses, 2 * len(state.pauses)),
        swaps=grown_records(state.swaps, 2 * len(state.swaps)),
        request_memory=grown(state.request_memory, new),
        holdings=grown(state.holdings, new),
    )


def grown_records(rows: Records, length: int) -> Any:
    """Return a copy of records, extended by zeros to ``length``."""
    return grown(rows, length).view(np.recarray)


def with_paths(state: State) -> State:
    """Return a state of idle replicas that has segments of paths in place of blocks.

    A segment has a block at least; those that are never used take no memory.
    """
    rows, blocks = len(state.blocks), int(state.engine[0].kv_blocks)
    return state._replace(
        segments=records((rows, blocks), SEGMENT),
        tips=np.zeros((rows, len(state.lineage), len(Tip)), np.int32),
        blocks=records((rows, 0), BLOCK),
        spare=np.zeros((rows, 0), np.int64),
        table=np.zeros((rows, 1), np.int32),
    )


def with_tier(state: State, chunks: int, longest: int) -> State:
    """Return a state with paths that has room for the chunks of a tier.

    ``longest``: chunks of the longest request. Its blocks are the chunks, ``spare`` has
    those of one request, and ``holdings`` a bit for each that a request has used.
    """
    rows = len(state.blocks)
    table = np.full((rows, _table_size(chunks)), NONE, np.int32)
    return state._replace(
        blocks=records((rows, chunks), BLOCK),
        table=table,
        spare=np.zeros((rows, longest), np.int64),
        holdings=np.zeros((len(state.requests), -(-longest // BITS)), np.int64),
        transfers=records((rows, chunks), TRANSFER),
    )


def grown(array: np.ndarray, length: int) -> np.ndarray:
    """Return a copy of an array, extended by zeros to ``length``."""
    larger = np.zeros((length, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _table_size(cached_blocks: int) -> int:
    """Return a power of two that keeps the hash table at most half full."""
    return 1 << max(1, 2 * cached_blocks).bit_length() if cached_blocks else 1


def no_pool() -> State:
    """Return the state of a pool without replicas."""
    sizes = Sizes(0, 1, 1, 1, 0, results=2, iterations=0, entries=0, bins=1, draws=1)
    return empty_state(sizes, tuple(np.ones(2) for _ in range(5)))


STATE = pointer_to(no_pool())
SCHEDULE = types.int64(STATE, types.int64)
"""``schedule(state, replica) -> horizon``: see schedulers/__init__.py."""
RUN_GROUP = types.int64(
    STATE, types.int64, types.float64, types.boolean, types.FunctionType(SCHEDULE)
)
"""``run_group(state, group, until_s, once, schedule)``: see group.py."""


class Schedules(NamedTuple):
    """What drivers call ``schedule``: the scheduler, and what lets groups of ranks run.

    Where there are none that does nothing: it takes as long to compile as the rest.
    """

    alone: Any  # of signature SCHEDULE
    together: Any  # of signature RUN_GROUP


SCHEDULES = types.NamedTuple(
    (types.FunctionType(SCHEDULE), types.FunctionType(RUN_GROUP)), Schedules
)
ROUTE = types.int64(STATE, types.int64, types.float64)
"""``route(state, slot, now_s) -> replica``: see routers/__init__.py."""


class Side(NamedTuple):
    """A pool with its policies, as compiled functions pass it."""

    state: State
    needs: int  # of the router
    route: Any  # of signature ROUTE
    schedule: Schedules


SIDE = types.NamedTuple(
    (STATE, types.int64, types.FunctionType(ROUTE), SCHEDULES), Side
)
WHERE = types.int64(STATE, STATE, types.int64, types.int64)
"""``where(first, second, slot, d) -> BOTH`` and others: see hand_offs/__init__.py."""
