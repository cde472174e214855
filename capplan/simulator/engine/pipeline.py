"""Pipeline parallelism: micro-batches, and the steps that are in flight.

vLLM 0.32 with model runner V2 and async scheduling, its default: up to stages + 1 steps
are in flight (config/vllm.py, ``max_concurrent_batches``), and a request decodes again
``stages`` steps after its last (v1/core/sched/async_scheduler.py). So it stays among
those whose steps have the same number modulo the stages: a micro-batch, which is a
record of ``State.ranks`` with its decodes, their order of completion and gaps. Queue,
seats and KV are the replica's.

A step without requests takes no time, but counts and has its place in flight.

``replica_memory`` has, after ``FIELDS``, a column for each stage, the end of its newest
step [s], and three for each step in flight: see ``IN_FLIGHT``.
"""

from capplan.deployment.pipeline import Pipeline
from capplan.deployment.policy import Policy, Rules, indices
from capplan.simulator.jit import inlined
from capplan.simulator.state import NONE

FIELDS = (
    "step",  # newest scheduled one, also without requests
    "settled",  # newest steps of decodes alone, to which no request could be added
    "refused",  # 1: the newest one had no room for the head of the queue
)
IN_FLIGHT = (
    "end_s",  # on the last stage
    "finishing",  # requests whose last token is in it, a list
    "gives",  # 1: it computes tokens, for which the step of its micro-batch waits
)
RULES = Rules(
    async_scheduling=True,
    prefix_caching=True,
    request_columns=("micro_batch", "last_step"),
    replica_columns=FIELDS,
    keeps_batch=False,
)
MEMORY = indices(FIELDS)
PLACE = indices(IN_FLIGHT)
REQUEST = indices(RULES.request_columns)
STAGE = len(FIELDS)
"""Column of the first stage."""


def pipeline_policy(pipeline: Pipeline) -> Policy:
    """Return vLLM V1's scheduler for a pipeline, which no user names."""
    stages = tuple(f"stage_{i}" for i in range(pipeline.stages))
    places = range(pipeline.stages + 1)
    steps = tuple(f"{name}_{k}" for k in places for name in IN_FLIGHT)
    rules = RULES._replace(replica_columns=(*FIELDS, *stages, *steps))
    return Policy("vllm-v1-pipeline", rules)


@inlined()
def stage_count(state):
    """Return the stages: one step more may be in flight."""
    return state.engine[0].depth - 1


@inlined()
def micro_batch_of(state, r, step):
    """Return the row in ``State.ranks`` of the micro-batch that decodes in a step."""
    stages = stage_count(state)
    return r * stages + step % stages


@inlined()
def place_of(state, step):
    """Return the first column of a step in flight."""
    depth = state.engine[0].depth
    return STAGE + depth - 1 + len(IN_FLIGHT) * (step % depth)


@inlined()
def put_in_place(state, r, step, end_s, gives):
    """Note the newest step."""
    memory = state.replica_memory[r]
    place = place_of(state, step)
    memory[place + PLACE.end_s] = end_s
    memory[place + PLACE.finishing] = NONE
    memory[place + PLACE.gives] = gives
    memory[MEMORY.step] = step


@inlined()
def tokens_s(state, r, step):
    """Return when the tokens that a step's micro-batch had last are there. [s]"""
    memory = state.replica_memory[r]
    place = place_of(state, step - stage_count(state))
    return memory[place + PLACE.gives] * memory[place + PLACE.end_s]


@inlined()
def collected_step(state, r):
    """Return the newest step whose result was collected."""
    return int(state.replica_memory[r, MEMORY.step]) - state.replicas[r].in_flight


@inlined()
def is_stale(state, r, slot):
    """Return whether what a waiting request computed before is still in flight."""
    last_step = state.request_memory[slot, REQUEST.last_step]
    return last_step > collected_step(state, r)
