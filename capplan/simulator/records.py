"""Records of the simulator core, one row each for a request, a replica, a result.

Fields that are read together share cache lines. Fields ending in ``_s`` are seconds,
in ``_tokens`` tokens, in ``_blocks`` KV blocks, in ``_step`` iteration numbers of the
replica. Compiled functions say which record an argument is; mypy reads it.
"""

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

Row = TypeVar("Row")

if TYPE_CHECKING:

    class Records(Any, Generic[Row]):
        """Records in one dimension."""

        @overload
        def __getitem__(self, index: int) -> Row: ...
        @overload
        def __getitem__(self, index: Any) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...

    class RecordsOfEach(Any, Generic[Row]):
        """Records of each replica."""

        @overload
        def __getitem__(self, index: int) -> Records[Row]: ...
        @overload
        def __getitem__(self, index: tuple[int, int]) -> Row: ...
        @overload
        def __getitem__(self, index: Any) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...

else:
    Records = RecordsOfEach = dict  # for the annotations, which nothing evaluates


class Request:
    """A request on a replica."""

    arrival_s: float
    scheduled_s: float  # first time in a batch; NaN before
    first_token_s: float  # NaN before
    last_token_s: float  # when it was last preempted
    longest_gap_s: float  # between tokens, up to the last preemption
    row: int  # in the trace
    request_class: int
    priority: int  # lower first
    end_step: int  # iteration that gives its last token
    token_step: int  # iteration that gave its first since admission
    prefix_group: int
    prompt_tokens: int
    output_tokens: int
    run_tokens: int  # output computed for it; padding goes beyond its own
    predicted_tokens: int  # predicted output
    most_output_tokens: int  # that its client asked for
    known_tokens: int  # prompt and tokens generated before admission
    computed_tokens: int  # while prefilling: KV held
    chunk_step: int
    chunk_tokens: int  # the last one with a chunk of its prompt, and that
    room_tokens: int  # whose blocks it took when admitted; 0: none
    unhashed_tokens: int  # its last, which are not found when it ends
    prefix_tokens: int
    session: int  # NONE: not known
    adapter: int  # NONE: the LLM itself
    adapter_entry: int  # its row in host memory, while it runs
    # Of a router that keeps account of what it sent, see active_blocks.py:
    charged_tokens: int  # to prefill, as it knew when it chose
    charged_blocks: int
    charged_holder: int  # of these blocks; or NONE
    cached_tokens: int  # prefix hits at first admission
    hit_blocks: int  # prefix hits at last admission
    shared_blocks: int  # blocks held through the prefix cache
    leaf: int  # the last of them: see paths.py
    bounded_blocks: int  # held while running, beside those of its tokens
    preemptions: int
    late_gaps: int  # above its TBT; less ``late`` since ``token_step``
    heap_position: int
    admission: int  # running requests stand in this order
    migrations: int
    joined_tokens: int  # KV when it joined by a migration; 0: it did not
    partner: int  # its slot in the other pool, see hand_off.py; NONE
    handed_s: float  # when its prompt was done there; 0: it was not
    next: int  # in its replica's waiting or running list
    previous: int
    next_in_list: int  # in a list of joining or finishing requests
    replica: int
    phase: int


class Replica:
    """A replica, a rank of a group, or a micro-batch of stages."""

    now_s: float  # the engine loop's clock: next scheduling
    gpu_s: float  # end of the newest scheduled iteration
    oldest_end_s: float  # end of the oldest iteration in flight
    newest_end_s: float
    decoded_s: float  # end of the newest one in which requests decode
    wake_s: float  # no request can finish before
    until_s: float  # its next iterations are scheduled before
    quiet_s: float  # no decode finishes before, where ends are drawn
    step: int  # iterations scheduled so far, of requests that may decode
    prompt_steps: int  # of prompts alone, which decoding ones sit out
    prompts_only: int  # 1: the next iteration is of prompts alone
    resuming: int  # requests whose last token is not from the last step
    in_flight: int  # iterations scheduled, result not collected
    iterations: int  # that were put in flight so far, a rank's dummies too
    ran: int  # the last of these with its requests
    stalled: int  # 1: nothing to schedule before the next result
    oldest_finishing: int  # requests whose last token is in it
    newest_finishing: int
    joining: int  # requests whose prefill this iteration ends
    running_head: int
    running_tail: int
    running_count: int
    waiting_head: int
    waiting_tail: int
    waiting_count: int
    prefilling: int  # the running request with an unfinished prompt
    decode_count: int  # requests that decode in the next iteration
    context_tokens: int  # their contexts with the next token
    preempted_draining: int  # requests in phase PREEMPTED_DRAINING
    free_blocks: int
    outstanding: int  # requests arrived and not finished
    awaited: int  # copies from or to here: blocks or requests come back
    outstanding_prompt_tokens: int  # their prompts
    outstanding_output_tokens: int  # their predicted outputs
    prefill_tokens: int  # tokens still to be prefilled
    batch_tokens: int  # of the next iteration: prefill tokens
    batch_attention: float  # sum of new * (prefix + new / 2)
    batch_extra_count: int  # one-token prefills that cost as decodes
    batch_extra_tokens: int  # and their contexts
    left_tokens: int  # of its budget, while it is put together
    stretch: float  # its time is so many times what the tables say
    more_s: float  # and so much longer
    wait_s: float  # before which it does not start
    sitting: int  # decodes that sit it out
    admissions: int
    preempted: int  # in this scheduling
    heap_count: int
    gap_first: int
    gap_count: int
    queue_head: int  # of free KV blocks, least recently used first
    queue_tail: int
    spare_count: int  # unused records of KV blocks
    # Of conversations, see paths.py:
    unhashed_blocks: int  # free ones that cannot be found
    segments: int  # that there have been at once
    unused_segment: int  # the first one; ``next`` follows
    grown_step: int  # when blocks were sought of an answer that grows; NONE
    idle_until_s: float  # where nothing runs: look again then; see sa.py
    seen_waiting: int  # waiting requests at the router's last look
    seen_kv_use: float  # and the share of its KV blocks in use
    seen_running: int
    seen_tokens: int  # that its queue is to compute
    seen_high: int  # 1: a request of high priority is there
    # Of a rank, see group_queue.py:
    dummy_s: float  # end of the newest iteration without its requests
    throttled: int  # 1: no prompts in the next iteration
    turn: int  # of a group: rank at which the next choice begins
    looks: int  # looks at its ranks so far
    wave_step: int  # iterations when its ranks last began to step
    number: int  # of those that there have been: hash_ring.py
    charged_tokens: int  # of requests whose first token is to come
    oldest_charged_tokens: int  # of those it comes to in that iteration
    newest_charged_tokens: int
    # Of schedulers that order, pause or swap; what one alone keeps is its memory:
    root: int  # of the tree of the order
    paused: int  # PAUSED requests with KV, here or on the host
    in_link_s: float  # until when blocks are copied from the host
    out_link_s: float  # and to it
    host_free_blocks: int
    leaving_blocks: int  # free on the GPU, perhaps being copied out


class Engine:
    """Settings of the engine, the same for all replicas."""

    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    kv_blocks: int  # without the null block
    bounded_groups: int
    bounded_blocks: int  # most blocks of a request in each of them
    state_groups: int  # whose states are cached: states.py
    state_blocks: int  # of each beside its states: those of drafts
    depth: int  # iterations in flight: 1 sync, 2 async
    prefix_caching: int
    longest_jump: int  # iterations; any value gives the same result
    recording: int  # 1: iterations are written to the log
    attention_s: float
    request_s: float  # from a request's arrival to the queue
    seed: int
    reserves: int  # 1: requests take all their blocks when admitted
    keeps_batch: int  # 1: while nothing waits all decode, see Rules
    prompt_budget: int  # 1: decodes come on top of the token budget
    bins_start_s: float  # of the series
    bin_width_s: float
    counts_late: int  # 1: a class has a limit on each gap
    block_link_s: float  # copy of a block to or from the host
    host_blocks: int  # of a replica
    examined: int  # 1: each call of the scheduler, see examine.py
    ranks: int  # of a replica; 1: it is no group
    tokens_per_request: int  # computed of a decode
    verifies: int  # 1: drafts, see speculation.py
    blocks_per_chunk: int  # of a tier, see v1/tiers.py; 0: there is none
    largest_graph: int  # tokens; 0: nothing is padded
    balance: int  # how a rank is chosen: see group_queue.py
    sync_interval: int  # steps after which ranks agree to pause
    prefill_interval: int  # steps of which one may have prompts
    asked: int  # 1: ranks ask the scheduler also where they only decode


class Order:
    """Where a request stands, of schedulers that keep an order."""

    key: float  # requests stand in order of key, then of tie_break
    tie_break: int
    left: int  # in the tree: see ordered.py
    right: int
    up: int
    ordered: int  # 1: it is in the tree


class Pause:
    """Of schedulers that let requests sit out."""

    since_s: float  # NaN: it is not paused
    paused_s: float  # time with KV but not running


class Swap:
    """Of schedulers that move KV to the host."""

    host_blocks: int  # its KV on the host
    swaps: int  # times its KV went there
    ready_s: float  # when its KV has been copied


class Result:
    """A finished request."""

    row: int
    request_class: int
    replica: int
    preemptions: int
    cached_tokens: int
    prompt_tokens: int
    output_tokens: int
    predicted_tokens: int
    arrival_s: float
    scheduled_s: float
    first_token_s: float
    finish_s: float
    longest_gap_s: float
    late_gaps: int
    swaps: int
    paused_s: float
    migrations: int
    handed_s: float
    tier_tokens: int  # that were loaded for it


class Iteration:
    """An iteration in the log."""

    replica: int
    sched_s: float
    start_s: float
    end_s: float
    ctx_reqs: int
    ctx_tokens: int
    gen_reqs: int
    gen_ctx: int
    running: int
    waiting: int
    free_blocks: int
    preempted: int
    entries_end: int  # where its entries stop in the entries log


class Entry:
    """A request in an iteration of the log."""

    row: int
    computed: int
    scheduled: int


class Bin:
    """A time bin of the series."""

    busy_s: float  # replica seconds with an iteration running
    batch_s: float  # request seconds running
    waiting_s: float  # request seconds waiting
    kv_block_s: float  # block seconds in use


class Block:
    """A block of KV that can be found, or a run of neighbours without a hash."""

    next: int  # in the queue of free blocks
    previous: int
    owner: int  # prefix group, or -2 - row of the request; NONE: no hash
    index: int  # which block of the owner's tokens
    count: int  # of a run without a hash; 1 with one
    references: int
    next_same: int  # next block with the same hash, younger


class Segment:
    """Blocks of conversations that stand together, see paths.py."""

    next: int  # in the queue of free blocks
    previous: int
    start: int  # blocks of a path from here
    end: int  # to before here
    row: int  # or text whose own the last one is; of a twin -2 - who computed it
    parent: int  # segment before it on its path, of a twin the one that it is like
    children: int  # segments behind it
    references: int
    twin: int  # of its first block, the oldest; of a twin a younger one
    holder: int  # request that holds a twin; NONE: it is free


class Transfer:
    """A copy between GPU and tier, where its first chunk is: v1/transfers.py."""

    end_s: float  # infinite: it has not begun
    slot: int  # of its request; -2 - its row: that has ended
    blocks: int
    loads: int  # 1: to the GPU
    rank: int  # of a chunk, when it was last used
    known: int  # call of the scheduler that knows that it ended; 0: not looked for yet
    next: int  # in the order in which they were asked for
    previous: int


class Run:
    """Blocks of an owner sent to a replica together: prefix_memory.py."""

    holder: int  # a list of a replica; NONE: unused
    group: int  # its prefix group, row or text; NONE: blocks that nobody can share
    part: int  # prompt tokens that end in a block not full; 0: full ones
    low: int  # blocks low + 1 to high of the group
    high: int
    at_s: float  # when they were last sent
    turn: int  # and by which arrival
    since: int  # arrival since which its holder has some of the group
    count: int  # requests that have them: active_blocks.py
    next: int  # of its holder, oldest first
    previous: int
    above: int  # of the same group: the run that was put over it
    below: int
    # Not of this run: all arrays of the state are passed with each call, so that
    # one with these costs less than three.
    entry: int  # in this row of their hash table: run_table.py
    point: int  # at this place of a ring of hashes: hash_ring.py


class Gap:
    """A pair to find the longest gap: gaps.py."""

    step: int
    gap_s: float


class ByBatch:
    """Latency tables by the requests in the batch, see latency/contract.py."""

    decode_s: float
    decode_context_s: float
    fused_decode_s: float
    fused_context_s: float


def _dtype(record: type) -> np.dtype:
    """Return the dtype of a record: float64 of floats, int64 of ints."""
    kinds = {float: np.float64, int: np.int64}
    return np.dtype([(k, kinds[v]) for k, v in record.__annotations__.items()])


REQUEST = _dtype(Request)
REPLICA = _dtype(Replica)
ENGINE = _dtype(Engine)
ORDER = _dtype(Order)
PAUSE = _dtype(Pause)
SWAP = _dtype(Swap)
RESULT = _dtype(Result)
ITERATION = _dtype(Iteration)
ENTRY = _dtype(Entry)
BIN = _dtype(Bin)
BLOCK = _dtype(Block)
SEGMENT = _dtype(Segment)
TRANSFER = _dtype(Transfer)
RUN = _dtype(Run)
GAP = _dtype(Gap)
BY_BATCH = _dtype(ByBatch)
