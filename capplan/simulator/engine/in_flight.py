"""Steps in flight of pipeline stages, more than a replica's record has places for.

The last columns of ``replica_memory`` are three for each: see ``IN_FLIGHT``.
"""

from capplan.deployment.policy import indices
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, State

IN_FLIGHT = (
    "end_s",  # on the last stage
    "finishing",  # requests whose last token is in it, a list
    "gives",  # 1: it computes tokens, for which the step of its micro-batch waits
)
PLACE = indices(IN_FLIGHT)


@inlined()
def place_of(state: State, step):
    """Return the first column of a step in flight."""
    depth = state.engine[0].depth
    return state.replica_memory.shape[1] - len(IN_FLIGHT) * (depth - step % depth)


@inlined()
def collected_step(state: State, r: int):
    """Return the newest step whose result was collected."""
    return state.replicas[r].iterations - state.replicas[r].in_flight


@inlined()
def show_oldest(state: State, r: int):
    """Let the replica's record have its two oldest steps."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    oldest = collected_step(state, r) + 1
    place = place_of(state, oldest)
    replica.oldest_end_s = memory[place + PLACE.end_s]
    replica.oldest_finishing = int(memory[place + PLACE.finishing])
    replica.newest_finishing = NONE
    if replica.in_flight > 1:
        place = place_of(state, oldest + 1)
        replica.newest_end_s = memory[place + PLACE.end_s]
        replica.newest_finishing = int(memory[place + PLACE.finishing])


@inlined()
def put_in_place(state: State, r: int, step, end_s, gives):
    """Note the newest step."""
    memory = state.replica_memory[r]
    place = place_of(state, step)
    memory[place + PLACE.end_s] = end_s
    memory[place + PLACE.finishing] = NONE
    memory[place + PLACE.gives] = gives
    state.replicas[r].iterations = step


@compiled()
def end_vain(state: State, r: int, now_s):
    """Let a replica without requests collect the steps that end before a moment.

    The engine waits for the next one, and has put a step without requests behind all:
    it tells the workers who has finished (vLLM 0.32, ``Scheduler.has_requests``).
    """
    replica = state.replicas[r]
    show_oldest(state, r)
    while replica.in_flight > 0 and replica.oldest_end_s < now_s:
        replica.now_s = max(replica.now_s, replica.oldest_end_s)
        replica.in_flight -= 1
        show_oldest(state, r)
    if replica.in_flight > 0:
        replica.now_s = max(replica.now_s, replica.oldest_end_s)
        put_in_place(state, r, replica.iterations + 1, replica.now_s, 0.0)
        show_oldest(state, r)
