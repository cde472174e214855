"""The autoscaler's ticks: what it sees, and the replicas that it orders or closes."""

import math
from collections.abc import Callable

import numpy as np

from capplan.deployment.changes import Change
from capplan.deployment.pools import Deployment
from capplan.simulator.autoscalers import Known, View, parse_autoscaler, start
from capplan.simulator.autoscalers.schedule import leaves_alone
from capplan.simulator.fleet.replicas import Replicas
from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.jit import direct
from capplan.workload.trace import Trace


class Ticks:
    """Ticks of a deployment's autoscaler; there are none where it has none."""

    def __init__(self, deployment: Deployment) -> None:
        self.next_s = math.inf
        self._deployment = deployment
        self._decide: Callable[[View], int] | None = None
        self._tick = 0
        self._before = (0, 0, 0.0)  # requests arrived and finished, and when
        # of prompts and predicted outputs, of all requests before each of the chunk
        self._tokens = np.zeros((2, 1), np.int64)
        self._first = 0  # row of the first request of the chunk
        self._tokens_before = self._tokens[:, 0]  # at the last tick
        self._seen = np.zeros((4, 1))

    def begin(self, trace: Trace, start_s: float) -> None:
        """Take the requests of a trace, or its next chunk; the first starts ticking."""
        if not self._deployment.autoscaler:
            return
        predicted = trace.predicted_output_tokens
        if predicted is None:
            predicted = trace.output_tokens
        sums = np.zeros((2, len(trace) + 1), np.int64)
        np.cumsum([trace.prompt_tokens, predicted], axis=1, out=sums[:, 1:])
        self._first += self._tokens.shape[1] - 1
        self._tokens = sums + self._tokens[:, -1:]
        if self._decide is not None:
            return
        policy = parse_autoscaler(self._deployment.autoscaler)
        fixed = self._deployment.pool.replica_count
        if policy.name == "schedule" and leaves_alone(policy.settings, fixed):
            return  # the static fleet, to the bit: a tick cuts a jump, and rounds
        engine = self._deployment.pool.configuration.engine
        known = Known(
            arrival_s=np.zeros(0) if trace.arrival_s is None else trace.arrival_s,
            start_s=start_s,
            replicas=fixed,
            cold_start_s=self._deployment.cold_start_s,
            block_size=engine.block_size,
            max_num_batched_tokens=engine.data_parallel_size
            * engine.max_num_batched_tokens,
            max_num_seqs=engine.data_parallel_size * engine.max_num_seqs,
        )
        self._decide = start(policy, known)
        self._period_s = policy.settings["period"]
        self._tick = math.ceil(start_s / self._period_s)
        self._before = (0, 0, self._tick * self._period_s - self._period_s)
        self.next_s = self._tick * self._period_s

    def tick(
        self, pool: ServingPool, replicas: Replicas, arrived: int, finished: int
    ) -> bool:
        """Do what the autoscaler wants now; return whether the log had room."""
        from capplan.simulator.fleet.observing import observe

        assert self._decide is not None
        now_s, count = self.next_s, pool.replica_count
        if self._seen.shape[1] != count:
            self._seen = np.zeros((4, count))
        if not direct(observe)(pool.state, now_s, pool.schedule, self._seen):
            return False
        replicas.end_drained()
        lives = replicas.lives
        seen = self._seen[:, : lives.open].copy()
        before, tokens = self._before, self._tokens[:, arrived - self._first]
        new_tokens, self._tokens_before = tokens - self._tokens_before, tokens
        wanted = self._decide(
            View(
                now_s=now_s,
                ready=lives.open,
                starting=lives.starting,
                draining=len(lives.draining()),
                running=seen[0],
                waiting=seen[1],
                kv_share=seen[2],
                freeness=seen[3],
                total_blocks=pool.engine.data_parallel_size
                * (pool.engine.kv_blocks - 1),
                held=replicas.held,
                arrived=arrived - before[0],
                arrived_prompt_tokens=int(new_tokens[0]),
                arrived_output_tokens=int(new_tokens[1]),
                finished=finished - before[1],
                since_s=now_s - before[2],
            )
        )
        self._before = arrived, finished, now_s
        self._tick += 1
        self.next_s = self._tick * self._period_s
        self._change(replicas, wanted, now_s)
        return True

    def _change(self, replicas: Replicas, wanted: int, now_s: float) -> None:
        """Order replicas, or take back orders, the newest first, and close others."""
        lives = replicas.lives
        more = wanted - lives.open - lives.starting
        if more > 0:
            ready_s = now_s + self._deployment.cold_start_s
            lives.note(Change(ready_s, "up", more, ordered_s=now_s))
        elif more < 0:
            left = -more - lives.cancel(-more, now_s)
            if left:
                replicas.close(now_s, "close", left)
