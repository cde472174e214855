"""Choose the iterations that a profile measures, within the engine's limits."""

from math import ceil
from typing import NamedTuple

from capplan.errors import InputError
from capplan.profiling.backend import EngineFacts
from capplan.profiling.scenes import Ladder, Point, Prompts, Rung, Scene

LEAST_PROMPT_TOKENS = 16
LEAST_CONTEXT_TOKENS = 128
PROMPT_COUNTS = (4, 16, 64)
_CHUNK_FACTOR = 4
_LONGEST_RUNG = 24  # iterations to settle and for all chunks of one rung
_NEARBY = 1.5  # a context within this factor of another adds little


class Density(NamedTuple):
    """How closely the iterations of an engine are sampled."""

    rounds: int  # times each scene is run, in turn with others
    repeats: int  # iterations measured each time, per rung or set of prompts
    half_steps: bool  # measure 3/2 of each power of two as well
    context_factor: int  # from one context of decoding to the next
    longest_tokens: int  # longest context and prompt measured [tokens]
    fill_tokens: int  # most tokens prefilled for one ladder: the main cost [tokens]


DENSITIES = {
    "coarse": Density(2, 4, False, 8, 16_384, 65_536),
    "default": Density(3, 5, True, 4, 65_536, 262_144),
    "fine": Density(5, 5, True, 2, 262_144, 1_048_576),
}


class Skipped(NamedTuple):
    """Points left out, and why."""

    what: str
    reason: str


class ProfilePlan(NamedTuple):
    """Scenes to measure, prompts first, and what is left out."""

    scenes: tuple[Scene, ...]
    skipped: tuple[Skipped, ...]
    budget_tokens: int  # token budget of an iteration

    @property
    def points(self) -> tuple[Point, ...]:
        """All points, each once."""
        return tuple(self.owners())

    def owners(self) -> dict[Point, Scene]:
        """Return the scene that measures each point, the first that yields it."""
        owners: dict[Point, Scene] = {}
        for scene in self.scenes:
            for point in scene.points(self.budget_tokens):
                owners.setdefault(point, scene)
        return owners


def density(name: str) -> Density:
    """Return the named density; an unknown name is an ``InputError``."""
    if name not in DENSITIES:
        known = ", ".join(DENSITIES)
        raise InputError(f"--density is {name!r}; expected one of {known}")
    return DENSITIES[name]


def plan_profile(facts: EngineFacts, how: Density) -> ProfilePlan:
    """Return the scenes that an engine with these limits can run."""
    skipped: list[Skipped] = []
    prompts = _prompts(facts, how, skipped)
    contexts = enumerate(_contexts(facts, how, skipped))
    climbs = [_ladder(facts, how, at, turn, skipped) for turn, at in contexts]
    ladders = [ladder for ladder in climbs if ladder]
    if not ladders:
        raise InputError(
            f"no decode iteration fits max_model_len {facts.max_model_len} and "
            f"{facts.kv_capacity_tokens} tokens of KV cache; expected room for "
            f"one request of {LEAST_CONTEXT_TOKENS} tokens"
        )
    return ProfilePlan(
        (*prompts, *ladders), tuple(skipped), facts.max_num_batched_tokens
    )


def steps(most: int, half_steps: bool, least: int = 1) -> list[int]:
    """Return powers of two, and 3/2 of them, from ``least`` up to ``most``.

    Examples
    --------
    >>> steps(20, True)
    [1, 2, 3, 4, 6, 8, 12, 16, 20]
    """
    doubled = [2**k for k in range(most.bit_length())]
    halves = [3 * size // 2 for size in doubled if size > 1] if half_steps else []
    inside = [size for size in doubled + halves if least <= size <= most]
    return sorted({*inside, most}) if most >= least else []


def batch_sizes(most: int, graph_batches: tuple[int, ...], how: Density) -> list[int]:
    """Return the batch sizes to decode at, falling.

    A batch is padded to the next size with a CUDA graph, so the time steps up just
    above such a size: both sides of the step are measured.
    """
    sizes = set(steps(most, how.half_steps))
    sizes |= {size + 1 for size in sizes if size in graph_batches and size < most}
    return sorted(sizes, reverse=True)


def _blocks(facts: EngineFacts, tokens: int) -> int:
    return ceil(tokens / facts.block_size)


def _prompts(facts: EngineFacts, how: Density, skipped: list[Skipped]) -> list[Prompts]:
    budget = facts.max_num_batched_tokens
    # One token is generated after the prompt.
    longest = min(facts.max_model_len - 1, facts.kv_capacity_tokens - budget)
    if longest < LEAST_PROMPT_TOKENS:
        longest = min(facts.max_model_len - 1, facts.kv_capacity_tokens // 2)
    scenes = [
        Prompts(1, tokens, how.repeats)
        for tokens in steps(min(budget, longest), how.half_steps, LEAST_PROMPT_TOKENS)
    ]
    scenes += _many_prompts(facts, how, skipped)
    scenes += _long_prompts(facts, how, longest, skipped)
    return scenes


def _many_prompts(
    facts: EngineFacts, how: Density, skipped: list[Skipped]
) -> list[Prompts]:
    scenes = []
    for total in steps(facts.max_num_batched_tokens, False, 256)[::-2]:
        for count in PROMPT_COUNTS:
            tokens = total // count
            if tokens < LEAST_PROMPT_TOKENS:
                continue
            # While one set runs the next is already scheduled.
            blocks = 2 * count * _blocks(facts, tokens + 1)
            reason = None
            if tokens >= facts.max_model_len:
                reason = f"max_model_len is {facts.max_model_len}"
            elif count > facts.max_num_seqs:
                reason = f"max_num_seqs is {facts.max_num_seqs}"
            elif blocks > facts.kv_blocks - 1:
                reason = f"needs {blocks} KV blocks of {facts.kv_blocks - 1}"
            if reason:
                skipped.append(Skipped(f"prefill of {count} x {tokens}", reason))
            else:
                scenes.append(Prompts(count, tokens, how.repeats))
    return scenes


def _long_prompts(
    facts: EngineFacts, how: Density, longest: int, skipped: list[Skipped]
) -> list[Prompts]:
    """Return prompts beyond the token budget: later chunks find tokens cached."""
    budget = facts.max_num_batched_tokens
    most = min(longest, how.longest_tokens)
    if facts.max_model_len - 1 > most:
        what = f"prefill of prompts longer than {most}"
        skipped.append(Skipped(what, _limit(facts, how, most == longest)))
    scenes = []
    # Small, medium and large last chunks in turn.
    last_chunks = (max(LEAST_PROMPT_TOKENS, budget // 32), budget // 4, budget // 2)
    for turn, chunks in enumerate(steps(max(most // budget, 1), False)):
        tokens = chunks * budget + last_chunks[turn % len(last_chunks)]
        if tokens < most:
            scenes.append(Prompts(1, tokens, max(1, how.repeats // 2)))
    if most > budget:
        scenes.append(Prompts(1, most, 1))
    return scenes


def _contexts(facts: EngineFacts, how: Density, skipped: list[Skipped]) -> list[int]:
    room = min(facts.max_model_len, facts.kv_capacity_tokens)
    most = min(room, how.longest_tokens)
    if facts.max_model_len > most:
        what = f"decode at contexts above {most}"
        skipped.append(Skipped(what, _limit(facts, how, most == room)))
    contexts = []
    context = LEAST_CONTEXT_TOKENS
    while context * _NEARBY < most:
        contexts.append(context)
        context *= how.context_factor
    # The last ladder ends at the longest context.
    batch = max(1, min(_most_requests(facts), how.fill_tokens // most, room // most))
    iterations = max(
        _climb(facts, how, most, batch, turn).iterations for turn in (0, 1)
    )
    last = most - iterations - facts.block_size
    if last >= LEAST_CONTEXT_TOKENS and last > max(contexts, default=0) * _NEARBY:
        contexts.append(last)
    return contexts


def _limit(facts: EngineFacts, how: Density, by_cache: bool) -> str:
    if by_cache:
        return f"the KV cache holds {facts.kv_capacity_tokens} tokens"
    return f"measured up to {how.longest_tokens} at this density"


def _most_requests(facts: EngineFacts) -> int:
    # To fill a batch evenly, prompts need room beside the requests that decode.
    return min(facts.max_num_seqs, facts.max_num_batched_tokens // 2)


def _ladder(
    facts: EngineFacts, how: Density, context: int, turn: int, skipped: list[Skipped]
) -> Ladder | None:
    affordable = max(1, how.fill_tokens // context)
    most = min(_most_requests(facts), affordable)
    reason = "filling the cache for them takes too long at this density"
    if most < affordable:
        reason = "max_num_batched_tokens leaves too little room for prompts"
    while most and not _fits(facts, _climb(facts, how, context, most, turn)):
        most = most * 15 // 16
        reason = f"max_model_len and {facts.kv_capacity_tokens} tokens of KV cache"
    if most < facts.max_num_seqs:
        skipped.append(Skipped(f"decode of more than {most} at {context}", reason))
    return _climb(facts, how, context, most, turn) if most else None


def _climb(
    facts: EngineFacts, how: Density, context: int, most: int, turn: int
) -> Ladder:
    rungs: list[Rung] = []
    for batch in batch_sizes(most, facts.graph_batches, how):
        level = batch.bit_length() + turn
        # Chunks beside every other batch size would double their cost.
        chunks: tuple[int, ...] = ()
        if batch.bit_count() == 1 or batch == most:
            at = Ladder(context, tuple(rungs), how.repeats).iterations
            end = context + at + how.repeats + _LONGEST_RUNG
            chunks = tuple(_chunks(facts, batch, end)[level % 2 :: 2])
        rungs.append(Rung(batch, chunks))
    return Ladder(context, tuple(rungs), how.repeats)


def _chunks(facts: EngineFacts, batch: int, context: int) -> list[int]:
    """Return the prompts that fit beside ``batch`` requests of this context."""
    free_blocks = facts.kv_blocks - 1 - batch * _blocks(facts, context)
    room = min(
        facts.max_num_batched_tokens - batch,
        facts.max_model_len - 1,
        free_blocks * facts.block_size - 1,
    )
    if batch >= facts.max_num_seqs or room < LEAST_PROMPT_TOKENS:
        return []
    chunks = []
    chunk = LEAST_PROMPT_TOKENS
    while chunk * _NEARBY < room:
        chunks.append(chunk)
        chunk *= _CHUNK_FACTOR
    return [*chunks, room]


def _fits(facts: EngineFacts, ladder: Ladder) -> bool:
    """Return whether contexts and KV blocks of all iterations of a ladder fit."""
    if ladder.context + ladder.iterations > facts.max_model_len:
        return False
    starts = [*ladder.rung_starts(), ladder.iterations]
    for rung, end in zip(ladder.rungs, starts[1:], strict=True):
        chunk = max(rung.chunks, default=0)
        # The next rung's first iteration may be scheduled with this one's batch.
        blocks = rung.batch * _blocks(facts, ladder.context + end + 1)
        if blocks + _blocks(facts, chunk + 1) > facts.kv_blocks - 1:
            return False
    return True
