"""What the step-by-step judge does with the requests of a recording."""

import numpy as np
from judge_tier import TierReplica
from judge_v1 import Replica, serve, shortest_queue
from recorded import (
    ITERATION_TIMES,
    REQUEST_COUNTS,
    REQUEST_TIMES,
    TOLERANCE_S,
    Recording,
)


class Noting(Replica):
    """An engine that notes its iterations as the recorder does."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording.tables, recording.engine)
        self.notes: list[dict[str, object]] = []
        self.preemptions = 0
        self.names = [row["id"] for row in recording.requests]

    def preempt(self, request):
        super().preempt(request)
        self.preemptions += 1

    def written(self, part) -> str:
        before = int(part.context) - 1  # without drafts that will be rejected
        return f"{self.names[part.request.row]}:{before}+{part.new}"

    def schedule(self):
        self.preemptions = 0
        return super().schedule()

    def run(self, parts):
        decodes = [part for part in parts if self.decodes(part)]
        prompts = [part for part in parts if not self.decodes(part)]
        sampled_s = self.sampled_s.get(self.step - self.stages, 0.0)
        start_s = max(self.now_s, self.stage_s[0], sampled_s)
        end_s = super().run(parts)
        self.notes.append(
            {
                "sched": ";".join(map(self.written, parts)),
                "ctx_reqs": len(prompts),
                "ctx_tokens": sum(part.new for part in prompts),
                "gen_reqs": len(decodes),
                "gen_ctx": int(sum(part.context for part in decodes)),
                "running": len(self.running),
                "waiting": len(self.waiting),
                "free_blocks": len(self.pool.free),
                "preempted": self.preemptions,
                "sched_s": self.now_s,
                "start_s": start_s,
                "end_s": end_s,
            }
        )
        return end_s


class NotingOfTier(Noting, TierReplica):
    """One with a tier, where iterations may wait before they are launched."""

    def choose(self, throttled: bool = False):
        self.called_s = self.now_s
        return super().choose(throttled)

    def run(self, parts):
        end_s = super().run(parts)
        waiting = len(self.waiting) + len(self.holding)
        self.notes[-1] |= {"sched_s": self.called_s, "waiting": waiting}
        return end_s

    def load(self, request, tokens):
        loads = super().load(request, tokens)
        request.external_tokens = self.of[request].tier_tokens
        return loads


def first_difference(recording: Recording) -> str:
    """Return where the judge first departs from the engine; "" when nowhere."""
    replica = (NotingOfTier if recording.engine.has_tier else Noting)(recording)
    # Turns at the moments at which they came: the judge does not wait for answers.
    arrival_s = np.array([float(row["arrival_s"]) for row in recording.requests])
    after = np.full(len(arrival_s), -1)
    trace = recording.trace.changed(after=after, arrival_s=arrival_s)
    verdict = serve(trace, [replica], shortest_queue)
    for k, (engine, ours) in enumerate(
        zip(recording.iterations, replica.notes, strict=False)
    ):
        for name, found in ours.items():
            if name in ITERATION_TIMES:
                same = abs(float(engine[name]) - found) <= TOLERANCE_S
            else:
                same = engine[name] == str(found)
            if not same:
                return f"iteration {k}: {name} is {engine[name]}, not {found}"
    if len(recording.iterations) != len(replica.notes):
        return f"engine ran {len(recording.iterations)}, not {len(replica.notes)}"
    for engine, ours in zip(recording.requests, verdict.requests, strict=True):
        times_s = ours.scheduled_s, ours.token_s[0], ours.token_s[-1]
        for name, found in zip(REQUEST_TIMES, times_s, strict=True):
            if not abs(float(engine[name]) - found) <= TOLERANCE_S:
                return f"request {ours.row}: {name} is {engine[name]}, not {found}"
        for name in REQUEST_COUNTS:
            if int(engine.get(name, 0)) != getattr(ours, name, 0):
                return f"request {ours.row}: {name} is {engine[name]}"
    return ""
