"""Small random fleets of groups of ranks that come, close and die.

``drawn(number)`` gives the same case again.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from cases import TICK_S
from fleet_cases import FleetCase, draw
from judge_fleet_group import judge_groups_in_motion
from simulated_fleet import changes

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.latency.rank_tables import RankTables
from capplan.simulator.engine.group_queue import BALANCES
from capplan.simulator.results.times import Simulation
from capplan.simulator.simulate import simulate


class MovingGroups(NamedTuple):
    """What ``simulate`` and the judge take."""

    case: FleetCase
    tables: RankTables
    graph_sizes: tuple[int, ...]

    @property
    def deployment(self) -> Deployment:
        _, engine, _, count, _ = self.case.pools[0]
        configuration = Configuration(
            engine,
            self.tables.rank,
            rank_tables=self.tables,
            graph_sizes=self.graph_sizes,
        )
        fixed = Deployment.of(configuration, count, "jsq")
        return replace(fixed, changes=tuple(changes(self.case)))

    def simulated(self, **settings) -> Simulation:
        return simulate(
            self.case.trace, self.deployment, seed=self.case.seed, **settings
        )

    def judged(self):
        _, engine, _, count, _ = self.case.pools[0]
        return judge_groups_in_motion(
            self.case.trace,
            self.tables,
            self.graph_sizes,
            engine,
            count,
            self.case.moving["events"],
            self.case.seed,
        )


def drawn(number: int) -> MovingGroups:
    """Return a random case; every other one verifies drafts."""
    rng = np.random.default_rng([77, number])
    kind = "drafts-events" if number % 2 else "events"
    case = draw(kind, number)
    while case.trace.users:
        case = draw(kind, 10_000 + int(rng.integers(10**6)))
    tables, engine, _, count, _ = case.pools[0]
    ranks = int(rng.integers(1, 4))
    most = len(tables.fused_s) - 1
    verified = 1 if engine.speculation is None else engine.speculation.verified_tokens
    most = max(most, engine.max_num_seqs * verified)
    unit_s = 1.0 if case.exact else TICK_S / 4
    parts = [
        np.cumsum(rng.integers(0, 2, 1 + tokens)) * unit_s
        for tokens in (ranks * most, ranks * most, most, most)
    ]
    given = RankTables(tables.reaching(most), ranks, *parts)
    sizes = rng.integers(1, engine.max_num_batched_tokens + 1, int(rng.integers(0, 4)))
    apart = ranks > 1 and engine.speculation is None  # what intervals need
    engine = replace(
        engine,
        data_parallel_size=ranks,
        dp_balance=str(rng.choice(BALANCES)),
        prefill_schedule_interval=int(rng.integers(1, 4)) if apart else 1,
    )
    case = case._replace(pools=[(given.rank, engine, "vllm-v1", count, "jsq")])
    return MovingGroups(case, given, tuple(sorted({int(size) for size in sizes})))


def differences(given: MovingGroups) -> list[str]:
    """Return in what the simulator and the judge differ; whole seconds to the bit."""
    requests, _ = given.judged()
    times, found = given.simulated().table, []
    for k, request in enumerate(requests):
        gaps_s = np.diff(request.token_s)
        judged = {
            "scheduled_s": request.scheduled_s,
            "first_token_s": request.token_s[0],
            "finish_s": request.token_s[-1],
            "longest_gap_s": gaps_s.max() if len(gaps_s) else 0.0,
            "preemptions": request.preemptions,
            "cached_tokens": request.cached_tokens,
        }
        for name, value in judged.items():
            own = getattr(times, name)[k]
            if name == "longest_gap_s" and request.preemptions:
                own = min(own, value)  # see failing.py
            exact = given.case.exact
            if not (own == value if exact else np.isclose(own, value, 1e-12, 0)):
                found.append(f"{k}.{name}: {own} for {value}")
    return found
