"""A simulator that steps through every iteration, to judge the fast one by.

Plain lists and dicts, one iteration at a time, one object per KV block and one
value per token, so that each rule of the engine can be read off. ``judge_v1.py`` says
what an engine does with vLLM's own scheduler, ``judge_schedulers.py`` holds the others;
here are the routers.
"""

from dataclasses import dataclass, replace

import judge_v1
import numpy as np
from judge_best_fit import best_fit
from judge_routers import REMEMBERING, Sent
from judge_schedulers import SCHEDULERS
from judge_sglang import enter
from judge_v1 import Verdict, serve, shortest_queue

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.simulator.routers import parse_router
from capplan.simulator.schedulers import parse_scheduler
from capplan.workload.slo import RequestSlo
from capplan.workload.trace import Trace


@dataclass(eq=False)
class Request(judge_v1.Request):
    """One request on a replica with any scheduler."""

    host_blocks: int = 0  # its KV on the host
    prompt_left: bool = True  # FastGen: it still counts as a prompt
    decodes: bool = False  # oracle: its prompt is done
    batch: int = 0  # SA: of the plan; 0: not planned

    @property
    def is_last_in_flight(self) -> bool:
        due = max(self.placeholders, int(self.stale > 0))
        return len(self.tokens) + due >= self.last_count


class Replica(judge_v1.Replica):
    """One engine with any scheduler."""

    def __init__(
        self,
        tables: LatencyTables,
        engine: EngineSettings,
        scheduler: str,
        index: int = 0,
        seed: int = 0,
        slo: RequestSlo | None = None,
    ) -> None:
        policy = parse_scheduler(scheduler)
        self.scheduler, self.settings = policy.name, policy.settings
        overhead_s = self.settings.get("overhead_s", 0.0)
        tables = tables._replace(
            decode_s=tables.decode_s + overhead_s, fused_s=tables.fused_s + overhead_s
        )
        super().__init__(tables, replace(engine, scheduler=policy), index, seed)
        self.slo = slo
        self.plans = 0
        self.charged = 0.0  # InstAssign: tokens
        self.seen = 0, 0.0  # waiting requests and KV use at the last look
        self.sent = Sent()  # what a router remembers of it
        self.buffer: list[Request] = []  # all, where a scheduler has its own order
        self.host_free = engine.host_kv_blocks if engine.kv_block_bytes else 0

    @property
    def unfinished(self) -> list[Request]:
        everyone = {*self.waiting, *self.running, *self.buffer}
        return [request for request in everyone if not request.done]

    def choose(self, throttled: bool = False):
        if self.scheduler in SCHEDULERS:
            self.begin()
            return SCHEDULERS[self.scheduler](self, self.settings)
        return super().choose(throttled)

    def swap_out(self, request: Request) -> None:
        """Copy a request's KV to the host; the next iteration waits for it."""
        request.host_blocks = len(request.blocks) + len(request.bounded)
        self.pool.take_back(request)
        self.host_free -= request.host_blocks
        assert self.host_free >= 0
        request.swaps += 1
        self.copy(request.host_blocks)

    def swap_in(self, request: Request) -> None:
        """Copy it back."""
        bounded = self.pool.bounded(request)
        tokens = (request.host_blocks - bounded) * self.engine.block_size
        self.pool.give(request, tokens, [])
        self.host_free += request.host_blocks
        self.copy(request.host_blocks)
        request.host_blocks = 0

    def copy(self, blocks: int) -> None:
        """Make the next iteration wait for blocks that are copied."""
        start_s = max(self.now_s, self.gpu_s)
        self.gpu_s = start_s + blocks * self.engine.block_link_s

    def look(self, moment_s: float) -> None:
        """Note the queue and the share of the KV in use at a moment."""
        self.advance(moment_s)
        free = len(self.pool.free) / (self.engine.kv_blocks - 1)
        self.seen = len(self.waiting), 1.0 - free

    def enter_output(self, request: Request) -> None:
        if self.scheduler != "sglang":  # at its end
            super().enter_output(request)

    def finish(self, request: Request) -> None:
        if self.scheduler == "sglang":
            enter(self.pool, request, request.computed)
        super().finish(request)


def _round_robin(replicas, index, draw, request, now_s, slo):
    return index % len(replicas)


def _shortest_queue(replicas, index, draw, request, now_s, slo):
    return shortest_queue(replicas, request, now_s)


def _power_of_two(replicas, index, draw, request, now_s, slo):
    n = len(replicas)
    first = int(draw[0] * n)
    others = [r for r in range(n) if r != first]
    if not others:
        return first
    second = others[int(draw[1] * (n - 1))]
    shorter = replicas[second].outstanding < replicas[first].outstanding
    return second if shorter else first


def _inst_assign(replicas, index, draw, request, now_s, slo):
    """Most memory left by its own book, which is opened anew when it is used up."""
    engine = replicas[0].engine
    room = (engine.kv_blocks - 1) * engine.block_size
    tokens = request.prompt_count + request.predicted_count
    charged = [replica.charged for replica in replicas]
    best = charged.index(min(charged))
    if (room - charged[best]) * 0.9 < tokens:
        for replica in replicas:
            replica.charged = 0.0
        best = 0
    replicas[best].charged += tokens / 0.9
    return best


def _least_tokens(replicas, index, draw, request, now_s, slo):
    counts = [
        sum(each.prompt_count + each.predicted_count for each in replica.unfinished)
        for replica in replicas
    ]
    return counts.index(min(counts))


ROUTERS = {
    "least-tokens": _least_tokens,
    "round-robin": _round_robin,
    "jsq": _shortest_queue,
    "power-of-two": _power_of_two,
    "best-fit": best_fit,
    "inst-assign": _inst_assign,
    **REMEMBERING,
}


def judge(
    trace: Trace,
    tables: LatencyTables,
    engine: EngineSettings,
    replica_count: int,
    router: str,
    seed: int = 0,
    slo: RequestSlo | None = None,
    scheduler: str = "vllm-v1",
) -> Verdict:
    """Serve a trace step by step, by a router."""
    draws = np.random.default_rng(seed).random((len(trace), 2))
    slo = slo or RequestSlo(ttft_s=np.inf, tpot_s=np.inf)
    replicas = [
        Replica(tables, engine, scheduler, index, seed, slo)
        for index in range(replica_count)
    ]
    policy = parse_router(router)
    own = policy.settings if policy.name in REMEMBERING else {}
    period_s = own.get("refresh", 0.0)
    looks = 0

    def look(now_s: float) -> None:
        nonlocal looks
        while period_s and looks * period_s < now_s:
            for replica in replicas:
                replica.look(looks * period_s)
            looks += 1
        for replica in [] if period_s else replicas:
            replica.look(now_s)

    def choose(replicas: list, request: Request, now_s: float) -> int:
        route, row = ROUTERS[policy.name], request.row
        return route(replicas, row, draws[row], request, now_s, slo, **own)

    return serve(trace, replicas, choose, slo, look, Request)
