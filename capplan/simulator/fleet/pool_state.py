"""The state of a pool: arrays for equal replicas of an engine."""

from dataclasses import dataclass, field

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Policy, Rules
from capplan.latency.contract import LatencyTables
from capplan.simulator.memory.hash_ring import POINTS, place_points
from capplan.simulator.memory.prefix_memory import (
    FIRST_RUNS,
    empty_memory,
    room_for_runs,
)
from capplan.simulator.results.windows import WINDOWS
from capplan.simulator.state import (
    ROUTER_SETTINGS,
    Caching,
    Setting,
    Sizes,
    State,
    empty_state,
)
from capplan.simulator.v1.adapters import columns_of
from capplan.simulator.v1.encoder_cache import cache_columns
from capplan.workload.slo import RequestSlo, Slo

_SLOTS = 4096  # requests outstanding at once; doubled when full
_LOG_ITERATIONS = 20_000
_LOG_ENTRIES = 2_000_000
UNBOUNDED_JUMP = 2**62
MOST_AT_ONCE = 250_000  # requests served at most at once


def scheduled_tables(tables: LatencyTables, engine: EngineSettings) -> LatencyTables:
    """Return iteration times as long and as large as the engine's scheduler needs.

    They reach its longest iteration, and have what it takes to verify drafts, for an
    iteration and for a prediction. Of a pipeline they are those of a stage.
    """
    rules, own = engine.scheduler.rules, engine.scheduler.settings
    if rules.reserves:  # no token budget: the KV bounds the prompts of an iteration
        tables = tables.reaching(engine.kv_capacity_tokens + engine.max_num_seqs)
    elif rules.prompt_budget:
        tables = tables.reaching(engine.max_num_batched_tokens + engine.max_num_seqs)
    tables = engine.tables(tables)
    overhead_s = own.get("overhead_s", 0.0)
    return tables._replace(
        decode_s=tables.decode_s + overhead_s,
        fused_s=tables.fused_s + overhead_s,
        request_s=tables.request_s + own.get("predict_s", 0.0),
    )


@dataclass(frozen=True)
class Options:
    """How a simulation runs and what it records, whatever the deployment."""

    bin_width_s: float
    seed: int = 0
    # for policies that look at SLOs
    limits: RequestSlo = field(default_factory=RequestSlo)
    slo: Slo | None = None
    chunk: int | None = None  # requests that arrive at most; None: not known
    record_iterations: bool = False
    longest_jump: int = UNBOUNDED_JUMP
    of_turns: bool = False  # conversations, whose KV is found by paths

    @property
    def results(self) -> int:
        """Requests that may finish before they are taken."""
        return min(self.chunk or MOST_AT_ONCE, MOST_AT_ONCE)


def pool_state(
    engine: EngineSettings,
    tables: LatencyTables,
    replica_count: int,
    *,
    router: Policy,
    options: Options,
    senders: int = 0,
    ranks: int = 0,
) -> State:
    """Return the state of idle replicas.

    As many as ``options.results`` requests may finish before they are taken from it.
    KV is copied from as many replicas as there are ``senders``. With ``ranks`` each
    replica is a group of so many.
    """
    policy, rules = engine.scheduler, engine.scheduler.rules
    has_paths = options.of_turns or engine.has_tier
    finds_blocks = engine.prefix_caching and not has_paths
    state = empty_state(
        Sizes(
            replicas=replica_count,
            slots=_SLOTS,
            max_num_seqs=engine.max_num_seqs,
            block_size=engine.block_size,
            cached_blocks=engine.kv_blocks - 1 if finds_blocks else 0,
            results=options.results + _SLOTS + replica_count,
            iterations=_LOG_ITERATIONS if options.record_iterations else 0,
            entries=_LOG_ENTRIES if options.record_iterations else 0,
            bins=WINDOWS,
            draws=1,
            orders=_SLOTS if policy.does("orders") else 0,
            pauses=_SLOTS if policy.does("pauses") else 0,
            swaps=_SLOTS if rules.swaps else 0,
            request_columns=len(rules.request_columns),
            replica_columns=len(rules.replica_columns),
            adapters=0 if engine.adapters is None else columns_of(engine.adapters),
            encoded=0 if engine.images is None else cache_columns(engine),
            senders=senders,
            runs=_runs(router.rules, replica_count),
            ranks=ranks,
            micro_batches=0 if engine.pipeline is None else engine.pipeline.stages,
        ),
        # Copies: the core is compiled for writable arrays, and Ray's are read-only.
        tuple(np.array(table, np.float64, order="C") for table in tables[:5]),
    )
    row = state.engine[0]
    row.max_num_batched_tokens = engine.max_num_batched_tokens
    row.max_num_seqs = engine.max_num_seqs
    row.block_size = engine.block_size
    row.kv_blocks = engine.kv_blocks - 1
    row.state_groups = engine.state_groups if engine.keeps_states else 0
    row.state_blocks = engine.drafted_states
    row.bounded_groups = engine.bounded_groups - row.state_groups
    row.bounded_blocks = engine.bounded_blocks
    row.depth = engine.pipeline_parallel_size + int(engine.async_scheduling)
    late = engine.scheduler.rules.caches_late
    caching = Caching.LATE if late else Caching.AT_ONCE
    row.prefix_caching = caching if engine.prefix_caching else Caching.NONE
    row.longest_jump = 1 if options.record_iterations else options.longest_jump
    row.recording = int(options.record_iterations)
    row.attention_s = tables.attention_s
    row.request_s = tables.request_s
    row.seed = options.seed
    row.reserves = int(rules.reserves)
    row.prompt_budget = int(rules.prompt_budget)
    keeps_batch = rules.keeps_batch
    if keeps_batch is None:
        keeps_batch = not (policy.does("orders") or rules.request_columns)
    row.keeps_batch = int(keeps_batch)
    row.asked = int(engine.adapters is not None or engine.images is not None)
    drafts = engine.speculation
    row.verifies = int(drafts is not None)
    row.tokens_per_request = engine.verified_tokens
    if engine.tier is not None and engine.has_tier:
        row.blocks_per_chunk = engine.tier.blocks_per_chunk
    if policy.does("swaps"):
        row.block_link_s = engine.block_link_s
        row.host_blocks = engine.host_kv_blocks
        state.replicas["host_free_blocks"] = engine.host_kv_blocks
    state.settings[: len(policy.values)] = policy.values
    own = slice(ROUTER_SETTINGS, ROUTER_SETTINGS + len(router.values))
    state.settings[own] = router.values
    state.settings[Setting.REFRESH_S] = router.settings.get("refresh", 0.0)
    state.settings[Setting.PULLS] = senders > 0
    if router.settings.get("target"):
        state.settings[Setting.HIGH] = router.settings["high"]
    else:
        state.settings[Setting.HIGH] = -np.inf
    state.replicas["number"] = np.arange(replica_count)
    if len(state.runs):
        state = empty_memory(state, router.rules.remembers * replica_count)
    if router.rules.rings:
        place_points(state)
    return state


def _runs(rules: Rules, replica_count: int) -> int:
    """Return the room for what a router remembers, and for the points of its ring."""
    if rules.remembers == 0 and not rules.rings:
        return 0
    used = rules.remembers * replica_count + 1 + FIRST_RUNS
    return room_for_runs(used, POINTS * replica_count if rules.rings else 0)
