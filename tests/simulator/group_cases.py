"""Small random cases of ranks that step together."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from cases import Case, cases, random_tables
from hypothesis import strategies as st

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment, Pool
from capplan.deployment.speculation import Speculation
from capplan.latency.rank_tables import RankTables
from capplan.simulator.engine.group_queue import BALANCES
from capplan.simulator.results.times import Simulation
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate


class GroupCase(NamedTuple):
    """What ``simulate`` and ``judge_groups`` take."""

    case: Case
    tables: RankTables
    graph_sizes: tuple[int, ...]

    def configuration(self, scheduler: str = "vllm-v1") -> Configuration:
        engine = replace(self.case.engine, scheduler=parse_scheduler(scheduler))
        return Configuration(
            engine,
            self.tables.rank,
            rank_tables=self.tables,
            graph_sizes=self.graph_sizes,
        )

    def simulated(self, scheduler: str = "vllm-v1", **settings) -> Simulation:
        count = self.case.replica_count
        deployment = Deployment.of(self.configuration(scheduler), count, "jsq")
        return simulate(self.case.trace, deployment, **settings)


def random_rank_tables(seed: int, ranks: int, case: Case, exact: bool) -> RankTables:
    """Return tables whose parts rise with tokens, each by its own."""
    most = len(case.tables.fused_s) - 1
    parts = [
        random_tables(seed + k, 1, tokens, exact).fused_s / 4
        for k, tokens in enumerate((ranks * most, ranks * most, most, most))
    ]
    if exact:
        parts = [np.ceil(part * 64) / 64 for part in parts]
    return RankTables(case.tables, ranks, *parts)


@st.composite
def group_cases(draw, intervals=1, **settings) -> GroupCase:
    """Draw a case of ``cases`` with ranks, and CUDA graphs or none.

    They take prompts in steps up to ``intervals`` apart.
    """
    exact = draw(st.booleans())
    case = draw(cases(exact=exact, **settings))
    count = draw(st.integers(1, 4))
    most = case.engine.max_num_batched_tokens
    sizes = draw(st.sets(st.integers(1, most), max_size=4))
    engine = replace(
        case.engine,
        data_parallel_size=count,
        dp_balance=draw(st.sampled_from(BALANCES)),
        prefill_schedule_interval=draw(st.integers(1, intervals)) if count > 1 else 1,
    )
    tables = random_rank_tables(draw(st.integers(0, 2**20)), count, case, exact)
    return GroupCase(case._replace(engine=engine), tables, tuple(sorted(sizes)))


@st.composite
def verifying_cases(draw, **settings) -> GroupCase:
    """Draw a case of ``group_cases`` whose ranks verify drafts."""
    given = draw(group_cases(**settings))
    k = draw(st.integers(1, 3))
    rates = draw(st.lists(st.integers(0, 4), min_size=k, max_size=k))
    speculation = Speculation(
        draw(st.sampled_from(["mtp", "ngram"])),
        tuple(sorted((rate / 4 for rate in rates), reverse=True)),
        draft_share=draw(st.sampled_from([0.0, 0.1])),
    )
    engine = given.case.engine
    wanted = max(engine.max_num_batched_tokens, 1 + k)
    largest = engine.kv_blocks + 3 * (2 + k)
    engine = replace(
        engine,
        max_num_batched_tokens=wanted,
        kv_blocks=largest,
        bounded_groups=0,
        bounded_blocks=0,
        speculation=speculation,
    )
    return given._replace(case=given.case._replace(engine=engine))


def apart(replica, prefills, decodes, report):
    """Return pools of these replicas, whose KV has room when a copy begins."""
    engine = replica.engine
    drafts = engine.speculation
    if drafts is not None:
        tokens = drafts.verified_tokens + drafts.lookahead_tokens
        room = -(-tokens // engine.block_size)
        engine = replace(engine, kv_blocks=engine.kv_blocks + room)
    replica = replace(replica, engine=engine)
    pools = Pool(replica, prefills), Pool(replica, decodes)
    return Deployment(
        pools, "round-robin", hand_off=f"nixl:block=0.5ms,report={report}"
    )
