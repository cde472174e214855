"""What V1's scheduler remembers of requests and replicas, beside their records.

Columns of ``State.request_memory`` and ``replica_memory``, by what needs them. They
stand at the same place in every set of capabilities: a set has all up to its last.
"""

from collections.abc import Iterable
from typing import Any

from capplan.deployment.policy import indices

REQUEST_COLUMNS: dict[str, tuple[str, ...]] = {
    "copies": (
        "source",  # prefill replica that has its KV, from 1; 0: it wants no copy
        "slot",  # its slot there
        "ready_s",  # when the copy is here; 0: it has not begun
        "known",  # call of the scheduler from which it is known; 0: not looked for yet
        "chunk",  # by priority: the iteration with its last chunk but one
    ),
    "drafts": (
        "began",  # iteration of the replica before its first decode
        "base",  # KV tokens then [tokens]
        "iterations",  # that it takes: N
        "gained",  # tokens before the last of them: S [tokens]
        "total",  # and with it, also those beyond its output [tokens]
        "growth",  # of its context in an iteration [parts]
        "drawn",  # iterations before a preemption
        "discarded",  # 1: it is computed once more when it has all its tokens
        "sat_out",  # iteration that last had no budget for it, or went before it
        "sat_since",  # the first that it sat out, up to that one; 0: all before
        "sat_s",  # when it had its last token before them [s]
        "padded",  # drafts beside the tokens before its first iteration, not accepted
        "before",  # KV tokens before the iteration that put it on its line [tokens]
        "earlier",  # and before the one before, where drafts were cut in that one
    ),
    "images": (
        "count",  # how many it has, as it is known when it arrives
        "tokens",  # of each
        "offset",  # tokens before the first
        "shared",  # how many are those of its prefix group
        "group",  # which is that, whatever its adapter
        "first",  # images before it are computed
        "end",  # images from it on are not looked at yet
        "newest",  # iteration in which it last ran
        "before",  # and the one before
        "since",  # iterations that it was in since the one that ended its prompt
        "beyond",  # tokens that it knew then beside its prompt
        "encoded",  # images that the one in which it last ran encoded
    ),
    "stages": (
        "micro_batch",  # with which it decodes, a row of ``State.ranks``
        "last_step",  # in which it was, before it decoded or missed its turn
        "step_before",  # and the one before
        "resumes",  # step from which it decodes again, having missed its turn
    ),
    "states": (
        "held",  # states of each group
        "step",  # the last iteration with a chunk of it, or that it sat out
        "start_tokens",  # what it had computed before
        "shared_tokens",  # where others have KV in common with it, but no state
        "due",  # the next iteration in which its blocks may change
        "known",  # tokens known when it last had a chunk or verified fewer drafts
    ),  # then for each state its block, and its record in each group: kv/states.py
    "tiers": (
        "stored",  # chunks that were offered to the tier, or loaded from it
        "transfers",  # copies of it that are not known to have ended
        "load",  # 1: one from the tier; 2: it has ended; 3: its blocks can be found
        "here",  # tokens that it has then
        "tier_tokens",  # of all its loads
        "load_s",  # when the last began to wait [s]
        "rank",  # when it first used a chunk
        "moved",  # chunk of it that was moved last in the order of use, from 1
        "found",  # of one that ended: its blocks before which others found since
        "taken",  # the first of its blocks taken since, from 1
        "holds",  # 1: it has its blocks yet; 2: and has all stored
    ),
}
REPLICA_COLUMNS: dict[str, tuple[str, ...]] = {
    "copies": (
        "wanting",  # requests that want a copy and have no blocks
        "link_s",  # until when a copy is received
        "calls",  # of the scheduler so far
        "unknown",  # 1: at the last one a copy was here of which it did not know
        "placed",  # by priority: requests that have come so far
        "reserved",  # blocks that requests with a copy will take when they run
        "withheld",  # of requests that the iteration in flight computes and discards
        "starting",  # blocks that those with drafts take later that run from now on
        "unfinished",  # the prompt that was not done when the scheduler was called
        "waiting_behind",  # admission behind which requests sit the iteration out
    ),
    "drafts": (
        "context",  # of the requests that decode, with the next token [parts]
        "growth",  # of that in an iteration [parts]
        "padded",  # drafts of the next iteration that are none [tokens]
        "loose",  # by which slots grew since counted, at most; 0: they are [parts]
        "more_count",  # requests of it that do not decode, less those that sit out
        "more_parts",  # and their contexts [parts]
        "spare",  # blocks left for decodes while these are not counted; -1: looked at
        "pads",  # beside which last tokens it has drafts that are none
    ),
    "cadence": (
        "capacity_bound",  # 1: prompts were left waiting, none is put off
    ),
    "images": (
        "items",  # images in the cache
        "cached_tokens",  # of them
        "held_tokens",  # of those that requests refer to
        "left",  # references dropped so far
        "budget",  # tokens that may still be encoded in this one
        "encode_s",  # of all images that it encodes [s]
        "longest_s",  # of the longest of them [s]
        "unfinished",  # running requests whose prompt is not done
        "may_lose",  # 1: the head waits, and blocks that it finds may be taken
    ),
    "adapters": (
        "used",  # schedulings so far
        "distinct",  # adapters of the next iteration
        "slots_used",
    ),
    "stages": (
        "settled",  # newest steps of decodes alone, to which no request could be added
        "refused",  # 1: the newest one had no room for the head of the queue
        "waiting",  # requests in the queue behind it
    ),  # then, behind all others, each stage and each step in flight: v1/stages.py
    "states": (
        "earliest",  # the first iteration in which one that decodes is due
    ),
    "tiers": (
        "oldest",  # chunk that was used longest ago, from 1
        "newest",
        "unused",  # first chunk that lost its content, from 1; ``next`` follows
        "used",  # chunks that have had one
        "free",  # chunks without one
        "idle",  # chunks that are not copied
        "first",  # copy that is not known to have ended, from 1
        "last",
        "calls",  # of the scheduler so far
        "admitted",  # requests before this one
        "step",  # the newest iteration before it
        "rests",  # 1: the last one had nothing to run, and nothing was in flight
        "rested_s",  # when it had nobody, of one that computed in vain since; 0: no [s]
        "launch_s",  # of the last one [s]
        "flush_s",  # until when this one waits for copies; -1: for none [s]
        "fenced",  # copies of requests that have ended
        "offered",  # 1: chunks had no room, and are offered again
        "holding",  # ended requests that have their blocks yet, from 1
        "ended",  # requests that have ended since the last call, from 1
        "ended_last",
        "loads",  # copies that have begun
        "stores",
        "loaded_blocks",
        "stored_blocks",
        "rank",  # of the newest use
        "evicted",  # chunks
        "refused",  # stores for which there was no room
        "flushed",  # iterations that waited for copies, or would have
        "load_s",  # time that copies take [s]
        "store_s",
        "wait_s",  # from the begin of a request's load until it runs [s]
    ),
}


def columns_up_to(
    table: dict[str, tuple[str, ...]], needed: Iterable[str]
) -> tuple[str, ...]:
    """Return the columns of all up to the last that is needed, by their places."""
    last = max(
        (list(table).index(name) for name in needed if name in table), default=-1
    )
    return tuple(
        f"{name}.{column}" for name in list(table)[: last + 1] for column in table[name]
    )


def places(table: dict[str, tuple[str, ...]], name: str) -> Any:
    """Return the index of each column of one, as compiled functions read them."""
    before = list(table)[: list(table).index(name)]
    return indices(table[name], sum(len(table[other]) for other in before))


def end_of(table: dict[str, tuple[str, ...]], name: str) -> int:
    """Return the index behind the last column of one."""
    return len(columns_up_to(table, [name]))
