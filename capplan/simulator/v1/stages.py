"""Pipeline parallelism: micro-batches, and the steps that are in flight.

vLLM 0.32 with model runner V2 and async scheduling, its default: up to stages + 1 steps
are in flight (config/vllm.py, ``max_concurrent_batches``), and a request decodes again
``stages`` steps after its last (v1/core/sched/async_scheduler.py). So it stays among
those whose steps have the same number modulo the stages: a micro-batch, which is a
record of ``State.ranks`` with its decodes, their order of completion and gaps. Queue,
seats and KV are the replica's. The unfinished prompt goes on in every step, and a
preempted request whose result is in flight is skipped, not blocking.

A step without requests takes no time, but counts and has its place in flight. They are
the ``iterations`` of a replica; its ``step`` counts those with requests.

``replica_memory`` has at its end a column for each stage, the end of its newest step
[s], and three for each step in flight: see engine/in_flight.py.
"""

from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Knob, indices
from capplan.simulator.capable import Capability
from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, places
from capplan.simulator.engine.batch import preempt, return_to_queue
from capplan.simulator.engine.decoding import decode_again, stop_decoding
from capplan.simulator.engine.in_flight import (
    IN_FLIGHT,
    PLACE,
    collected_step,
    place_of,
)
from capplan.simulator.engine.speculation import findable_tokens
from capplan.simulator.engine.verifying import verify_with
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase, State
from capplan.simulator.v1 import adapters

SETTINGS = {
    **adapters.SETTINGS,
    # Of a stage's time what adapters do not lengthen, of each step,
    "fixed_s": Knob(0.0, least=0.0),
    "fixed_request_s": Knob(0.0, least=0.0),  # each of its decodes,
    "fixed_token_s": Knob(0.0, least=0.0),  # and each of its tokens
}
SETTING = indices(SETTINGS)
MEMORY = places(REPLICA_COLUMNS, "stages")
REQUEST = places(REQUEST_COLUMNS, "stages")


def _replica_columns(engine: EngineSettings) -> tuple[str, ...]:
    """Return the columns of a replica for its stages and the steps in flight."""
    stages = engine.pipeline_parallel_size
    ends = tuple(f"stage_{i}" for i in range(stages))
    steps = (f"{name}_{k}" for k in range(stages + 1) for name in IN_FLIGHT)
    return (*ends, *steps)


def _request_columns(engine: EngineSettings) -> tuple[str, ...]:
    """Return the last columns of a request, for each step in flight.

    With states the tokens that it had before, then the step if it is in it.
    """
    steps = range(engine.pipeline_parallel_size + 1)
    before = tuple(f"before_{k}" for k in steps if engine.keeps_states)
    noted = engine.keeps_states or engine.images is not None
    return (*before, *(f"in_flight_{k}" for k in steps if noted))


def _values(engine: EngineSettings) -> dict[str, float]:
    pipeline = engine.pipeline
    assert pipeline is not None
    whole = 1 - pipeline.share
    return {
        "fixed_s": pipeline.hop_s + whole * pipeline.own_s,
        "fixed_request_s": whole * pipeline.own_request_s,
        "fixed_token_s": pipeline.hop_token_s,
    }


CAPABILITY = Capability(
    lambda engine: engine.pipeline is not None,
    settings=SETTINGS,
    values=_values,
    request_columns=_request_columns,
    replica_columns=_replica_columns,
)


@inlined()
def stage_count(state: State):
    """Return the stages: one step more may be in flight."""
    return state.engine[0].depth - 1


@inlined()
def first_stage(state: State):
    """Return the column of the first stage."""
    depth = state.engine[0].depth
    return state.replica_memory.shape[1] - (depth - 1) - len(IN_FLIGHT) * depth


@inlined()
def micro_batch_of(state: State, r: int, step):
    """Return the row in ``State.ranks`` of the micro-batch that decodes in a step."""
    stages = stage_count(state)
    return r * stages + step % stages


@inlined()
def next_step(state: State, r: int):
    """Return the step that is put together."""
    return state.replicas[r].iterations + 1


@inlined()
def next_micro_batch(state: State, r: int):
    """Return the micro-batch that decodes in it."""
    return micro_batch_of(state, r, next_step(state, r))


@inlined()
def tokens_s(state: State, r: int, step):
    """Return when the tokens that a step's micro-batch had last are there. [s]"""
    memory = state.replica_memory[r]
    place = place_of(state, step - stage_count(state))
    return memory[place + PLACE.gives] * memory[place + PLACE.end_s]


@inlined()
def is_stale(state: State, r: int, slot: int):
    """Return whether what a waiting request computed before is still in flight."""
    if state.requests[slot].phase != Phase.WAITING:
        return True
    last_step = state.request_memory[slot, REQUEST.last_step]
    return last_step > collected_step(state, r)


@inlined()
def decodes_next(state: State, r: int, slot: int):
    """Return whether a running request decodes with the step's micro-batch."""
    if state.requests[slot].phase != Phase.DECODING:
        return False
    m = int(state.request_memory[slot, REQUEST.micro_batch])
    return m == next_micro_batch(state, r)


@inlined()
def is_elsewhere(state: State, r: int, slot: int):
    """Return whether a running request decodes with another micro-batch, or did so."""
    phase = state.requests[slot].phase
    if phase != Phase.DECODING and phase != Phase.DRAINING:
        return False
    m = int(state.request_memory[slot, REQUEST.micro_batch])
    return m != next_micro_batch(state, r)


@inlined()
def note_step(state: State, r: int, slot: int):
    """Note that the step computes a chunk of a request's prompt.

    With its micro-batch the request decodes if that is the last one.
    """
    memory = state.request_memory[slot]
    memory[REQUEST.micro_batch] = next_micro_batch(state, r)
    memory[REQUEST.resumes] = 0
    memory[REQUEST.step_before] = memory[REQUEST.last_step]
    memory[REQUEST.last_step] = next_step(state, r)


@inlined()
def turn_of(state: State, step):
    """Return the column of a request that says whether it is in a step in flight."""
    depth = state.engine[0].depth
    return state.request_memory.shape[1] - depth + step % depth


@inlined()
def note_in_flight(state: State, r: int, slot: int, start):
    """Note that the step has tokens of a request, behind ``start`` others."""
    step = next_step(state, r)
    memory = state.request_memory[slot]
    memory[turn_of(state, step)] = step
    if state.engine[0].state_groups > 0:
        memory[turn_of(state, step) - state.engine[0].depth] = start


@inlined()
def was_in(state: State, slot: int, step):
    """Return whether a request is in one of the steps in flight."""
    return state.request_memory[slot, turn_of(state, step)] == step


@inlined()
def forget_turn(state: State, r: int, slot: int):
    """Take a request that is preempted out of the step, if it is in it."""
    step = next_step(state, r)
    if was_in(state, slot, step):
        state.request_memory[slot, turn_of(state, step)] = 0.0


@inlined()
def note_refused(state: State, r: int, refused):
    """Note whether the step has no room for the head of the queue."""
    state.replica_memory[r, MEMORY.refused] = refused


@inlined()
def look_at_arrivals(state: State, r: int):
    """Let every micro-batch look at the queue where requests have come since.

    One may take a request whose adapter is one too many for another, or evict other
    images for it. Return how many there are.
    """
    if state.replicas[r].waiting_count != state.replica_memory[r, MEMORY.waiting]:
        unsettle(state, r)
    return stage_count(state)


@inlined()
def unsettle(state: State, r: int):
    """Note that the next steps may differ from those before."""
    state.replica_memory[r, MEMORY.settled] = 0.0


@inlined()
def _last_decode(state: State, r: int, slot: int):
    """Return the newest step before this one in which a decoding request was."""
    stages = stage_count(state)
    memory = state.request_memory[slot]
    step = next_step(state, r)
    since = (step - (int(memory[REQUEST.micro_batch]) - r * stages)) % stages
    turn = step - (stages if since == 0 else since)
    return int(memory[REQUEST.last_step]) if turn < memory[REQUEST.resumes] else turn


@compiled()
def miss_step(state: State, r: int, slot: int):
    """Let a decode sit the step out: it joins the micro-batch of the next."""
    memory = state.request_memory[slot]
    step = next_step(state, r)
    memory[REQUEST.last_step] = _last_decode(state, r, slot)
    memory[REQUEST.resumes] = step + 1
    m = micro_batch_of(state, r, step)
    other = micro_batch_of(state, r, step + 1)
    memory[REQUEST.micro_batch] = other
    if state.engine[0].verifies != 0:
        verify_with(state.by_rank, m, slot, other)
    else:
        stop_decoding(state.by_rank, m, slot)
        decode_again(state.by_rank, other, slot)


@compiled()
def preempt_staged(state: State, r: int, slot: int, taken):
    """Free a running request's KV and put it first in the queue, as ``preempt``."""
    request = state.requests[slot]
    memory = state.request_memory[slot]
    if request.phase != Phase.DECODING:
        if request.chunk_step == state.replicas[r].step + 1:
            memory[REQUEST.last_step] = memory[REQUEST.step_before]
        preempt(state, r, slot, taken)
        return
    last_step = _last_decode(state, r, slot)
    memory[REQUEST.last_step] = last_step
    admitted_tokens = request.known_tokens
    m = int(memory[REQUEST.micro_batch])
    verifies = state.engine[0].verifies != 0
    hashed = 0
    if verifies:
        hashed = findable_tokens(state.by_rank, m, slot, True, taken)
    held = stop_decoding(state.by_rank, m, slot)
    state.replicas[r].prefill_tokens += held + 1
    request.token_step = NONE
    held += taken
    if verifies:
        held = request.room_tokens
        request.room_tokens = 0
    else:
        flies = last_step > collected_step(state, r)
        hashed = held - int(flies and held > admitted_tokens)
    return_to_queue(state, r, slot, held, hashed, Phase.WAITING)
