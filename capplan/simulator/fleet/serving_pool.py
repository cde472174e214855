"""A pool of replicas as the core has it: its arrays, its policies, its log."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from capplan.deployment.features import V1
from capplan.deployment.policy import Policy
from capplan.deployment.pools import Pool
from capplan.errors import HostFullError, InputError, warn
from capplan.simulator.drivers.open_loop import Arrivals, read_only, start
from capplan.simulator.engine.group_state import READ_SCHEDULERS, with_groups
from capplan.simulator.fleet.pool_state import Options, pool_state, scheduled_tables
from capplan.simulator.fleet.serve import no_groups
from capplan.simulator.memory.prefix_memory import with_enough_runs
from capplan.simulator.records import ENTRY, ITERATION
from capplan.simulator.results.bins import Bins
from capplan.simulator.results.times import Iterations
from capplan.simulator.routers import parse_router
from capplan.simulator.routers import router as find_router
from capplan.simulator.schedulers import scheduler as find_scheduler
from capplan.simulator.schedulers.v1_policy import v1_policy
from capplan.simulator.state import (
    LIMIT_COUNT,
    NONE,
    Count,
    Limit,
    Lineage,
    Needs,
    Phase,
    Schedules,
    Setting,
    Side,
    no_limits,
    with_more_slots,
    with_paths,
    with_tier,
)
from capplan.simulator.v1.adapters import MORE_ADAPTERS, groups_by_adapter
from capplan.simulator.v1.images import image_columns
from capplan.workload.forest import Forest, forest, longest_path
from capplan.workload.slo import require
from capplan.workload.trace import Trace

_LARGEST_GROUP = 2**40


def schedules_of(name: str, *, has_ranks: bool) -> Schedules:
    """Return what drivers call ``schedule``."""
    run_group: Any = no_groups
    if has_ranks:  # and only then they are compiled
        from capplan.simulator.engine.group import run_group
    return Schedules(find_scheduler(name).schedule, run_group)


class ServingPool:
    """Replicas of a pool, with what has finished on them."""

    def __init__(
        self,
        pool: Pool,
        router: str,
        options: Options,
        *,
        scheduler: Policy | None = None,
        senders: int = 0,
        is_watched: bool = False,
    ) -> None:
        """``is_watched``: free blocks are read by others than the router."""
        tables, engine = pool.configuration.tables, pool.configuration.engine
        tables.check(engine.max_num_seqs, engine.max_num_batched_tokens)
        of_ranks = pool.configuration.rank_tables
        parsed = parse_router(router)
        router_file = find_router(parsed.name)
        self.route: Callable[..., int] = router_file.route
        self.needs = int(router_file.NEEDS)
        if scheduler is not None:
            engine = replace(engine, scheduler=scheduler)
        elif engine.scheduler.name in V1:
            reads = self.needs in (Needs.ALL, Needs.SEEN) or of_ranks is not None
            reads = reads or is_watched or parsed.name in READ_SCHEDULERS
            reads = reads or engine.prefix_caching or options.record_iterations
            engine = replace(engine, scheduler=v1_policy(engine, {"eager": int(reads)}))
        policy = engine.scheduler
        self.schedule = schedules_of(policy.name, has_ranks=of_ranks is not None)
        self._measured_tokens = len(tables.fused_s) - 1
        self.tables = scheduled_tables(tables, engine)
        timed = self.tables
        if of_ranks is not None:
            timed = scheduled_tables(of_ranks.rank, engine)
            if engine.speculation is not None:
                of_ranks = engine.speculation.rank_tables(of_ranks)
        self.engine = engine
        self._slo = options.slo
        self._slos_needed = (policy.rules.slos, f"scheduler {policy.name}")
        self._class_names: tuple[str, ...] = ()
        self._log: list[tuple[np.ndarray, np.ndarray]] = []
        self.state = pool_state(
            engine,
            timed,
            pool.replica_count,
            router=parsed,
            options=options,
            senders=senders,
            ranks=0 if of_ranks is None else of_ranks.ranks,
        )
        if of_ranks is not None:
            sizes = pool.configuration.graph_sizes
            self.state = with_groups(self.state, engine, of_ranks, sizes)
        self.bins = Bins(self.state, options.bin_width_s)
        strictest = [Setting.TTFT_S, Setting.TPOT_S]
        limits = options.limits
        self.state.settings[strictest] = limits.ttft_s, limits.mean_gap_s
        self._has_paths = options.of_turns or engine.has_tier
        if not (self._has_paths and engine.prefix_caching):  # else with their paths
            start(self.state)

    @property
    def side(self) -> Side:
        """The pool as compiled functions take it."""
        return Side(self.state, self.needs, self.route, self.schedule)

    @property
    def replica_count(self) -> int:
        """Replicas that there have been at once."""
        return len(self.state.replicas)

    @property
    def row_count(self) -> int:
        """Schedulers of all replicas: a group has one for each rank."""
        return self.replica_count * max(1, int(self.state.engine[0].ranks))

    @property
    def iteration_count(self) -> int:
        """Iterations of all replicas, those of each rank by themselves."""
        groups = self.state.engine[0].ranks > 0
        replicas = self.state.ranks if groups else self.state.replicas
        return int((replicas["step"] + replicas["prompt_steps"]).sum())

    @property
    def outstanding(self) -> int:
        """Requests that have come to a replica and are not finished."""
        return int(self.state.replicas["outstanding"].sum())

    @property
    def oldest_arrival_s(self) -> float:
        """Arrival time of the oldest unfinished request; infinite when none. [s]"""
        requests = self.state.requests
        held = requests["phase"] != Phase.FREE
        return float(requests["arrival_s"][held].min()) if held.any() else math.inf

    def taken(
        self, trace: Trace, rows: slice, arrival_s: np.ndarray, reaches_s: np.ndarray
    ) -> Arrivals:
        """Return requests as the core takes them; make room for what they need."""
        groups = trace.prefix_group[rows]
        if self.engine.adapters is not None:
            groups = groups_by_adapter(groups, trace.adapter[rows])
        if int(groups.max()) >= _LARGEST_GROUP:
            raise InputError(
                f"{trace.source}: prefix_group is {int(groups.max())}; "
                f"expected less than {_LARGEST_GROUP}"
            )
        predicted = trace.predicted_output_tokens
        if predicted is None:
            predicted = trace.output_tokens
        columns = (
            trace.prompt_tokens[rows],
            trace.output_tokens[rows],
            predicted[rows],
            np.maximum(trace.max_new_tokens[rows], trace.output_tokens[rows]),
            groups,
            trace.prefix_tokens[rows],
            trace.request_class[rows],
            trace.priority[rows],
            trace.session[rows],
            trace.adapter[rows],
        )
        images = np.zeros((len(groups), 0))
        if self.engine.images is not None:
            images = image_columns(trace, rows)
        arrivals = Arrivals(
            *(read_only(column, np.float64) for column in (arrival_s, reaches_s)),
            *(read_only(column, np.int64) for column in columns),
            *[read_only(images, np.float64)],
        )
        if self._class_names != trace.class_names:
            self._class_names = trace.class_names
            kinds, who = self._slos_needed
            require(self._slo, trace.class_names, kinds, who, instead="e2e")
            self._set_limits(trace.class_names)
        if self._has_paths:
            if not len(self.state.lineage):
                self._take_forest(trace)
        elif self.engine.prefix_caching:
            most = int(arrivals.prefix_tokens.max())
            self._grow_holdings(most // self.engine.block_size)
        return arrivals

    def _take_forest(self, trace: Trace) -> None:
        """Let blocks be found that are those of an earlier turn, by routers too."""
        if self.engine.adapters is not None:
            groups = groups_by_adapter(trace.prefix_group, trace.adapter)
            trace = trace.changed(prefix_group=groups)
        blocks = forest(trace, self.engine.block_size)
        lineage = np.zeros((len(blocks.parent), len(Lineage)), np.int64)
        lineage[:, Lineage.PARENT] = blocks.parent
        lineage[:, Lineage.FIRST] = blocks.first_block
        if len(self.state.runs):
            tokens = forest(trace, 1)
            lineage[:, Lineage.NEAREST] = tokens.parent
            lineage[:, Lineage.TOKENS] = tokens.first_block
            self.state.counts[Count.NEW_RUNS] += 2 * longest_path(tokens.parent)
        self.state = self.state._replace(lineage=lineage)
        if self.engine.prefix_caching:
            self.state = with_paths(self.state)
            if self.engine.has_tier:
                self.state = with_tier(self.state, *self._chunks(trace, blocks))
            start(self.state)

    def _chunks(self, trace: Trace, blocks: Forest) -> tuple[int, int]:
        """Return the most chunks that its tier ever has, and those of a request."""
        assert self.engine.tier is not None
        size = self.engine.tier.blocks_per_chunk
        # A turn may compute the block that the last token of an answer fills.
        own = (blocks.end_block + 1) // size - blocks.first_block // size
        own = np.maximum(own, 0)
        tokens = int((trace.prompt_tokens + trace.output_tokens).max())
        most = tokens // (size * self.engine.block_size)
        return min(self.engine.tier.chunks, int(own.sum())), most

    def _set_limits(self, class_names: tuple[str, ...]) -> None:
        """Give the classes their limits; those known keep their late gaps."""
        before = self.state.classes
        rows = no_limits(len(class_names), len(self.state.residues))
        if self._slo is not None:
            rows[:, :LIMIT_COUNT] = self._slo.table(class_names)
        known = min(len(before), len(rows))
        rows[:known, LIMIT_COUNT:] = before[:known, LIMIT_COUNT:]
        self.state.engine[0].counts_late = int(np.isfinite(rows[:, Limit.TBT]).any())
        self.state = self.state._replace(classes=rows)

    def _grow_holdings(self, blocks: int) -> None:
        """Make room for requests that share up to ``blocks`` blocks each."""
        slots, before = self.state.holdings.shape
        if blocks > before:
            holdings = np.zeros((slots, blocks), np.int64)
            holdings[:, :before] = self.state.holdings
            self.state = self.state._replace(holdings=holdings)

    def set_draws(self, draws: np.ndarray) -> None:
        """Give the router its random numbers, two of each request."""
        self.state = self.state._replace(draws=draws)

    def check_stuck(self) -> None:
        """Raise an error where nothing can go on."""
        if self.state.counts[Count.HOST_FULL]:
            gib = self.engine.host_kv_gib
            raise HostFullError(
                f"the host memory for swapped KV is full: host_kv_gib is {gib} for "
                "each GPU; give more, or a scheduler that computes KV again"
            )
        if self.state.counts[Count.STUCK] == MORE_ADAPTERS:
            raise InputError(
                "a step had more adapters than max_loras, with which vLLM stops "
                "(AssertionError in Scheduler.schedule): some requests had sat the "
                "step before out; expected a slot for each adapter"
            )
        if self.state.counts[Count.STUCK]:
            raise InputError(
                "deadlock: no waiting request fits the free KV, or the scheduler never "
                "admits one"
            )

    def warn_of_long_iterations(self) -> None:
        """Warn where the latency was continued beyond what it is given for."""
        most = int(self.state.counts[Count.MOST_TOKENS])
        if most > self._measured_tokens:
            warn(
                f"an iteration had {most:,} tokens; its time was extrapolated from the "
                f"{self._measured_tokens:,} up to which times are known"
            )

    def take_results(self) -> np.ndarray:
        """Return the finished requests; their room is used again by the next step."""
        count = int(self.state.counts[Count.RESULTS])
        self.state.counts[Count.RESULTS] = 0
        done = np.asarray(self.state.results[:count])
        rows = self.row_count // self.replica_count
        if rows > 1:
            done["replica"] //= rows
        token_s = self.tables.prompt_token_s
        if token_s:  # a prompt delays its own request only
            delay_s = token_s * done["prompt_tokens"]
            for name in ("scheduled_s", "first_token_s", "finish_s"):
                done[name] += delay_s
        return done

    def take_log(self) -> None:
        """Empty the log of iterations into what is kept."""
        counts = self.state.counts
        steps = np.asarray(self.state.iterations[: counts[Count.ITERATIONS]]).copy()
        entries = np.asarray(self.state.entries[: counts[Count.ENTRIES]]).copy()
        counts[Count.ITERATIONS] = 0
        counts[Count.ENTRIES] = 0
        self._log.append((steps, entries))

    def make_room(self) -> bool:
        """Empty the log; double the slots when none is free, and return whether.

        A router's runs too, when they are short.
        """
        if self.state.engine[0].recording:
            self.take_log()
        self.state = with_enough_runs(self.state)
        if self.state.counts[Count.FREE] != NONE:
            return False
        self.state = with_more_slots(self.state)
        return True

    def iterations(self) -> Iterations | None:
        """Return all recorded iterations, as one log; None where none were."""
        if not self.state.engine[0].recording:
            return None
        before = 0
        for steps, entries in self._log:
            steps["entries_end"] += before
            before += len(entries)
        return Iterations(
            np.concatenate([np.zeros(0, ITERATION), *(log[0] for log in self._log)]),
            np.concatenate([np.zeros(0, ENTRY), *(log[1] for log in self._log)]),
        )
