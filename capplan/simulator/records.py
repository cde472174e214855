"""Records of the simulator core, one row each for a request, a replica, a result.

Fields that are read together share cache lines. Fields ending in ``_s`` are seconds,
in ``_tokens`` tokens, in ``_blocks`` KV blocks, in ``_step`` iteration numbers of the
replica.
"""

import numpy as np

REQUEST = np.dtype(
    [
        ("arrival_s", np.float64),
        ("scheduled_s", np.float64),  # first time in a batch; NaN before
        ("first_token_s", np.float64),  # NaN before
        ("last_token_s", np.float64),  # when it was last preempted
        ("longest_gap_s", np.float64),  # between tokens, up to the last preemption
        ("row", np.int64),  # in the trace
        ("request_class", np.int64),
        ("priority", np.int64),  # lower first
        ("end_step", np.int64),  # iteration that gives its last token
        ("token_step", np.int64),  # iteration that gave its first since admission
        ("prefix_group", np.int64),
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("run_tokens", np.int64),  # output computed for it; padding goes beyond its own
        ("predicted_tokens", np.int64),  # predicted output
        ("most_output_tokens", np.int64),  # that its client asked for
        ("known_tokens", np.int64),  # prompt and tokens generated before admission
        ("computed_tokens", np.int64),  # while prefilling: KV held
        ("room_tokens", np.int64),  # whose blocks it took when admitted; 0: none
        ("unhashed_tokens", np.int64),  # its last, which are not found when it ends
        ("prefix_tokens", np.int64),
        ("session", np.int64),  # NONE: not known
        ("adapter", np.int64),  # NONE: the LLM itself
        # Of a router that keeps account of what it sent, see active_blocks.py:
        ("charged_tokens", np.int64),  # to prefill, as it knew when it chose
        ("charged_blocks", np.int64),
        ("charged_holder", np.int64),  # of these blocks; or NONE
        ("charged_run", np.int64),  # those that others share; NONE: none
        ("cached_tokens", np.int64),  # prefix hits at first admission
        ("hit_blocks", np.int64),  # prefix hits at last admission
        ("shared_blocks", np.int64),  # blocks held through the prefix cache
        ("bounded_blocks", np.int64),  # held while running, beside those of its tokens
        ("preemptions", np.int64),
        ("late_gaps", np.int64),  # above its TBT; less ``late`` since ``token_step``
        ("heap_position", np.int64),
        ("admission", np.int64),  # running requests stand in this order
        ("migrations", np.int64),
        ("joined_tokens", np.int64),  # KV when it joined by a migration; 0: it did not
        ("partner", np.int64),  # its slot in the other pool, see hand_off.py; NONE
        ("handed_s", np.float64),  # when its prompt was done there; 0: it was not
        ("next", np.int64),  # in its replica's waiting or running list
        ("previous", np.int64),
        ("next_in_list", np.int64),  # in a list of joining or finishing requests
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
        ("until_s", np.float64),  # its next iterations are scheduled before
        ("quiet_s", np.float64),  # no decode finishes before, where ends are drawn
        ("step", np.int64),  # iterations scheduled so far, of requests that may decode
        ("prompt_steps", np.int64),  # of prompts alone, which decoding ones sit out
        ("prompts_only", np.int64),  # 1: the next iteration is of prompts alone
        ("resuming", np.int64),  # requests whose last token is not from the last step
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
        ("awaited", np.int64),  # copies from or to here: blocks or requests come back
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
        ("idle_until_s", np.float64),  # where nothing runs: look again then; see sa.py
        ("seen_waiting", np.int64),  # waiting requests at the router's last look
        ("seen_kv_use", np.float64),  # and the share of its KV blocks in use
        ("seen_running", np.int64),
        ("seen_tokens", np.int64),  # that its queue is to compute
        ("seen_high", np.int64),  # 1: a request of high priority is there
        # Of a rank, see group_queue.py:
        ("dummy_s", np.float64),  # end of the newest iteration without its requests
        ("throttled", np.int64),  # 1: no prompts in the next iteration
        ("turn", np.int64),  # of a group: rank at which the next choice begins
        ("looks", np.int64),  # looks at its ranks so far
        ("wave_step", np.int64),  # iterations when its ranks last began to step
        ("number", np.int64),  # of those that there have been: hash_ring.py
        ("charged_tokens", np.int64),  # of requests whose first token is to come
        ("oldest_charged_tokens", np.int64),  # of those it comes to in that iteration
        ("newest_charged_tokens", np.int64),
        # Of schedulers that order, pause or swap; what one alone keeps is its memory:
        ("root", np.int64),  # of the tree of the order
        ("paused", np.int64),  # PAUSED requests with KV, here or on the host
        ("in_link_s", np.float64),  # until when blocks are copied from the host
        ("out_link_s", np.float64),  # and to it
        ("host_free_blocks", np.int64),
        ("leaving_blocks", np.int64),  # free on the GPU, perhaps being copied out
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
        ("state_groups", np.int64),  # whose states are cached: states.py
        ("state_blocks", np.int64),  # of each beside its states: those of drafts
        ("depth", np.int64),  # iterations in flight: 1 sync, 2 async
        ("prefix_caching", np.int64),
        ("longest_jump", np.int64),  # iterations; any value gives the same result
        ("recording", np.int64),  # 1: iterations are written to the log
        ("attention_s", np.float64),
        ("request_s", np.float64),  # from a request's arrival to the queue
        ("seed", np.int64),
        ("reserves", np.int64),  # 1: requests take all their blocks when admitted
        ("keeps_batch", np.int64),  # 1: while nothing waits all decode, see Rules
        ("prompt_budget", np.int64),  # 1: decodes come on top of the token budget
        ("bins_start_s", np.float64),  # of the series
        ("bin_width_s", np.float64),
        ("counts_late", np.int64),  # 1: a class has a limit on each gap
        ("block_link_s", np.float64),  # copy of a block to or from the host
        ("host_blocks", np.int64),  # of a replica
        ("examined", np.int64),  # 1: each call of the scheduler, see examine.py
        ("ranks", np.int64),  # of a replica; 1: it is no group
        ("tokens_per_request", np.int64),  # that a rank computes of a decode
        ("verifies", np.int64),  # 1: drafts, see speculation.py
        ("largest_graph", np.int64),  # tokens; 0: nothing is padded
        ("balance", np.int64),  # how a rank is chosen: see group_queue.py
        ("sync_interval", np.int64),  # steps after which ranks agree to pause
        ("prefill_interval", np.int64),  # steps of which one may have prompts
    ]
)

ORDER = np.dtype(
    [
        ("key", np.float64),  # requests stand in order of key, then of tie_break
        ("tie_break", np.int64),
        ("left", np.int64),  # in the tree: see ordered.py
        ("right", np.int64),
        ("up", np.int64),
        ("ordered", np.int64),  # 1: it is in the tree
    ]
)
"""Where a request stands, of schedulers that keep an order."""

PAUSE = np.dtype(
    [
        ("since_s", np.float64),  # NaN: it is not paused
        ("paused_s", np.float64),  # time with KV but not running
    ]
)
"""Of schedulers that let requests sit out."""

SWAP = np.dtype(
    [
        ("host_blocks", np.int64),  # its KV on the host
        ("swaps", np.int64),  # times its KV went there
        ("ready_s", np.float64),  # when its KV has been copied
    ]
)
"""Of schedulers that move KV to the host."""

RESULT = np.dtype(
    [
        ("row", np.int64),
        ("request_class", np.int64),
        ("replica", np.int64),
        ("preemptions", np.int64),
        ("cached_tokens", np.int64),
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("predicted_tokens", np.int64),
        ("arrival_s", np.float64),
        ("scheduled_s", np.float64),
        ("first_token_s", np.float64),
        ("finish_s", np.float64),
        ("longest_gap_s", np.float64),
        ("late_gaps", np.int64),
        ("swaps", np.int64),
        ("paused_s", np.float64),
        ("migrations", np.int64),
        ("handed_s", np.float64),
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

RUN = np.dtype(
    [
        ("holder", np.int64),  # a list of a replica; NONE: unused
        ("group", np.int64),  # whose blocks; NONE: blocks that nobody can share
        ("part", np.int64),  # prompt tokens that end in a block not full; 0: full ones
        ("low", np.int64),  # blocks low + 1 to high of the group
        ("high", np.int64),
        ("at_s", np.float64),  # when they were last sent
        ("turn", np.int64),  # and by which arrival
        ("since", np.int64),  # arrival since which its holder has some of the group
        ("count", np.int64),  # requests that have them: active_blocks.py
        ("next", np.int64),  # of its holder, oldest first
        ("previous", np.int64),
        ("above", np.int64),  # of the same group: the run that was put over it
        ("below", np.int64),
        # Not of this run: all arrays of the state are passed with each call, so that
        # one with these costs less than three.
        ("entry", np.int64),  # in this row of their hash table: run_table.py
        ("point", np.int64),  # at this place of a ring of hashes: hash_ring.py
    ]
)
"""Blocks of a prefix group that were sent to a replica together: prefix_memory.py."""

GAP = np.dtype([("step", np.int64), ("gap_s", np.float64)])

BY_BATCH = np.dtype(
    [
        ("decode_s", np.float64),
        ("decode_context_s", np.float64),
        ("fused_decode_s", np.float64),
        ("fused_context_s", np.float64),
    ]
)
"""Latency tables by the number of requests in the batch, see latency/contract.py."""
