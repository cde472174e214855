"""Blocks of KV and of recurrent states, one object per block and a value per token.

vLLM 0.32: ``BlockPool``, ``FullAttentionManager`` and, where prefix caching keeps
states, ``MambaManager`` ("align"): the table of each of its groups has nothing where a
state was skipped or is free, then the newest state, and behind it a block for each
draft, which moves on with it.
"""

import math
from dataclasses import dataclass

from capplan.deployment.engine import EngineSettings


@dataclass(eq=False)
class Block:
    """Room for the KV of ``block_size`` tokens, or for a state."""

    references: int = 0
    content: tuple | None = None  # all tokens up to its last; None: cannot be found


class Pool:
    """The blocks of a replica; free ones stand in the order they are taken."""

    def __init__(self, engine: EngineSettings) -> None:
        drafts = engine.speculation
        self.block_size = engine.block_size
        self.caching = engine.prefix_caching
        self.groups = range(engine.state_groups if engine.keeps_states else 0)
        self.bounded_groups = 0 if engine.keeps_states else engine.bounded_groups
        self.bounded_blocks = engine.bounded_blocks
        self.drafts = drafts.drafts if drafts else 0
        self.drops = drafts is not None and drafts.drops_block
        self.free = [Block() for _ in range(engine.kv_blocks - 1)]
        self.found: dict[tuple, list[Block]] = {}
        self.hashed_now: set[tuple] = set()  # states, in this iteration

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def bounded_tokens(self, request) -> int:
        """Tokens of the blocks of windows and states that the request needs."""
        tokens = request.prompt_count + request.output_count - 1
        most = min(self.blocks_for(tokens), self.bounded_blocks)
        return self.bounded_groups * most * self.block_size

    def bounded(self, request) -> int:
        """Return how many of these blocks the request does not hold yet."""
        return self.bounded_tokens(request) // self.block_size - len(request.bounded)

    def content(self, request, k: int) -> tuple:
        return tuple(request.tokens[: (k + 1) * self.block_size])

    def cached(self, request, left: int = 1) -> list[Block]:
        """Blocks that hold the request's first tokens but those that are left."""
        blocks = []
        if self.caching:
            for k in range((len(request.tokens) - left) // self.block_size):
                same = self.found.get(self.content(request, k))
                if not same:
                    break
                blocks.append(same[0])
        return blocks

    def kv_hits(self, request) -> list[Block]:
        """The same without the last, which a draft with KV computes again.

        Beside states the last may be one that holds the last token.
        """
        left = 0 if self.groups and self.drops else 1
        blocks = self.cached(request, left)
        return blocks[:-1] if self.drops else blocks

    def hits(self, request) -> list[Block]:
        """Blocks that a request finds, as far as the states behind them are kept."""
        blocks = self.kv_hits(request)
        while blocks and len(self.state_hits(request, blocks)) < len(self.groups):
            blocks.pop()
        return blocks

    def state_hits(self, request, hits: list[Block]) -> list[Block]:
        """Return the states behind the blocks that were found."""
        names = [(g, self.content(request, len(hits) - 1)) for g in self.groups]
        return [self.found[name][0] for name in names if hits and self.found.get(name)]

    def junction(self, request, hits: list[Block]) -> int:
        """Return the tokens whose KV is found, where no state is behind them."""
        found = len(self.kv_hits(request)) if self.groups else 0
        return found * self.block_size if found > len(hits) else 0

    def last_state(self, tokens: int) -> int:
        """Return the blocks before the last state that is kept of so many tokens."""
        if self.drops:
            return max(0, tokens // self.block_size - 1)
        return (tokens - 1) // self.block_size

    def missing(self, request, tokens: int, hits: list[Block], slots: int = 0) -> float:
        """Free blocks it takes so that ``tokens`` of the request have room.

        ``slots`` are those of its KV where they are more. None is taken that another
        request's iteration writes now.
        """
        states = self.state_hits(request, hits)
        if any(state.content in self.hashed_now for state in states):
            return math.inf
        unused = sum(block.references == 0 for block in [*hits, *states])
        kv = self.blocks_for(max(tokens, slots)) - len(request.blocks) - len(hits)
        new_states = (1 + self.drafts) * len(self.groups)
        if request.states:
            wanted = self.blocks_for(tokens) + self.drafts
            new_states = sum(wanted > len(table) for table in request.states)
        return max(0, kv) + unused + self.bounded(request) + new_states

    def fits(self, request, tokens: int, hits: list[Block], slots: int = 0) -> bool:
        return self.missing(request, tokens, hits, slots) <= len(self.free)

    def give(self, request, tokens: int, hits: list[Block], slots: int = 0) -> None:
        """Let a request hold ``hits`` and what else ``tokens`` need."""
        states = self.state_hits(request, hits)
        for block in [*hits, *states]:
            if block.references == 0:
                self.free.remove(block)
            block.references += 1
        request.blocks += hits
        request.findable += len(hits)
        for _ in range(self.blocks_for(max(tokens, slots)) - len(request.blocks)):
            request.blocks.append(self.take())
        for _ in range(self.bounded(request)):
            request.bounded.append(self.take())
        moved = self.drafts
        if not request.states:
            moved = 0
            request.states = [[] for _ in self.groups]
            for table, state in zip(request.states, states, strict=False):
                table += [None] * (len(hits) - 1) + [state]
        for table in request.states:
            self.lengthen(table, self.blocks_for(tokens), moved)

    def lengthen(self, table: list, blocks: int, moved: int) -> None:
        """Take the state behind so many blocks; ``moved`` states of drafts move on."""
        length = len(table)
        if blocks + self.drafts <= length:
            return
        table += [None] * (blocks - 1 - length)
        for k in range(length - moved, min(length, blocks - 1)):
            table.append(table[k])
            table[k] = None
        while len(table) < blocks + self.drafts:
            table.append(self.take())

    def take(self) -> Block:
        """Take the first free block; its content is lost."""
        block = self.free.pop(0)
        if block.content is not None:
            self.found[block.content].remove(block)
            block.content = None
        block.references = 1
        return block

    def enter(self, request, tokens: int) -> None:
        """Make the request's full blocks among its first ``tokens`` findable."""
        if not self.caching:
            return
        full = tokens // self.block_size
        for k in range(request.findable, full):
            content = self.content(request, k)
            self.name(request.blocks[k], content)
            for group, table in enumerate(request.states):
                if table[k] is not None:
                    self.name(table[k], (group, content))
                    self.hashed_now.add((group, content))
        request.findable = max(full, request.findable)
        last = self.last_state(request.prompt_count)
        if last and last == full:  # this state is hashed again
            content = self.content(request, last - 1)
            for group, table in enumerate(request.states):
                if table[last - 1] is not None:
                    self.hashed_now.add((group, content))

    def name(self, block: Block, content: tuple) -> None:
        block.content = content
        self.found.setdefault(content, []).append(block)

    def free_skipped(self, request, processed: int) -> None:
        """Free the states before the newest one of which all is collected."""
        self.free_states(request, max(0, (processed - 1) // self.block_size))

    def free_states(self, request, before: int | None) -> None:
        """Free the states of blocks before an index, in each group the last first."""
        for table in request.states:
            gone = table[:before]
            self.let_go([block for block in reversed(gone) if block])
            table[:before] = [None] * len(gone)

    def take_back(self, request) -> None:
        """Free the request's blocks, the last first; findable ones are kept longest."""
        self.free_states(request, None)
        self.let_go([*reversed(request.blocks), *request.bounded])
        request.blocks, request.bounded, request.states = [], [], []
        request.findable = 0

    def let_go(self, blocks: list[Block]) -> None:
        first, last = [], []
        for block in blocks:
            block.references -= 1
            if block.references == 0:
                (first if block.content is None else last).append(block)
        self.free = first + self.free + last
