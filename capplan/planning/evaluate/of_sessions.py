"""Judge a fleet that serves sessions: by whole sessions of samples that have settled.

A sample begins with sessions found in the middle, whose contexts are computed again at
once. What counts begins when these are done and the cache has taken in as many tokens
as it holds, and ends where requests would see the load go down.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.planning.evaluate.executors import Interrupted, side_by_side
from capplan.planning.evaluate.judgement import LOOKS, Judge, Judgement, alike
from capplan.planning.evaluate.judging import Judging
from capplan.planning.evaluate.steadiness import Steadiness
from capplan.planning.load.session_load import SessionLoad, SessionSpan
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.sample import Sample, sample_of
from capplan.simulator.results.times import Simulation
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

_MOST_TURNS, _OF_REQUESTS = 50_000, 0.05
"""Turns that count, of all samples of a fleet, at most, and in place of a request of
the budget: each goes on with a long context."""
_CYCLES = 3.0
"""Turns of a session that pass, in the mean, after the begin, before any counts."""
_COUNTED = 0.5
"""Part of a sample that counts at least."""
_TAIL = 0.95
"""Quantile of the stays that is left out at the end."""
PRESSURE = 0.85
"""Share of the KV that contexts of running sessions take, above which hits may vanish:
on public fleets they did between 0.71 and 0.98 (Kimi-K2.5 on MI355X, agents)."""
_HIT_DRIFT = 0.05
"""Hit rates of the halves of a sample differ by no more."""


def kv_tokens(deployment: Deployment) -> int:
    """Return the KV tokens of all replicas."""
    return sum(
        pool.replica_count
        * (engine := pool.configuration.engine).data_parallel_size
        * engine.kv_capacity_tokens
        for pool in deployment.pools
    )


def judged_sessions(
    simulated: Callable[[Trace], Simulation],
    load: SessionLoad,
    slo: Slo | None,
    deployment: Deployment,
    how: Judging,
    first: Simulation,
) -> tuple[SessionLoad, Simulation, Judgement]:
    """Return what counts of a load, the first sample, and the judgement of a fleet.

    The sample is made longer until half of it counts and its halves agree; then samples
    are added, twice as many each time, until they decide or the budget is spent.
    """
    names = (*first.class_names, *(slo.scopes if slo else ()))
    kv, judge = kv_tokens(deployment), Judge(slo, names)
    duration_s = load.lasts_s or load.first_look_s
    while True:
        span = spanned(load, first, kv, duration_s)
        sample = _sample(first, judge, span, how.metrics)
        hopeless = slo is not None and judge.is_hopeless(sample)
        settled = span.counts and _agree(first, judge, span)
        last = first.interrupted or duration_s >= 0.99 * load.most_s or how.first_only
        if settled or hopeless or last:
            break
        duration_s = min(max(2 * duration_s, span.wanted_s), load.most_s)
        first = simulated(load.sample(0, duration_s))
    load = replace(load, span=span, lasts_s=duration_s, warmup_s=span.from_s)
    steadiness = Steadiness(
        drawn=True,
        settled=settled,
        recovery_s=span.from_s,
        simulated_s=duration_s,
    )
    judge = replace(judge, steadiness=steadiness)
    samples, spent = [sample], False
    if slo is not None and settled and not (hopeless or last):
        samples, spent = _decided(simulated, load, judge, how, sample)
    judgement = judge.judgement(samples, span.from_s)
    return load, first, replace(judgement, spent=spent)


def _decided(
    simulated: Callable[[Trace], Simulation],
    load: SessionLoad,
    judge: Judge,
    how: Judging,
    first: Sample,
) -> tuple[list[Sample], bool]:
    """Return samples that decide, and whether the budget was spent before."""
    samples, runs, span = [first], count(1), load.span
    assert span is not None

    def sampled(index: int) -> Sample:
        simulation = simulated(load.sample(index, load.lasts_s))
        return _sample(simulation, judge, span, how.metrics)

    each = int(first.counted.sum())
    most = min(_MOST_TURNS, _OF_REQUESTS * how.budget_requests)
    for _ in range(1, LOOKS):
        if judge.verdict(samples) is not None:
            break
        if 2 * len(samples) * each > most:
            return samples, True
        try:
            more = [next(runs) for _ in range(len(samples))]
            samples += side_by_side(sampled, more)
        except Interrupted:
            break
    return samples, False


def _sample(
    simulation: Simulation, judge: Judge, span: SessionSpan, metrics: tuple[str, ...]
) -> Sample:
    return sample_of(simulation, judge.slo, span.from_s, metrics, span.until_s)


def spanned(
    load: SessionLoad, first: Simulation, kv: int, duration_s: float
) -> SessionSpan:
    """Return what counts of a sample on a fleet of so many KV tokens."""
    times = first.table
    start_s = float(times.arrival_s.min())
    at_begin = times.arrival_s <= start_s
    done_s = float(times.finish_s[at_begin].max()) - start_s
    stays_s = times.e2e_s[~at_begin] if (~at_begin).any() else times.e2e_s
    tail_s = min(float(np.quantile(stays_s, _TAIL)), 0.1 * duration_s)
    turns_per_s = len(times) / duration_s
    cycle_s = load.running / turns_per_s
    taken_in_per_s = _taken_in(times) / duration_s
    filled_s = kv / taken_in_per_s
    before_s = done_s + _CYCLES * cycle_s
    if load.has_given_warmup:
        before_s = filled_s = load.warmup_s
    # A cache that fills no faster is not what sessions contend for.
    from_s = min(max(before_s, filled_s), max(before_s, _COUNTED * duration_s))
    until_s = duration_s - tail_s
    return SessionSpan(
        from_s,
        max(until_s, from_s),
        counts=until_s - from_s >= 0.8 * _COUNTED * duration_s,
        wanted_s=(before_s + tail_s) / (1 - _COUNTED),
        turnovers=max(until_s - from_s, 0.0) / filled_s,
    )


def _taken_in(times: RequestTimes) -> float:
    """Return the tokens that caches have taken in."""
    computed = times.prompt_tokens - times.cached_tokens + times.output_tokens
    return float(computed.sum())


def _agree(first: Simulation, judge: Judge, span: SessionSpan) -> bool:
    """Return whether the halves of what counts come to the same.

    As many tokens are found in caches, and each group attains as much, or is on the
    same side of its target.
    """
    middle_s = (span.from_s + span.until_s) / 2
    parts = ((span.from_s, middle_s), (middle_s, span.until_s))
    hits = [hit_rate(first, *part) for part in parts]
    if abs(hits[0] - hits[1]) > _HIT_DRIFT:
        return False
    halves = [sample_of(first, judge.slo, a, (), b) for a, b in parts]
    return alike(halves, judge.groups, 0.5)


def hit_rate(simulation: Simulation, from_s: float, until_s: float) -> float:
    """Return the share of prompt tokens found in caches, of arrivals in a time. [s]"""
    times = simulation.table
    since_s = times.arrival_s - times.arrival_s.min()
    rows = (since_s >= from_s) & (since_s < until_s)
    tokens = times.prompt_tokens[rows].sum()
    return float(times.cached_tokens[rows].sum() / max(tokens, 1))


@dataclass(frozen=True)
class SessionsServed:
    """Sessions in what counts of the first sample."""

    lanes: int | None  # that run at once; None: they begin at a rate
    rate_per_s: float | None  # at which they begin [1/s]
    running: float  # in the mean
    count: int  # of which turns count
    turns: int
    hit_rate: float  # share of prompt tokens found in caches
    tier_hit_rate: float  # in a tier
    compulsory_rate: float  # that even an endless cache would not have had
    users_per_gpu: float  # running, over GPUs
    # running × mean prompt and answer without texts that all share, over KV tokens
    kv_pressure: float
    turnovers: float  # how often caches were filled anew
    kept: float | None  # share of the sessions all of whose turns were in time

    def caution(self) -> str:
        """Return that sessions may push each other out of caches; else nothing."""
        if self.kv_pressure <= PRESSURE:
            return ""
        return (
            f"contexts of running sessions take {100 * self.kv_pressure:.0f} % of the "
            f"KV: above {100 * PRESSURE:.0f} % a few more sessions, or longer ones, "
            "can make most hits vanish at once; plan a replica more, or fewer sessions"
        )


def served(
    load: SessionLoad, first: Simulation, deployment: Deployment, slo: Slo | None
) -> SessionsServed:
    """Return what sessions of a judged load were served."""
    span, times, turns = load.span, first.table, first.turns
    assert span is not None
    assert turns is not None
    since_s = times.arrival_s - times.arrival_s.min()
    rows = np.flatnonzero((since_s >= span.from_s) & (since_s < span.until_s))
    counted, session = times.select(rows), turns.session[rows]
    running = _running(load, counted, span.until_s - span.from_s)
    tokens = counted.prompt_tokens + counted.output_tokens
    prompts = max(int(counted.prompt_tokens.sum()), 1)
    mean = float(tokens.mean()) if len(tokens) else 0.0
    kept = None
    if slo is not None and len(rows):
        columns = slo.columns(counted.request_class, first.class_names)
        missed = ~np.logical_and.reduce(counted.met(columns))
        kept = 1 - len(np.unique(session[missed])) / len(np.unique(session))
    return SessionsServed(
        lanes=load.sessions.lanes,
        rate_per_s=load.sessions.rate_per_s,
        running=running,
        count=len(np.unique(session)),
        turns=len(rows),
        hit_rate=float(counted.cached_tokens.sum()) / prompts,
        tier_hit_rate=float(counted.tier_tokens.sum()) / prompts,
        compulsory_rate=1 - float(turns.shared_tokens[rows].sum()) / prompts,
        users_per_gpu=running / deployment.gpu_count,
        kv_pressure=running * mean * load.mix.own_share / kv_tokens(deployment),
        turnovers=span.turnovers,
        kept=kept,
    )


def _running(load: SessionLoad, counted: RequestTimes, width_s: float) -> float:
    """Return the sessions that run in the mean, by Little's law."""
    mix, alone_s = load.mix, load.stay_s
    if load.sessions.lanes is not None or alone_s is None or not len(counted):
        return float(load.sessions.lanes or 0)
    turns = float(mix.turns.mean())
    later_s = float(counted.e2e_s.mean()) - float(alone_s.mean())
    lasts_s = float(mix.lasts_s.mean()) + turns * max(later_s, 0.0)
    return len(counted) / width_s / turns * lasts_s
