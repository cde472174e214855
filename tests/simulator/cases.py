"""Small random cases for the laws, drawn so that rare things happen often."""

from dataclasses import replace
from os import environ
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numba import config

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.simulator.checks import refused, without_unsupported
from capplan.simulator.results.times import Simulation
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

EXAMPLES = 6 if config.DISABLE_JIT else int(environ.get("LAW_EXAMPLES", 25))
"""Cases per law; few where nothing is compiled, more for a search by hand."""

MOST_SEQS = 6
TICK_S = 2.0**-6
"""All times of an exact case are whole ticks: sums of them have no rounding, so
that arrivals and ends of iterations fall on the same instant, and stay there."""


class Case(NamedTuple):
    """What ``simulate`` and ``judge`` take."""

    trace: Trace
    tables: LatencyTables
    engine: EngineSettings
    replica_count: int

    def deployment(self, router: str = "jsq", scheduler: str | None = None):
        return fleet_of(*self[1:], router=router, scheduler=scheduler)

    def simulated(
        self, router: str, scheduler: str | None = None, **settings
    ) -> Simulation:
        return simulate(self.trace, self.deployment(router, scheduler), **settings)


def random_tables(seed: int, max_batch: int, max_tokens: int, exact: bool):
    """Return tables that rise without being straight, some with steps."""
    rng = np.random.default_rng(seed)

    def table(length: int, mean_s: float, base_s: float = 0.0) -> np.ndarray:
        rises = rng.exponential(mean_s, length) * rng.integers(0, 2, length)
        values = base_s + np.cumsum(rises)
        return np.ceil(values / TICK_S) * TICK_S if exact else values

    scale = 16 if exact else 1
    zero = exact and rng.random() < 0.5
    return LatencyTables(
        decode_s=table(max_batch + 1, 2e-3 * scale, 1e-2),
        decode_context_s=table(max_batch + 1, 1e-4) * (not zero),
        fused_s=table(max_tokens + 1, 1e-3 * scale, 1e-2),
        fused_decode_s=table(max_batch + 1, 1e-3 * scale),
        fused_context_s=table(max_batch + 1, 1e-4) * (not zero),
        attention_s=0.0 if exact else float(rng.choice([0.0, 1e-5])),
        request_s=float(rng.choice([0.0, TICK_S])),
    )


@st.composite
def cases(draw, requests: int = 24, replicas: int = 2, exact: bool | None = None):
    """Draw a trace with ties, tiny KV, small budgets and any engine setting."""
    if exact is None:
        exact = draw(st.booleans())
    rows = draw(
        st.lists(
            st.tuples(
                st.one_of(
                    st.integers(0, 2), st.integers(0, 12)
                ),  # ticks since the arrival before
                st.integers(1, 24),  # prompt
                st.one_of(st.just(1), st.integers(1, 16)),  # output
                st.integers(-1, 1),  # prefix group
                st.integers(0, 20),  # tokens of it
                st.integers(-8, 6),  # output tokens predicted too many
            ),
            min_size=1,
            max_size=requests,
        )
    )
    ticks, prompts, outputs, groups, shared, excess = np.array(rows).T
    arrival_s = np.cumsum(ticks) * TICK_S
    seed = draw(st.integers(0, 2**20))
    if not exact:
        noise_s = np.random.default_rng(seed).exponential(TICK_S / 4, len(rows))
        arrival_s = arrival_s + np.cumsum(noise_s * (ticks > 0))
    block_size = draw(st.integers(1, 7))
    bounded = {
        "bounded_groups": draw(st.integers(0, 2)),
        "bounded_blocks": draw(st.integers(0, 3)),
    }
    given = EngineSettings(block_size=block_size, **bounded)
    largest = int(np.max(given.request_blocks(prompts + outputs - 1)))
    max_num_seqs = draw(st.integers(1, MOST_SEQS))
    tight, roomy = st.integers(0, largest // 2), st.integers(0, 3 * largest)
    engine = EngineSettings(
        max_num_batched_tokens=max_num_seqs + draw(st.integers(0, 24)),
        max_num_seqs=max_num_seqs,
        block_size=block_size,
        kv_blocks=largest + 1 + draw(tight | roomy),
        async_scheduling=draw(st.booleans()),
        prefix_caching=draw(st.booleans()),
        **bounded,
    )
    trace = Trace(
        prompts,
        outputs,
        arrival_s,
        prefix_group=groups,
        prefix_tokens=shared,
        predicted_output_tokens=np.maximum(1, outputs + excess),
        priority=np.random.default_rng(seed + 1).integers(0, 3, len(rows)),
        session=_sessions(seed + 2, len(rows)),
    )
    most_tokens = MOST_SEQS * (24 + 1)  # of an iteration without a budget
    tables = random_tables(
        seed,
        MOST_SEQS,
        max(most_tokens, engine.max_num_batched_tokens, 24 + 16),
        exact,
    )
    return Case(trace, tables, engine, draw(st.integers(1, replicas)))


def _sessions(seed: int, n: int) -> np.ndarray:
    """Return few sessions, and requests without; one has a session."""
    session = np.random.default_rng(seed).integers(-1, 4, n)
    session[0] = 0
    return session


def with_slos(case: Case, rng: np.random.Generator) -> Case:
    """Return the case with random classes, limits in their names, all whole ticks."""
    gaps = [
        f"gaps/ttft={rng.integers(4, 80) * TICK_S}s,"
        f"tpot={rng.integers(2, 40) * TICK_S}s,tbt={rng.integers(2, 40) * TICK_S}s"
        for _ in range(rng.integers(1, 3))
    ]
    names = [*gaps, f"jct/e2e={rng.integers(20, 200) * TICK_S}s"]
    rng.shuffle(names)
    return case._replace(
        trace=replace(
            case.trace,
            request_class=rng.integers(0, rng.integers(1, 4), len(case.trace))
            % len(names),
            class_names=tuple(names),
        )
    )


def accelgen(
    case: Case, engine: EngineSettings, rng: np.random.Generator
) -> dict[str, float]:
    """Return settings of AccelGen: all on, or one part switched off, or any."""
    exact = case.tables.attention_s == 0
    switches = dict.fromkeys(("chunking", "ordering", "batching", "era"), 1)
    kind = rng.integers(0, 8)
    if kind < 4:
        switches[list(switches)[kind]] = 0
    elif kind == 4:
        switches = {name: int(rng.integers(0, 2)) for name in switches}
    t_pf_s = rng.integers(0, 12) * TICK_S * (1.0 if exact else rng.random())
    return {
        "s_pf": int(rng.integers(1, min(24, engine.max_num_batched_tokens) + 1)),
        "t_pf_s": float(t_pf_s),
        "gamma_s": float(rng.integers(0, 50) * TICK_S),
        "long_tokens": int(rng.integers(2, 24)),
        "affine": int(rng.integers(0, 2)),
        **switches,
        "overhead_s": float(rng.integers(0, 2) * TICK_S),
        "bounded": int(rng.integers(0, 2)),
    }


def with_limits(trace: Trace, rng: np.random.Generator) -> Trace:
    """Return requests of which none, some or all have a limit of their answers."""
    limit = trace.output_tokens + rng.integers(0, 9, len(trace))
    given = rng.random(len(trace)) < rng.choice([0.0, 0.5, 1.0])
    return replace(trace, max_new_tokens=np.where(given, limit, 0))


def admission_by_limit(seed: int) -> dict[str, float | str]:
    """Return settings of the schedulers that admit by a limit of the answer."""
    rng = np.random.default_rng(seed + 1)
    return {
        "policy": str(rng.choice(["guaranteed_no_evict", "max_utilization"])),
        "max_prefill_tokens": int(rng.choice([8, 16384])),
        "mixed": int(rng.integers(0, 2)),
        "ignore_eos": int(rng.random() < 0.25),
        "init_ratio": float(rng.choice([0.0, 0.0, 0.25, 0.7])),
        "min_factor": float(rng.choice([0.14, 1.0])),
        "decay_steps": int(rng.choice([4, 600])),
        "retract_steps": int(rng.choice([0, 20])),
        "clip": int(rng.choice([1, 1, 3, 4096])),
    }


def for_scheduler(name: str, case: Case, seed: int) -> tuple[str, Case]:
    """Return a scheduler with settings, and the case with an engine that suits it.

    Its KV is as small as the case's, but large enough for every request.
    """
    if name.startswith("vllm-v1"):
        return name, case
    rng = np.random.default_rng(seed)
    longest = int((case.trace.prompt_tokens + case.trace.output_tokens).max())
    limited = with_limits(case.trace, np.random.default_rng(seed + 2))
    case = case._replace(trace=limited)
    engine = replace(case.engine, scheduler=parse_scheduler(name))
    engine = without_unsupported(engine)
    least = MOST_SEQS if rng.random() < 0.5 else max(longest, MOST_SEQS)
    budget = max(engine.max_num_batched_tokens, least)
    engine = replace(engine, max_num_batched_tokens=budget)
    drawn = {
        "max_len": longest + int(rng.integers(0, 8)),
        **{key: int(rng.integers(0, 2)) for key in ("padded", "swap", "chunked")},
        "padded_budget": int(rng.integers(0, 2)),
        "accept": str(rng.choice(["metropolis", "printed"])),
        "batches": str(rng.choice(["continuous", "static"])),
        "early_return": int(rng.integers(0, 2)),
        "window": int(rng.integers(2, 8)),
        "hottest": float(rng.choice([1e-3, 1.0, 25.0])),
        "coldest": float(rng.choice([1e-4, 20.0])),
        "decay": 0.5,
        "moves": int(rng.integers(1, 20)),
        "plan_fixed_s": TICK_S * int(rng.integers(0, 2)),
        "plan_request_s": TICK_S * int(rng.integers(0, 2)),
        "base_quantum_s": float(rng.choice([1, 2, 8]) * TICK_S),
        "ratio": float(rng.choice([1.0, 2.0, 3.0])),
        "levels": int(rng.choice([1, 3, 1000])),
        "starvation_s": float(rng.choice([0.0, 8 * TICK_S, 3.0])),
        "starvation_iterations": int(rng.choice([1, 3, 1000])),
        "proactive": int(rng.integers(0, 2)),
        "min_free_blocks": int(rng.integers(0, 8)),
        "host_share": float(rng.choice([0.0, 0.1, 0.9])),
        "as_written": int(rng.integers(0, 2)),
        "overhead_s": TICK_S * int(rng.integers(0, 2)),
        "base_s": float(rng.choice([2, 16]) * TICK_S),
        "ageing_s": float(rng.choice([4 * TICK_S, 40 * TICK_S, 30.0])),
        "defer": int(rng.random() < 0.25),
        "stall": int(rng.integers(0, 2)),
        "t0_s": float(rng.choice([-1.0, 0.0, TICK_S])),
        "alpha_s": float(rng.choice([-1.0, 0.0])),
        "beta_s": float(rng.choice([-1.0, TICK_S])),
        "batch_size": int(rng.integers(1, 9)),
        "predict_s": 0.0,
        **admission_by_limit(seed),
    }
    copy_s = TICK_S * int(rng.integers(0, 3)) / 2
    engine = replace(
        engine, kv_block_bytes=1000, link_gb_per_s=1e-6 / max(copy_s, 1e-14)
    )
    watermark = rng.random() < 0.3
    if watermark:
        engine = replace(engine, max_num_seqs=MOST_SEQS)
    has = engine.scheduler.rules.settings
    if engine.scheduler.rules.slos:
        case = with_slos(case, rng)
        drawn |= accelgen(case, engine, rng)
    given = ",".join(f"{key}={drawn[key]}" for key in has)
    if "max_len" in has:
        room = -(-drawn["max_len"] // engine.block_size)
        more = int(rng.integers(0, 4 * room))
        engine = replace(engine, kv_blocks=engine.kv_blocks + more)
    elif watermark:  # above 100 blocks, one of them stays free at an admission
        engine = replace(
            engine,
            block_size=1,
            kv_blocks=101 + int(rng.integers(0, 60)),
            bounded_groups=2,  # so that few requests fill it
            bounded_blocks=8 + int(rng.integers(0, 10)),
        )
    tokens = case.trace.prompt_tokens + case.trace.output_tokens
    blocks = engine.request_blocks(tokens).sum() * rng.uniform(1.0, 1.5)
    engine = replace(engine, host_kv_gib=float(blocks) * 1000 / 2**30)  # room for all
    policy = f"{name}:{given}" if given else name
    engine = replace(engine, scheduler=parse_scheduler(policy))

    def refuses() -> bool:
        return bool(refused(case.trace, engine)[0].any())

    if refuses():  # a prompt in chunks whose last block none is left for
        engine = replace(engine, kv_blocks=engine.kv_blocks + 2)
    if refuses():  # prompts that are not cut
        beside = engine.max_num_seqs if "chunking=0" in policy else 0
        budget = max(engine.max_num_batched_tokens, longest + beside)
        engine = replace(engine, max_num_batched_tokens=budget)
    while refuses():
        engine = replace(engine, kv_blocks=engine.kv_blocks + 1)
    return policy, case._replace(engine=engine)
