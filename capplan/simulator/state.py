"""Arrays of the simulator core, and the signatures of policies.

Requests and replicas are records, one row each, so that fields that are read
together share cache lines. Fields ending in ``_s`` are seconds, in ``_tokens``
tokens, in ``_blocks`` KV blocks, in ``_step`` iteration numbers of the replica.
"""

from enum import IntEnum
from typing import NamedTuple

import numba
import numpy as np
from numba import types

from capplan.simulator import jit  # noqa: F401  (names the cache directory first)

NONE = -1
"""No request, no block: the end of every linked list."""


class Phase(IntEnum):
    """Where a request is in its life on a replica."""

    FREE = 0  # the slot holds no request
    WAITING = 1
    PREFILLING = 2  # running, prompt not finished
    DECODING = 3  # running, one token an iteration
    DRAINING = 4  # running, its last token is in flight
    PREEMPTED_DRAINING = 5  # preempted while its last token is in flight


class Needs(IntEnum):
    """What a router reads of the replicas, hence how far they are advanced first."""

    NOTHING = 0
    COUNTS = 1  # the counts of outstanding requests and tokens
    ALL = 2


REQUEST = np.dtype(
    [
        ("arrival_s", np.float64),
        ("scheduled_s", np.float64),  # first time in a batch; NaN before
        ("first_token_s", np.float64),  # NaN before
        ("last_token_s", np.float64),  # when it was last preempted
        ("longest_gap_s", np.float64),  # between tokens, up to the last preemption
        ("row", np.int64),  # in the trace
        ("request_class", np.int64),
        ("end_step", np.int64),  # iteration that gives its last token
        ("token_step", np.int64),  # iteration that gave its first since admission
        ("prefix_group", np.int64),
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("run_tokens", np.int64),  # output computed for it; padding goes beyond its own
        ("predicted_tokens", np.int64),  # predicted output
        ("known_tokens", np.int64),  # prompt and tokens generated before admission
        ("computed_tokens", np.int64),  # while prefilling: KV held
        ("room_tokens", np.int64),  # whose blocks it took when admitted; 0: none
        ("prefix_tokens", np.int64),
        ("cached_tokens", np.int64),  # prefix hits at first admission
        ("hit_blocks", np.int64),  # prefix hits at last admission
        ("shared_blocks", np.int64),  # blocks held through the prefix cache
        ("bounded_blocks", np.int64),  # held while running, beside those of its tokens
        ("preemptions", np.int64),
        ("heap_position", np.int64),
        ("admission", np.int64),  # running requests stand in this order
        ("next", np.int64),  # in its replica's waiting or running list
        ("previous", np.int64),
        ("next_joining", np.int64),  # in a list of joining or finishing requests
        ("replica", np.int64),
        ("phase", np.int64),
    ]
)

REPLICA = np.dtype(
    [
        ("now_s", np.float64),  # the engine loop's clock: next scheduling
        ("gpu_s", np.float64),  # end of the newest scheduled iteration
        ("oldest_end_s", np.float64),  # end of the oldest iteration in flight
        ("newest_end_s", np.float64),
        ("decoded_s", np.float64),  # end of the newest one in which requests decode
        ("wake_s", np.float64),  # no request can finish before
        (
            "step",
            np.int64,
        ),  # iterations scheduled so far in which requests may decode
        (
            "prompt_steps",
            np.int64,
        ),  # of prompts alone, which decoding ones sit out
        ("prompts_only", np.int64),  # 1: the next iteration is of prompts alone
        ("resuming", np.int64),  # newest running ones, their last token from such a one
        ("in_flight", np.int64),  # iterations scheduled, result not collected
        ("stalled", np.int64),  # 1: nothing to schedule before the next result
        ("oldest_finishing", np.int64),  # requests whose last token is in it
        ("newest_finishing", np.int64),
        ("joining", np.int64),  # requests whose prefill this iteration ends
        ("running_head", np.int64),
        ("running_tail", np.int64),
        ("running_count", np.int64),
        ("waiting_head", np.int64),
        ("waiting_tail", np.int64),
        ("waiting_count", np.int64),
        ("prefilling", np.int64),  # the running request with an unfinished prompt
        ("decode_count", np.int64),  # requests that decode in the next iteration
        ("context_tokens", np.int64),  # their contexts with the next token
        ("preempted_draining", np.int64),  # requests in phase PREEMPTED_DRAINING
        ("free_blocks", np.int64),
        ("outstanding", np.int64),  # requests arrived and not finished
        ("outstanding_prompt_tokens", np.int64),  # their prompts
        ("outstanding_output_tokens", np.int64),  # their predicted outputs
        ("prefill_tokens", np.int64),  # tokens still to be prefilled
        ("batch_tokens", np.int64),  # of the next iteration: prefill tokens
        ("batch_attention", np.float64),  # sum of new * (prefix + new / 2)
        ("batch_extra_count", np.int64),  # one-token prefills that cost as decodes
        ("batch_extra_tokens", np.int64),  # and their contexts
        ("admissions", np.int64),
        ("preempted", np.int64),  # in this scheduling
        ("heap_count", np.int64),
        ("gap_first", np.int64),
        ("gap_count", np.int64),
        ("queue_head", np.int64),  # of free KV blocks, least recently used first
        ("queue_tail", np.int64),
        ("spare_count", np.int64),  # unused records of KV blocks
    ]
)

ENGINE = np.dtype(
    [
        ("max_num_batched_tokens", np.int64),
        ("max_num_seqs", np.int64),
        ("block_size", np.int64),
        ("kv_blocks", np.int64),  # without the null block
        ("bounded_groups", np.int64),
        ("bounded_blocks", np.int64),  # most blocks of a request in each of them
        ("depth", np.int64),  # iterations in flight: 1 sync, 2 async
        ("prefix_caching", np.int64),
        ("longest_jump", np.int64),  # iterations; any value gives the same result
        ("recording", np.int64),  # 1: iterations are written to the log
        ("attention_s", np.float64),
        ("reserves", np.int64),  # 1: requests take all their blocks when admitted
    ]
)

RESULT = np.dtype(
    [
        ("row", np.int64),
        ("request_class", np.int64),
        ("replica", np.int64),
        ("preemptions", np.int64),
        ("cached_tokens", np.int64),
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("arrival_s", np.float64),
        ("scheduled_s", np.float64),
        ("first_token_s", np.float64),
        ("finish_s", np.float64),
        ("longest_gap_s", np.float64),
    ]
)

ITERATION = np.dtype(
    [
        ("replica", np.int64),
        ("sched_s", np.float64),
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("ctx_reqs", np.int64),
        ("ctx_tokens", np.int64),
        ("gen_reqs", np.int64),
        ("gen_ctx", np.int64),
        ("running", np.int64),
        ("waiting", np.int64),
        ("free_blocks", np.int64),
        ("preempted", np.int64),
        ("entries_end", np.int64),  # where its entries stop in the entries log
    ]
)

ENTRY = np.dtype([("row", np.int64), ("computed", np.int64), ("scheduled", np.int64)])

BIN = np.dtype(
    [
        ("busy_s", np.float64),  # replica seconds with an iteration running
        ("batch_s", np.float64),  # request seconds running
        ("waiting_s", np.float64),  # request seconds waiting
        ("kv_block_s", np.float64),  # block seconds in use
    ]
)

BLOCK = np.dtype(
    [
        ("next", np.int64),  # in the queue of free blocks
        ("previous", np.int64),
        ("owner", np.int64),  # prefix group, or -2 - row of the request; NONE: no hash
        ("index", np.int64),  # which block of the owner's tokens
        ("count", np.int64),  # of a run without a hash; 1 with one
        ("references", np.int64),
        ("next_same", np.int64),  # next block with the same hash, younger
    ]
)


class State(NamedTuple):
    """All that a policy may read; only the core and its primitives write to it."""

    requests: np.recarray  # REQUEST, (slots,)
    replicas: np.recarray  # REPLICA, (replicas,)
    engine: np.recarray  # ENGINE, (1,)
    ends: np.ndarray  # int64, (replicas, max_num_seqs): slots, a heap by end_step
    residues: np.ndarray  # int64, (replicas, block_size): see kvcache.py
    gap_step: np.ndarray  # int64, (replicas, GAPS): see gaps.py
    gap_s: np.ndarray  # float64, (replicas, GAPS)
    decode_s: np.ndarray  # the latency tables, see latency/contract.py
    decode_context_s: np.ndarray
    fused_s: np.ndarray
    fused_decode_s: np.ndarray
    fused_context_s: np.ndarray
    blocks: np.recarray  # BLOCK, (replicas, kv_blocks) with prefix caching
    spare: np.ndarray  # int64, (replicas, kv_blocks): unused records of these
    table: np.ndarray  # int32, (replicas, 2**k): hash table of full blocks
    holdings: np.ndarray  # int64, (slots, most): blocks held through the cache
    free_slots: np.ndarray  # int64, a stack
    counts: np.ndarray  # int64, (COUNTS,): see Count
    results: np.recarray  # RESULT, requests in order of completion
    iterations: np.recarray  # ITERATION
    entries: np.recarray  # ENTRY
    bins: np.recarray  # BIN
    bin_s: np.ndarray  # float64, (2,): start and width of the bins
    draws: np.ndarray  # float64, (requests of the chunk, 2): uniform, for routers
    norms: np.ndarray  # float64, (replicas,): scratch space of a router
    settings: np.ndarray  # float64, (OWN + OWN_SETTINGS,): of the policies, see Setting


class _Count(NamedTuple):
    """Index of each counter of the simulation in ``State.counts``.

    No IntEnum: numba 0.65, which the engine pins, cannot index arrays by one.
    """

    FREE_SLOTS: int = 0
    RESULTS: int = 1
    ITERATIONS: int = 2
    ENTRIES: int = 3
    DRAW: int = 4  # row of ``draws`` for the request being routed
    STUCK: int = 5  # 1: a request can never be scheduled
    ROUTED: int = 6  # requests routed so far
    MOST_TOKENS: int = 7  # of an iteration, where prompts have no budget


Count = _Count()


class _Setting(NamedTuple):
    """Index of each setting of the policies in ``State.settings``; see _Count."""

    TTFT_S: int = 0  # the strictest SLO of the trace's classes
    TPOT_S: int = 1
    GAMMA: int = 2  # Aladdin's share of the predicted output that counts as context
    THETA: int = 3  # Aladdin's margin for prediction error
    OWN: int = 4  # the first of the scheduler's own, in the order of its RULES


Setting = _Setting()


UNLIMITED = 2**62
"""A budget of tokens that binds nothing."""
OWN_SETTINGS = 8
"""Settings of its own that a scheduler may have."""
GAPS = 256
"""Pairs that a replica keeps to find the longest gap since an iteration."""


def _records(shape: int | tuple[int, ...], dtype: np.dtype) -> np.recarray:
    return np.zeros(shape, dtype).view(np.recarray)


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


def empty_state(sizes: Sizes, tables: tuple[np.ndarray, ...]) -> State:
    """Return the state of idle replicas with all their KV blocks free.

    Parameters
    ----------
    sizes
        Lengths of the arrays.
    tables
        The five arrays of ``LatencyTables``.
    """
    state = State(
        requests=_records(sizes.slots, REQUEST),
        replicas=_records(sizes.replicas, REPLICA),
        engine=_records(1, ENGINE),
        ends=np.zeros((sizes.replicas, sizes.max_num_seqs), np.int64),
        residues=np.zeros((sizes.replicas, sizes.block_size), np.int64),
        gap_step=np.zeros((sizes.replicas, GAPS), np.int64),
        gap_s=np.zeros((sizes.replicas, GAPS)),
        decode_s=tables[0],
        decode_context_s=tables[1],
        fused_s=tables[2],
        fused_decode_s=tables[3],
        fused_context_s=tables[4],
        blocks=_records((sizes.replicas, sizes.cached_blocks), BLOCK),
        spare=np.zeros((sizes.replicas, sizes.cached_blocks), np.int64),
        table=np.full(
            (sizes.replicas, _table_size(sizes.cached_blocks)), NONE, np.int32
        ),
        holdings=np.zeros((sizes.slots, 0), np.int64),
        free_slots=np.arange(sizes.slots)[::-1].copy(),
        counts=np.zeros(len(Count), np.int64),
        results=_records(sizes.results, RESULT),
        iterations=_records(sizes.iterations, ITERATION),
        entries=_records(sizes.entries, ENTRY),
        bins=_records(sizes.bins, BIN),
        bin_s=np.ones(2),
        draws=np.zeros((sizes.draws, 2)),
        norms=np.zeros(sizes.replicas),
        settings=np.zeros(Setting.OWN + OWN_SETTINGS),
    )
    state.counts[Count.FREE_SLOTS] = sizes.slots
    for name in (
        "oldest_finishing",
        "newest_finishing",
        "joining",
        "running_head",
        "running_tail",
        "waiting_head",
        "waiting_tail",
        "prefilling",
        "queue_head",
        "queue_tail",
    ):
        state.replicas[name] = NONE
    state.replicas["wake_s"] = np.inf
    state.blocks["owner"] = NONE
    state.blocks["next_same"] = NONE
    return state


def _table_size(cached_blocks: int) -> int:
    """Return a power of two that keeps the hash table at most half full."""
    return 1 << max(1, 2 * cached_blocks).bit_length() if cached_blocks else 1


def _smallest_state() -> State:
    return empty_state(
        Sizes(1, 1, 1, 1, 1, 1, 1, 1, 1, 1), tuple(np.ones(2) for _ in range(5))
    )


STATE = numba.typeof(_smallest_state())
SCHEDULE = types.int64(STATE, types.int64)
"""``schedule(state, replica) -> horizon``: see schedulers/__init__.py."""
ROUTE = types.int64(STATE, types.int64, types.float64)
"""``route(state, slot, now_s) -> replica``: see routers/__init__.py."""
