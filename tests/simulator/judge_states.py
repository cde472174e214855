"""vLLM V1 where prefix caching keeps recurrent states: judges ``vllm_v1_states``.

One object per block and group, each rule as vLLM 0.32 has it in ``MambaManager`` and
``Scheduler._mamba_block_aligned_split``, one iteration at a time.
"""

from dataclasses import replace

from judge import Batch, Pool, Replica
from judge_schedulers import from_queue


class StatePool(Pool):
    """Blocks of KV and of states, which come from one list."""

    def __init__(self, engine):
        super().__init__(replace(engine, bounded_groups=0, state_groups=0))
        self.groups = range(engine.state_groups)
        self.states = {}  # of a request: for each group, blocks by their index
        self.hashed_now = set()

    def name(self, request, group, index):
        return group, self.content(request, index)

    def states_of(self, request):
        return self.states.setdefault(request, [{} for _ in self.groups])

    def new_states(self, request, after):
        """Blocks that the state behind ``after`` tokens takes."""
        index = self.blocks_for(after) - 1
        return sum(index not in held for held in self.states_of(request))

    def hold(self, request, after):
        """Let a request hold what ``after`` tokens need; hash what they fill."""
        self.give(request, after, [])
        index = self.blocks_for(after) - 1
        for held in self.states_of(request):
            if index not in held:
                held[index] = self.take()
        known = min(after, len(request.tokens))
        last = (request.prompt_count - 1) // self.block_size
        for group, held in enumerate(self.states_of(request)):
            fresh = [i for i in held if held[i].content is None]
            again = [i for i in held if i + 1 == last == known // self.block_size]
            for i in [*fresh, *again]:
                if (i + 1) * self.block_size <= known:
                    self.hashed_now.add(self.name(request, group, i))
        self.enter(request, known)

    def enter(self, request, tokens):
        super().enter(request, tokens)
        for group, held in enumerate(self.states_of(request)):
            for index, block in held.items():
                full = (index + 1) * self.block_size <= tokens
                if full and block.content is None:
                    block.content = self.name(request, group, index)
                    self.found.setdefault(block.content, []).append(block)

    def free_states(self, request, before):
        """Free the states of blocks before an index, in each group the last first."""
        for held in self.states_of(request):
            first, last = [], []
            for index in sorted((i for i in held if i < before), reverse=True):
                block = held.pop(index)
                block.references -= 1
                if block.references == 0:
                    (first if block.content is None else last).append(block)
            self.free = first + self.free + last

    def take_back(self, request):
        self.free_states(request, len(self.free) + len(request.tokens))
        super().take_back(request)

    def state_hits(self, request, hits):
        """Return how many blocks are found with the state behind them, and states."""
        for count in range(len(hits), 0, -1):
            names = [self.name(request, group, count - 1) for group in self.groups]
            if all(self.found.get(name) for name in names):
                return count, [self.found[name][0] for name in names]
        return 0, []


class StateReplica(Replica):
    """One engine that keeps states."""

    def __init__(self, tables, engine):
        super().__init__(tables, engine, "vllm-v1")
        self.pool = StatePool(engine)
        self.junction = {}  # of a request: where it has KV in common, but no state
        self.sat_out = 0

    def cut(self, request, start, new):
        """Return the tokens of a chunk that ends where its state is to be kept."""
        size, known = self.pool.block_size, len(request.tokens)
        prompt_end = max(request.prompt_count, known - 1)
        if start >= prompt_end:
            return new
        end = start + new
        if end < prompt_end:
            floor = end // size * size
            if floor > start or size <= self.engine.max_num_batched_tokens:
                end = floor
        stops = [(known - 1) // size * size, self.junction.get(request, 0)]
        if start % size:
            stops.append((start // size + 1) * size)
        return max(0, min([s for s in stops if start < s < end], default=end) - start)

    def schedule(self):
        self.pool.hashed_now = set()
        budget = self.engine.max_num_batched_tokens
        parts, preempted = [], False
        for request in list(self.running):
            if budget == 0:
                self.sat_out += request.computed > len(request.tokens) - 2
                continue
            if request.placeholders and (
                request.computed + 2 - request.placeholders
                >= request.prompt_count + request.output_count
            ):
                continue
            wanted = len(request.tokens) + request.placeholders - request.computed
            new = self.cut(request, request.computed, min(wanted, budget))
            if request not in self.running or new == 0:
                continue
            collected = max(0, request.computed - request.in_flight)
            self.pool.free_states(request, (collected - 1) // self.pool.block_size)
            after = request.computed + new
            while self.missing(request, after) > len(self.pool.free):
                preempted = True
                victim = self.running.pop()
                self.preempt(victim)
                if victim is request:
                    break
            if request not in self.running:
                break
            self.pool.hold(request, after)
            parts.append((request, request.computed, new))
            budget -= new
        if not preempted:
            parts += from_queue(self, budget, StateReplica.admitted)
        self.fewest_free = min(self.fewest_free, len(self.pool.free))
        if not parts:
            return Batch([], self.now_s)
        return Batch(self.started(parts), self.run(parts))

    def missing(self, request, after):
        states = self.pool.new_states(request, after)
        return self.pool.missing(request, after, []) + states

    def admitted(self, budget):
        """Admit the head of the queue, or return None."""
        request, pool = self.waiting[0], self.pool
        found = pool.hits(request)
        count, states = pool.state_hits(request, found)
        size = pool.block_size
        self.junction[request] = len(found) * size if len(found) > count else 0
        hits, start, known = found[:count], count * size, len(request.tokens)
        new = self.cut(request, start, min(known - start, budget))
        if new == 0 or any(state.content in pool.hashed_now for state in states):
            return None
        needed = pool.missing(request, known, hits) + len(pool.groups)
        needed += sum(state.references == 0 for state in states)
        if needed > len(pool.free):
            return None
        pool.give(request, start, hits)
        for held, state in zip(pool.states_of(request), states, strict=False):
            if state.references == 0:
                pool.free.remove(state)
            state.references += 1
            held[count - 1] = state
        pool.hold(request, start + new)
        if request.scheduled_s is None:
            request.cached_tokens = start
        self.admit()
        return [(request, start, new)]
