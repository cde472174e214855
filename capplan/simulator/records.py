"""Records of the simulator core, one row each for a request, a replica, a result.

Fields that are read together share cache lines. Fields ending in ``_s`` are seconds,
in ``_tokens`` tokens, in ``_blocks`` KV blocks, in ``_step`` iteration numbers of the
replica.
"""

import numpy as np


def _record(names: str) -> np.dtype:
    """Return float64 of seconds and shares, int64 of all else, by names in order."""
    reals = ("batch_attention", "seen_kv_use", "key", "stretch")
    return np.dtype(
        [
            (name, np.float64 if name.endswith("_s") or name in reals else np.int64)
            for name in names.split()
        ]
    )


REQUEST = _record(
    "arrival_s "
    "scheduled_s "  # first time in a batch; NaN before
    "first_token_s "  # NaN before
    "last_token_s "  # when it was last preempted
    "longest_gap_s "  # between tokens, up to the last preemption
    "row "  # in the trace
    "request_class "
    "priority "  # lower first
    "end_step "  # iteration that gives its last token
    "token_step "  # iteration that gave its first since admission
    "prefix_group prompt_tokens output_tokens "
    "run_tokens "  # output computed for it; padding goes beyond its own
    "predicted_tokens "  # predicted output
    "most_output_tokens "  # that its client asked for
    "known_tokens "  # prompt and tokens generated before admission
    "computed_tokens "  # while prefilling: KV held
    "chunk_step chunk_tokens "  # the last one with a chunk of its prompt, and that
    "room_tokens "  # whose blocks it took when admitted; 0: none
    "unhashed_tokens "  # its last, which are not found when it ends
    "prefix_tokens "
    "session "  # NONE: not known
    "adapter "  # NONE: the LLM itself
    "adapter_entry "  # its row in host memory, while it runs
    # Of a router that keeps account of what it sent, see active_blocks.py:
    "charged_tokens "  # to prefill, as it knew when it chose
    "charged_blocks "
    "charged_holder "  # of these blocks; or NONE
    "charged_run "  # those that others share; NONE: none
    "cached_tokens "  # prefix hits at first admission
    "hit_blocks "  # prefix hits at last admission
    "shared_blocks "  # blocks held through the prefix cache
    "bounded_blocks "  # held while running, beside those of its tokens
    "preemptions "
    "late_gaps "  # above its TBT; less ``late`` since ``token_step``
    "heap_position "
    "admission "  # running requests stand in this order
    "migrations "
    "joined_tokens "  # KV when it joined by a migration; 0: it did not
    "partner "  # its slot in the other pool, see hand_off.py; NONE
    "handed_s "  # when its prompt was done there; 0: it was not
    "next "  # in its replica's waiting or running list
    "previous "
    "next_in_list "  # in a list of joining or finishing requests
    "replica phase"
)

REPLICA = _record(
    "now_s "  # the engine loop's clock: next scheduling
    "gpu_s "  # end of the newest scheduled iteration
    "oldest_end_s "  # end of the oldest iteration in flight
    "newest_end_s "
    "decoded_s "  # end of the newest one in which requests decode
    "wake_s "  # no request can finish before
    "until_s "  # its next iterations are scheduled before
    "quiet_s "  # no decode finishes before, where ends are drawn
    "step "  # iterations scheduled so far, of requests that may decode
    "prompt_steps "  # of prompts alone, which decoding ones sit out
    "prompts_only "  # 1: the next iteration is of prompts alone
    "resuming "  # requests whose last token is not from the last step
    "in_flight "  # iterations scheduled, result not collected
    "iterations "  # that were put in flight so far, a rank's dummies too
    "ran "  # the last of these with its requests
    "stalled "  # 1: nothing to schedule before the next result
    "oldest_finishing "  # requests whose last token is in it
    "newest_finishing "
    "joining "  # requests whose prefill this iteration ends
    "running_head running_tail running_count waiting_head waiting_tail waiting_count "
    "prefilling "  # the running request with an unfinished prompt
    "decode_count "  # requests that decode in the next iteration
    "context_tokens "  # their contexts with the next token
    "preempted_draining "  # requests in phase PREEMPTED_DRAINING
    "free_blocks "
    "outstanding "  # requests arrived and not finished
    "awaited "  # copies from or to here: blocks or requests come back
    "outstanding_prompt_tokens "  # their prompts
    "outstanding_output_tokens "  # their predicted outputs
    "prefill_tokens "  # tokens still to be prefilled
    "batch_tokens "  # of the next iteration: prefill tokens
    "batch_attention "  # sum of new * (prefix + new / 2)
    "batch_extra_count "  # one-token prefills that cost as decodes
    "batch_extra_tokens "  # and their contexts
    "left_tokens "  # of its budget, while it is put together
    "stretch "  # its time is so many times what the tables say
    "more_s "  # and so much longer
    "wait_s "  # before which it does not start
    "sitting "  # decodes that sit it out
    "admissions "
    "preempted "  # in this scheduling
    "heap_count gap_first gap_count "
    "queue_head "  # of free KV blocks, least recently used first
    "queue_tail "
    "spare_count "  # unused records of KV blocks
    "idle_until_s "  # where nothing runs: look again then; see sa.py
    "seen_waiting "  # waiting requests at the router's last look
    "seen_kv_use "  # and the share of its KV blocks in use
    "seen_running "
    "seen_tokens "  # that its queue is to compute
    "seen_high "  # 1: a request of high priority is there
    # Of a rank, see group_queue.py:
    "dummy_s "  # end of the newest iteration without its requests
    "throttled "  # 1: no prompts in the next iteration
    "turn "  # of a group: rank at which the next choice begins
    "looks "  # looks at its ranks so far
    "wave_step "  # iterations when its ranks last began to step
    "number "  # of those that there have been: hash_ring.py
    "charged_tokens "  # of requests whose first token is to come
    "oldest_charged_tokens "  # of those it comes to in that iteration
    "newest_charged_tokens "
    # Of schedulers that order, pause or swap; what one alone keeps is its memory:
    "root "  # of the tree of the order
    "paused "  # PAUSED requests with KV, here or on the host
    "in_link_s "  # until when blocks are copied from the host
    "out_link_s "  # and to it
    "host_free_blocks "
    "leaving_blocks"  # free on the GPU, perhaps being copied out
)

ENGINE = _record(
    "max_num_batched_tokens max_num_seqs block_size "
    "kv_blocks "  # without the null block
    "bounded_groups "
    "bounded_blocks "  # most blocks of a request in each of them
    "state_groups "  # whose states are cached: states.py
    "state_blocks "  # of each beside its states: those of drafts
    "depth "  # iterations in flight: 1 sync, 2 async
    "prefix_caching "
    "longest_jump "  # iterations; any value gives the same result
    "recording "  # 1: iterations are written to the log
    "attention_s "
    "request_s "  # from a request's arrival to the queue
    "seed "
    "reserves "  # 1: requests take all their blocks when admitted
    "keeps_batch "  # 1: while nothing waits all decode, see Rules
    "prompt_budget "  # 1: decodes come on top of the token budget
    "bins_start_s "  # of the series
    "bin_width_s "
    "counts_late "  # 1: a class has a limit on each gap
    "block_link_s "  # copy of a block to or from the host
    "host_blocks "  # of a replica
    "examined "  # 1: each call of the scheduler, see examine.py
    "ranks "  # of a replica; 1: it is no group
    "tokens_per_request "  # computed of a decode
    "verifies "  # 1: drafts, see speculation.py
    "largest_graph "  # tokens; 0: nothing is padded
    "balance "  # how a rank is chosen: see group_queue.py
    "sync_interval "  # steps after which ranks agree to pause
    "prefill_interval "  # steps of which one may have prompts
    "asked"  # 1: ranks ask the scheduler also where they only decode
)

ORDER = _record(
    "key "  # requests stand in order of key, then of tie_break
    "tie_break "
    "left "  # in the tree: see ordered.py
    "right up "
    "ordered"  # 1: it is in the tree
)
"""Where a request stands, of schedulers that keep an order."""

PAUSE = _record(
    "since_s "  # NaN: it is not paused
    "paused_s"  # time with KV but not running
)
"""Of schedulers that let requests sit out."""

SWAP = _record(
    "host_blocks "  # its KV on the host
    "swaps "  # times its KV went there
    "ready_s"  # when its KV has been copied
)
"""Of schedulers that move KV to the host."""

RESULT = _record(
    "row request_class replica preemptions cached_tokens prompt_tokens output_tokens "
    "predicted_tokens arrival_s scheduled_s first_token_s finish_s longest_gap_s "
    "late_gaps swaps paused_s migrations handed_s"
)

ITERATION = _record(
    "replica sched_s start_s end_s ctx_reqs ctx_tokens gen_reqs gen_ctx running "
    "waiting free_blocks preempted "
    "entries_end"  # where its entries stop in the entries log
)

ENTRY = _record("row computed scheduled")

BIN = _record(
    "busy_s "  # replica seconds with an iteration running
    "batch_s "  # request seconds running
    "waiting_s "  # request seconds waiting
    "kv_block_s"  # block seconds in use
)

BLOCK = _record(
    "next "  # in the queue of free blocks
    "previous "
    "owner "  # prefix group, or -2 - row of the request; NONE: no hash
    "index "  # which block of the owner's tokens
    "count "  # of a run without a hash; 1 with one
    "references "
    "next_same"  # next block with the same hash, younger
)

RUN = _record(
    "holder "  # a list of a replica; NONE: unused
    "group "  # whose blocks; NONE: blocks that nobody can share
    "part "  # prompt tokens that end in a block not full; 0: full ones
    "low "  # blocks low + 1 to high of the group
    "high "
    "at_s "  # when they were last sent
    "turn "  # and by which arrival
    "since "  # arrival since which its holder has some of the group
    "count "  # requests that have them: active_blocks.py
    "next "  # of its holder, oldest first
    "previous "
    "above "  # of the same group: the run that was put over it
    "below "
    # Not of this run: all arrays of the state are passed with each call, so that
    # one with these costs less than three.
    "entry "  # in this row of their hash table: run_table.py
    "point"  # at this place of a ring of hashes: hash_ring.py
)
"""Blocks of a prefix group that were sent to a replica together: prefix_memory.py."""

GAP = _record("step gap_s")

BY_BATCH = _record("decode_s decode_context_s fused_decode_s fused_context_s")
"""Latency tables by the number of requests in the batch, see latency/contract.py."""
