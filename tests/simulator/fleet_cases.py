"""Small random fleets in motion, drawn so that rare things happen often.

``draw(kind, seed)`` gives the same case again; ``survey`` counts what happens in many.
"""

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from cases import MOST_SEQS, TICK_S, random_tables
from judge_aladdin import Aladdin
from judge_fleet import Event, Verdict, judge_fleet
from judge_fleet_pool import PoolOf
from judge_hand_off import HandOff
from judge_llumnix import Llumnix

from capplan.deployment.engine import EngineSettings
from capplan.deployment.speculation import Speculation
from capplan.latency.contract import LatencyTables
from capplan.workload.slo import RequestSlo
from capplan.workload.trace import Trace

KINDS = (
    "events",
    "llumnix",
    "llumnix-events",
    "nixl",
    "distserve",
    "aladdin",
    "aladdin-events",
    "drafts-events",
    "drafts-llumnix",
    "drafts-llumnix-events",
    "drafts-aladdin-events",
    "nixl-priority",
)
"""What moves: the fleet's size, requests, both, KV from prefill to decode, or nothing
but requests that are held to a beat; some with drafts to verify, or by priority."""

_LONGEST = 24, 24
"""Prompt and output. [tokens]"""
_ROUTERS = ("round-robin", "jsq", "power-of-two", "least-tokens", "inst-assign")
_OF_ONE_POOL = ("llumnix:refresh={}s", "llumnix:target=6,high=1,refresh={}s")


class FleetCase(NamedTuple):
    """What ``judge_fleet`` takes; whole seconds where ``exact``."""

    kind: str
    number: int
    exact: bool
    trace: Trace
    pools: list[PoolOf]
    moving: dict[str, Any]  # events, dispatcher, rebalancer or hand_off
    seed: int
    slo: RequestSlo

    @property
    def answers_tie(self) -> bool:
        """Whether an answer may bring a request at its own instant."""
        if not self.trace.users or self.pools[0][0].request_s:
            return False
        return bool((self.trace.think_s == 0).any())

    def judged(self) -> Verdict:
        return judge_fleet(
            self.trace, self.pools, seed=self.seed, slo=self.slo, **self.moving
        )


def draw(kind: str, number: int) -> FleetCase:
    """Return a random case of a kind."""
    rng = np.random.default_rng([KINDS.index(kind), number])
    exact = number % 2 == 0
    trace = _trace(rng, exact)
    block_size = int(rng.integers(1, 6))
    bounded = {}
    if rng.random() < 0.25:
        bounded = {"bounded_groups": 1, "bounded_blocks": int(rng.integers(1, 3))}
    request_s = float(rng.integers(0, 2)) * (1.0 if exact else TICK_S)

    def pool(replicas: int, outputs: np.ndarray, router: str) -> PoolOf:
        drafts = _drafts(rng, exact) if "drafts" in kind else None
        held = trace.prompt_tokens + outputs - 1
        engine = _engine(rng, held, block_size, bounded, drafts)
        seconds = _seconds(number + replicas, engine, exact)
        priority = rng.random() < 0.2 and drafts is None
        scheduler = "vllm-v1-priority" if priority else "vllm-v1"
        tables = seconds._replace(request_s=request_s)
        return tables, engine, scheduler, replicas, router

    if kind.startswith(("nixl", "distserve")):
        first = np.ones_like(trace.output_tokens)
        prefill = pool(int(rng.integers(1, 4)), first, _router(rng, exact))
        decode = pool(int(rng.integers(1, 4)), trace.output_tokens, _router(rng, exact))
        name = "vllm-v1-priority" if "priority" in kind else "vllm-v1"
        pools = [(*each[:2], name, *each[3:]) for each in (prefill, decode)]
        hand_off = _hand_off(rng, kind.partition("-")[0], exact)
        moving: dict[str, Any] = {"hand_off": hand_off}
    else:
        more = (*_OF_ONE_POOL, *(["best-fit"] if kind == "events" else []))
        count = int(rng.integers(2 if kind in ("llumnix", "aladdin") else 1, 5))
        pools = [pool(count, trace.output_tokens, _router(rng, exact, more))]
        moving = {}
        if "llumnix" in kind:
            moving["rebalancer"] = _llumnix(rng, exact)
        if "aladdin" in kind:
            moving["dispatcher"] = _aladdin(rng, exact)
            error = rng.integers(-20, 21, len(trace))
            predicted = np.maximum(1, trace.output_tokens + error)
            trace = replace(trace, predicted_output_tokens=predicted)
            pools = [(*pools[0][:2], "vllm-v1", *pools[0][3:])]
        if "events" in kind:
            moving["events"] = _events(rng, exact, count, len(trace))
    slo = RequestSlo(
        *(float(rng.integers(low, high)) * _unit(exact) for low, high in _LIMITS)
    )
    return FleetCase(
        kind, number, exact, trace, pools, moving, int(rng.integers(0, 99)), slo
    )


_LIMITS = (2, 40), (2, 12), (2, 12)
"""Of TTFT, TPOT and TBT. [units]"""


def _unit(exact: bool) -> float:
    """Return the time in which most times are drawn. [s]"""
    return 1.0 if exact else TICK_S


def _trace(rng: np.random.Generator, exact: bool) -> Trace:
    n = int(rng.integers(4, 19))
    gaps = np.where(rng.random(n) < 0.6, rng.integers(0, 3, n), rng.integers(0, 25, n))
    if not exact:
        gaps = gaps + (gaps > 0) * rng.exponential(0.25, n)
    prompts = rng.integers(1, _LONGEST[0] + 1, n)
    outputs = np.where(rng.random(n) < 0.15, 1, rng.integers(1, _LONGEST[1] + 1, n))
    trace = Trace(
        prompts,
        outputs,
        np.cumsum(gaps) * _unit(exact),
        prefix_group=rng.integers(-1, 2, n),
        prefix_tokens=rng.integers(0, 25, n),
        predicted_output_tokens=np.maximum(1, outputs + rng.integers(-8, 7, n)),
        priority=rng.integers(0, 3, n),
    )
    if rng.random() < 0.7:
        return trace
    least = int(rng.random() < 0.5)
    think = rng.integers(least, 6, n).astype(float)
    if not exact:
        think *= rng.random(n)
    until_s = np.inf if rng.random() < 0.8 else 40 * _unit(exact)
    users = int(rng.integers(1, min(8, n) + 1))
    return replace(
        trace,
        arrival_s=None,
        users=users,
        think_s=think * _unit(exact),
        asked_until_s=until_s,
    )


def _engine(
    rng: np.random.Generator,
    tokens: np.ndarray,
    block_size: int,
    bounded: dict,
    drafts: Speculation | None = None,
) -> EngineSettings:
    """Return an engine whose KV holds the largest request and little more."""
    seats = int(rng.integers(1, MOST_SEQS + 1))
    least = 1 if drafts is None else drafts.verified_tokens
    engine = EngineSettings(
        max_num_batched_tokens=max(seats, least) + int(rng.integers(0, 25)),
        max_num_seqs=seats,
        block_size=block_size,
        async_scheduling=bool(rng.integers(0, 2)),
        prefix_caching=bool(rng.integers(0, 2)),
        speculation=drafts,
        **bounded,
    )
    largest = int(engine.request_blocks(tokens + engine.slack_tokens).max())
    spare = int(rng.integers(0, 1 + largest * int(rng.choice([1, 2, 6])) // 2))
    return replace(engine, kv_blocks=1 + largest + spare)


def _drafts(rng: np.random.Generator, exact: bool) -> Speculation:
    """Return drafts of which none, some or all are accepted."""
    shares = rng.choice([0.0, 0.5, 0.8, 1.0, rng.random()], int(rng.integers(1, 4)))
    return Speculation(
        str(rng.choice(["mtp", "ngram"])),
        tuple(np.sort(shares)[::-1].tolist()),
        draft_s=int(rng.integers(0, 2)) * _unit(exact),
    )


@functools.lru_cache(maxsize=256)
def _tables(seed: int, tokens: int, exact: bool) -> LatencyTables:
    tables = random_tables(seed, MOST_SEQS, tokens, exact)
    if not exact:
        return tables
    return LatencyTables(*(column / TICK_S for column in tables))


def _seconds(seed: int, engine: EngineSettings, exact: bool) -> LatencyTables:
    return _tables(seed % 16, engine.max_num_batched_tokens, exact)


def _router(rng: np.random.Generator, exact: bool, more: tuple = ()) -> str:
    looks_s = int(rng.integers(0, 6)) * _unit(exact)
    routers = [*_ROUTERS, "llm-d:refresh={}s", *more]
    return str(rng.choice(routers)).format(looks_s)


def _llumnix(rng: np.random.Generator, exact: bool) -> Llumnix:
    unit_s = _unit(exact)
    return Llumnix(
        theta=float(rng.choice([0.5, 1.0, 3.0, 6.0])),
        period_s=int(rng.integers(1, 9)) * unit_s,
        usage=str(rng.choice(["head", "all"])),
        stages=int(rng.integers(1, 4)),
        last=int(rng.choice([1, 1, 2, 16])),
        handshake_s=int(rng.integers(0, 2)) * unit_s,
        block_s=float(rng.choice([0.5, 1.0, 3.0])) * unit_s,
        target=int(rng.choice([0, 4])),
        high=int(rng.integers(0, 3)),
        victim=str(rng.choice(["shortest", "newest"])),
    )


def _aladdin(rng: np.random.Generator, exact: bool) -> Aladdin:
    return Aladdin(
        beat_s=int(rng.integers(1, 12)) * _unit(exact),
        waste=float(rng.choice([0.0, 0.25, 0.3, 0.5])),
        rebalances=bool(rng.random() < 0.8),
    )


def _hand_off(rng: np.random.Generator, kind: str, exact: bool) -> HandOff:
    unit_s = _unit(exact)
    return HandOff(
        kind,
        threshold=int(rng.choice([0, 4, 12])) if kind == "nixl" else 0,
        hop_s=int(rng.integers(0, 2)) * unit_s,
        handshake_s=int(rng.integers(0, 2)) * unit_s,
        block_s=float(rng.choice([0.5, 1.0, 3.0])) * unit_s,
        report=str(rng.choice(["end", "launch"])) if kind == "nixl" else "end",
    )


def _events(
    rng: np.random.Generator, exact: bool, count: int, requests: int
) -> list[Event]:
    """Return changes after which a replica is open."""
    times = np.sort(rng.integers(0, 8 * requests, int(rng.integers(1, 6))))
    events, is_open = [], count
    for time in times * _unit(exact):
        kind = str(rng.choice(["up", "close", "fail", "fail"]))
        of = int(rng.integers(1, 3))
        is_open = is_open + of if kind == "up" else max(0, is_open - of)
        events.append(Event(float(time), kind, of))
    if not is_open:
        later_s = float(rng.integers(0, 20)) * _unit(exact)
        events.append(Event(events[-1].time_s + later_s, "up", 1))
    return events


def check(case: FleetCase, verdict: Verdict) -> None:
    """Refuse a verdict in which something was lost, or is still held."""
    for served in verdict.requests:
        given = len(served.token_s)  # with drafts several tokens at a time
        wanted = case.trace.output_tokens[served.row]
        assert given == wanted or ("drafts" in case.kind and given < wanted)
        assert (np.diff(served.token_s) > 0).all()
        assert served.arrival_s <= served.scheduled_s < served.token_s[0]
    for replicas in verdict.pools:
        for replica in replicas:
            assert not replica.is_moving
            assert replica.is_dead or not replica.coming
            assert not replica.leaving + replica.promised + replica.holding
            if not replica.is_dead:
                assert not replica.unfinished
                assert not replica.held
                assert len(replica.pool.free) == replica.engine.kv_blocks - 1
                assert all(block.references == 0 for block in replica.pool.free)
    busy: dict[int, list] = {}
    for moved in verdict.moves:
        assert moved.began_s <= moved.ended_s
        for index in (moved.source, moved.target):
            busy.setdefault(index, []).append((moved.began_s, moved.ended_s))
    for spans in busy.values():  # one at a time
        ends_s = np.array([end_s for _, end_s in spans[:-1]])
        assert (ends_s <= [begin_s for begin_s, _ in spans[1:]]).all()
    joined = Counter(m.row for m in verdict.moves if m.outcome == "joined")
    assert all(joined[served.row] == served.migrations for served in verdict.requests)


def happened(case: FleetCase, verdict: Verdict) -> Counter:
    """Count what happened in a case."""
    counted = Counter(verdict.counted)
    for moved in verdict.moves:
        counted[f"migration {moved.outcome}"] += 1
        if moved.outcome == "joined":
            counted[f"joined in stage {moved.stages}"] += 1
    decodes = verdict.pools[-1]
    if "hand_off" in case.moving:
        counted["pulls that waited for blocks"] += sum(
            len(replica.copies_refused) for replica in decodes
        )
        counted["preemptions on decode replicas"] += sum(r.preempted for r in decodes)
        counted["preemptions on prefill replicas"] += sum(
            r.preempted for r in verdict.pools[0]
        )
        counted["handed over"] += sum(
            not np.isnan(served.handed_s) for served in verdict.requests
        )
        counted["prefix hits not copied"] += sum(
            served.copied_hits > 0 for served in verdict.requests
        )
    else:
        counted["preemptions"] += sum(r.preempted for r in decodes)
    counted["requests"] += len(verdict.requests)
    counted["cases with users"] += case.trace.users > 0
    return counted


def survey(numbers: Iterable[int], kinds: Iterable[str] = KINDS) -> dict[str, Counter]:
    """Judge and check many cases; return what happened in those of each kind."""
    total: dict[str, Counter] = {kind: Counter() for kind in kinds}
    for number in numbers:
        for kind, counted in total.items():
            case = draw(kind, number)
            verdict = case.judged()
            check(case, verdict)
            counted.update(happened(case, verdict))
    return total
