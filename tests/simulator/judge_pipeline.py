"""vLLM V1 with pipeline parallelism, one step and one stage at a time.

Up to stages + 1 steps are in flight, those without requests among them. A request
decodes again so many steps after its last as there are stages. On the first stage a
step waits for the tokens that were sampled in the step so many before.
"""

from judge import Batch, Replica
from judge_schedulers import admitted, from_queue, going_on


class PipelineReplica(Replica):
    """One engine whose layers are on stages."""

    def __init__(self, *args):
        super().__init__(*args)
        self.stages = self.engine.pipeline.stages
        self.depth = self.stages + 1
        self.stage_s = [0.0] * self.stages  # end of the newest step on each
        self.steps = 0
        self.next_decode = {}  # step from which on a request may decode
        self.sampled_s = {}  # when the tokens of a step are there
        self.widest = 0  # requests of a step

    def arrive(self, request, now_s):
        if self.outstanding == 0:
            self.in_flight.clear()
        super().arrive(request, now_s)

    def schedule(self):
        self.steps += 1

        def too_soon(request):
            return self.steps < self.next_decode.get(request.row, 0)

        parts, budget, preempted = going_on(self, skips=too_soon)
        if not preempted:
            parts += from_queue(self, budget, admitted)
        if not parts:
            return Batch([], self.now_s)
        started = self.started(parts)
        end_s = self.run(parts)
        for (request, before, _), (_, _, gives) in zip(parts, started, strict=True):
            known = request.known_at_admission
            all_tokens = request.prompt_count + request.output_count
            # A prompt that ends with the last token sends none to the first stage.
            if gives and (before >= known or known + 1 < all_tokens):
                self.sampled_s[self.steps] = end_s
        for request, _, gives in started:
            if gives:
                self.next_decode[request.row] = self.steps + self.stages
        self.widest = max(self.widest, len(parts))
        return Batch(started, end_s)

    def run(self, parts):
        pipeline = self.engine.pipeline
        self.now_s, now_s, self.gpu_s = 0.0, self.now_s, 0.0
        took_s = super().run(parts)  # from 0 on
        self.now_s = now_s
        took_s = took_s * pipeline.share + pipeline.hop_s
        took_s += pipeline.hop_token_s * sum(new for _, _, new in parts)
        end_s = max(now_s, self.sampled_s.get(self.steps - self.stages, 0.0))
        for stage in range(self.stages):
            end_s = max(end_s, self.stage_s[stage]) + took_s
            self.stage_s[stage] = end_s
        return end_s
