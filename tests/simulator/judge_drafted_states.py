"""vLLM V1 with states and drafts: judges ``vllm_v1_states_speculative``.

``judge_speculative.py`` with the table of blocks of vLLM 0.32 (``MambaManager``), kept
for each group: nothing where a state was skipped or is free, then the newest state, and
behind it a block for each draft, which moves on with it.
"""

import judge_speculative
from judge import Pool
from judge_states import StatePool


class DraftedPool(StatePool):
    """Blocks of KV, of states and of the states of drafts."""

    def __init__(self, engine):
        super().__init__(engine)
        self.drafts = engine.speculation.drafts
        self.drops = engine.speculation.drops_block
        self.begun = set()  # they have blocks of drafts
        self.entered = {}  # blocks of a request that were looked at for a hash

    def states_of(self, request):
        return self.states.setdefault(request, [[] for _ in self.groups])

    def last(self, tokens):
        """Return the blocks before the last state that is kept of so many tokens."""
        if self.drops:
            return max(0, tokens // self.block_size - 1)
        return (tokens - 1) // self.block_size

    def hits(self, request):
        blocks = []
        left = 0 if self.drops else 1
        for k in range((len(request.tokens) - left) // self.block_size):
            same = self.found.get(self.content(request, k))
            if not same:
                break
            blocks.append(same[0])
        return blocks[:-1] if self.drops else blocks

    def new_states(self, request, after):
        needed = self.blocks_for(after) + self.drafts
        each = 1 if request in self.begun else 1 + self.drafts
        return sum(each * (needed > len(table)) for table in self.states_of(request))

    def hold(self, request, after, tokens):
        """Take the states' blocks behind ``after`` tokens; hash what they fill."""
        needed = self.blocks_for(after) + self.drafts
        skipped = needed - self.drafts - 1
        for table in self.states_of(request):
            before = len(table)
            if needed <= before:
                continue
            table += [None] * (skipped - before)
            if request in self.begun:
                for k in range(before - self.drafts, min(before, skipped)):
                    table.append(table[k])
                    table[k] = None
            table += [self.take() for _ in range(needed - len(table))]
        self.begun.add(request)
        self.enter(request, tokens)
        last = self.last(request.prompt_count)
        if last and tokens // self.block_size == last:
            for group, table in enumerate(self.states_of(request)):
                if table[last - 1] is not None:
                    self.hashed_now.add(self.name(request, group, last - 1))

    def enter(self, request, tokens):
        Pool.enter(self, request, tokens)
        full = tokens // self.block_size
        for group, table in enumerate(self.states_of(request)):
            for index in range(self.entered.get(request, 0), full):
                block = table[index]
                if block is not None:
                    block.content = self.name(request, group, index)
                    self.found.setdefault(block.content, []).append(block)
                    self.hashed_now.add(block.content)
        self.entered[request] = max(full, self.entered.get(request, 0))

    def free_states(self, request, before):
        for table in self.states_of(request):
            first, last = [], []
            for index in range(min(before, len(table)) - 1, -1, -1):
                block, table[index] = table[index], None
                if block is not None:
                    block.references -= 1
                    if block.references == 0:
                        (first if block.content is None else last).append(block)
            self.free = first + self.free + last

    def take_back(self, request):
        self.free_states(request, max(map(len, self.states_of(request))))
        Pool.take_back(self, request)
        self.begun.discard(request)
        for kept in (self.states, self.entered):
            kept.pop(request, None)


class DraftedStateReplica(judge_speculative.Replica):
    """One engine that keeps states and verifies drafts."""

    def __init__(self, tables, engine, index, seed, line):
        super().__init__(tables, engine, index, seed, line)
        self.pool = DraftedPool(engine)
        self.junction = {}  # of a request: where it has KV in common, but no state
        self.chunk_start = {}  # of its newest chunk

    def schedule(self):
        self.pool.hashed_now = set()
        return super().schedule()

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
        stops = [self.pool.last(known) * size, self.junction.get(request, 0)]
        if start % size:
            stops.append((start // size + 1) * size)
        return max(0, min([s for s in stops if start < s < end], default=end) - start)

    def looked_at(self, request):
        """Free the states before the newest one of which all is collected."""
        if not request.verifies:
            collected = max(0, request.computed - request.in_flight)
        elif request.collected == 0 and len(request.tokens) == request.kv_tokens(
            0, self.line
        ):
            collected = self.chunk_start[request]
        else:
            collected = request.kv_tokens(request.collected, self.line)
        self.pool.free_states(request, (collected - 1) // self.pool.block_size)

    def missing(self, request, slots):
        return super().missing(request, slots) + self.pool.new_states(request, slots)

    def give(self, request, slots, hits):
        super().give(request, slots, hits)
        if request in self.pool.begun:  # else its states come first
            self.hold(request, slots)

    def hold(self, request, slots):
        self.pool.hold(request, slots, min(slots, len(request.tokens)))

    def part(self, request, new):
        self.chunk_start[request] = request.computed
        return super().part(request, new)

    def admissions(self, budget, runs, goes_on):
        parts, pool, size = [], self.pool, self.pool.block_size
        while self.waiting and self.seats_left and budget > 0:
            request = self.waiting[0]
            if request.stale:
                break
            found = pool.hits(request)
            count, states = pool.state_hits(request, found)
            self.junction[request] = len(found) * size if len(found) > count else 0
            hits, start, known = found[:count], count * size, len(request.tokens)
            padded = known - start == 1 and (runs or start > 0) and not goes_on
            padding = (self.verified - 1) * int(padded)
            if padding and 1 + padding > budget:
                break
            new = self.cut(request, start, min(known - start, budget))
            if new == 0 or any(state.content in pool.hashed_now for state in states):
                break
            slots = start + new + padding
            needed = pool.missing(request, max(known, slots + self.lookahead), hits)
            needed += len(pool.groups) * self.verified
            needed += sum(state.references == 0 for state in states)
            if needed > len(pool.free):
                break
            pool.entered[request] = count
            for table, state in zip(pool.states_of(request), states, strict=False):
                if state.references == 0:
                    pool.free.remove(state)
                state.references += 1
                table += [None] * (count - 1) + [state]
            self.give(request, slots, hits)
            self.hold(request, slots)
            if request.scheduled_s is None:
                request.cached_tokens = start
            self.admit()
            request.computed, request.padding = start, padding
            parts.append(self.part(request, new))
            budget -= new + padding
        return parts
