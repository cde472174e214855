"""Small random cases for a scheduler, drawn so that KV is short and times coincide."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Policy
from capplan.latency.contract import LatencyTables, linear_tables
from capplan.simulator.checks import refused
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

_TICK_S = 2.0**-6
"""Times of half of the cases are whole ticks: sums of them have no rounding. Of none
where a setting in seconds is not: then what comes at the same time is left to it."""
_MOST_SEQS = 6
_MOST_REQUESTS = 24
_LONGEST = (24, 16)
"""Prompt and output. [tokens]"""
_DOUBLINGS = 10


class Case(NamedTuple):
    """What is simulated; ``seed`` draws it again."""

    seed: int
    trace: Trace
    configuration: Configuration
    replica_count: int
    slo: Slo

    def looser(self, kv: int = 2, budget: int = 2) -> "Case":
        """Return the case with so many times the KV blocks and the token budget."""
        engine = self.configuration.engine
        engine = replace(
            engine,
            kv_blocks=kv * engine.kv_blocks,
            max_num_batched_tokens=budget * engine.max_num_batched_tokens,
        )
        tables = self.configuration.tables.reaching(engine.max_num_batched_tokens)
        return self._replace(configuration=Configuration(engine, tables))

    def refused(self) -> np.ndarray:
        """Return which requests the scheduler refuses, shape (n,), bool."""
        return np.asarray(refused(self.trace, self.configuration.engine)[0], bool)


def draw(policy: Policy, seed: int) -> Case | None:
    """Return a case that a scheduler does not refuse; None where it refuses all."""
    rng = np.random.default_rng(seed)
    own = policy.settings.items()
    ticks = [value / _TICK_S for key, value in own if key.endswith("_s")]
    exact = bool(rng.integers(0, 2)) and all(float(n).is_integer() for n in ticks)
    trace = _trace(rng, exact)
    engine = _engine(rng, trace, policy)
    case = Case(
        seed,
        trace,
        Configuration(engine, _tables(rng, engine, exact)),
        int(rng.integers(1, 3)),
        _slo(rng),
    )
    if case.refused().any():
        case = _suited(case, rng)
    served = ~case.refused()
    return case._replace(trace=trace.select(served)) if served.any() else None


def _suited(case: Case, rng: np.random.Generator) -> Case:
    """Return the case with the budget, and then the KV, that a scheduler asks for."""
    wider = [case]
    for _ in range(_DOUBLINGS):
        wider.append(wider[-1].looser(kv=1))
    case = wider[int(np.argmin([each.refused().sum() for each in wider]))]
    if case.refused().any():
        for _ in range(_DOUBLINGS):
            if case.refused().any():
                case = case.looser(budget=1)
        case = case.looser(int(rng.integers(1, 5)), 1)  # room for more than one
    return case


def _trace(rng: np.random.Generator, exact: bool) -> Trace:
    n = int(rng.integers(1, _MOST_REQUESTS + 1))
    gaps = np.where(rng.random(n) < 0.5, rng.integers(0, 3, n), rng.integers(0, 13, n))
    if not exact:
        gaps = gaps + (gaps > 0) * rng.exponential(0.25, n)
    outputs = np.where(rng.random(n) < 0.2, 1, rng.integers(1, _LONGEST[1] + 1, n))
    return Trace(
        rng.integers(1, _LONGEST[0] + 1, n),
        outputs,
        np.cumsum(gaps) * _TICK_S,
        prefix_group=rng.integers(-1, 2, n),
        prefix_tokens=rng.integers(0, 21, n),
        predicted_output_tokens=outputs + rng.integers(0, 7, n),
        request_class=rng.integers(0, 2, n),
        class_names=("chat", "code"),
        session=np.arange(n) % 3,
        max_new_tokens=np.where(rng.random(n) < 0.5, 0, outputs + 9),
    )


def _engine(rng: np.random.Generator, trace: Trace, policy: Policy) -> EngineSettings:
    """Return an engine whose KV holds the largest request and little more."""
    rules = policy.rules
    seqs = int(rng.integers(1, _MOST_SEQS + 1))
    engine = EngineSettings(
        max_num_batched_tokens=seqs + int(rng.integers(0, 25)),
        max_num_seqs=seqs,
        block_size=int(rng.integers(1, 8)),
        async_scheduling=rules.async_scheduling and bool(rng.integers(0, 2)),
        prefix_caching=rules.prefix_caching and bool(rng.integers(0, 2)),
        bounded_groups=int(rng.integers(0, 3)),
        bounded_blocks=int(rng.integers(0, 4)),
        kv_block_bytes=1000,
        scheduler=policy,
        link_gb_per_s=1e-6 / float(rng.choice([1e-2, 1, 2]) * _TICK_S / 2),
    )
    tokens = trace.prompt_tokens + trace.output_tokens - 1
    largest = int(engine.request_blocks(tokens).max())
    spare = rng.integers(0, 1 + largest * int(rng.choice([1, 6])) // 2)
    return replace(engine, kv_blocks=1 + largest + int(spare))


def _tables(
    rng: np.random.Generator, engine: EngineSettings, exact: bool
) -> LatencyTables:
    """Return times that grow in a straight line, so that chunks save no time."""
    if exact:
        c0, ca, cd = rng.integers([1, 0, 0], [5, 2, 2]) * _TICK_S
        cq = ce = 0.0
    else:
        c0, ca, cd, cq, ce = rng.exponential([0.03, 2e-3, 2e-3, 1e-5, 1e-4])
    tables = linear_tables(
        c0,
        ca,
        cq,
        cd,
        ce,
        max_batch=_MOST_SEQS,
        max_tokens=engine.max_num_batched_tokens,
    )
    return tables._replace(request_s=float(rng.integers(0, 2)) * _TICK_S)


def _slo(rng: np.random.Generator) -> Slo:
    """Return an SLO with all limits for one class, and on e2e for the other."""
    # Between ticks: whether a time equal to its limit is late would be rounding.
    ttft_s, tbt_s, e2e_s = (rng.integers([4, 2, 20], [80, 40, 200]) + 0.4) * _TICK_S
    chat = RequestSlo(ttft_s, tbt_s, tbt_s, e2e_s)
    return Slo(None, by_class={"chat": chat, "code": RequestSlo(e2e_s=e2e_s)})
