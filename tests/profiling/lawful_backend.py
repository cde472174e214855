"""A backend whose iterations take what a known law says: an engine for tests.

It keeps the protocol of real backends and runs in a process of its own as they
do. Options: those of ``Law``; ``journal``, a file to which every measured point
is appended; ``pause_s`` per scene; ``fail_load``; ``die_at``, the number of the
scene at which the process is killed; ``refuse``, a phase whose scenes fail.
"""

import json
import os
import signal
import sys
import time

from capplan.profiling.backend import EngineFacts
from capplan.profiling.scenes import Ladder, Point, Prompts, Sample

LAW = {"fixed_s": 2e-3, "token_s": 2e-5, "attention_s": 4e-9, "context_s": 1e-7}
LIMITS = {
    "max_model_len": 2048,
    "max_num_batched_tokens": 512,
    "max_num_seqs": 16,
    "block_size": 16,
    "kv_blocks": 1025,
}


def law_s(point: Point) -> float:
    """Return the time of an iteration."""
    phase, batch, new, context = point
    seconds = LAW["fixed_s"] + LAW["token_s"] * new
    if phase == "prefill":
        return seconds + LAW["attention_s"] * new * (context + new / batch / 2)
    chunk = new - batch
    seconds += LAW["context_s"] * batch * context
    return seconds + LAW["attention_s"] * chunk * chunk / 2


class LawfulBackend:
    def __init__(self, request):
        self.request = request
        self.options = dict(request.options)
        self.scenes = 0

    def device(self):
        return self.options.get("device", "NVIDIA H100 80GB HBM3")

    def load(self):
        if self.options.get("fail_load"):
            raise ValueError(self.options["fail_load"])
        if 8 % self.request.tp:
            raise ValueError(
                f"Total number of attention heads (8) must be divisible by tensor "
                f"parallel size ({self.request.tp})."
            )
        engine = {name: self.options.get(name, value) for name, value in LIMITS.items()}
        return EngineFacts(
            device=self.device(),
            backend="lawful",
            backend_version=self.options.get("version", "1"),
            torch_version="0",
            driver="none",
            dtype="bfloat16",
            quantization="none",
            kv_cache_dtype="auto",
            kv_bytes_per_token=131072.0 / self.request.tp,
            async_scheduling=False,
            layers=4,
            flags={"options": {}},
            **engine,
        )

    def run(self, scene):
        self.scenes += 1
        time.sleep(self.options.get("pause_s", 0))
        if self.scenes == self.options.get("die_at"):
            print("MemoryError: the cache grew too large", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(scene, Prompts):
            points = scene.points(LIMITS["max_num_batched_tokens"]) * scene.repeats
        else:
            assert isinstance(scene, Ladder)
            points = list(scene.schedule().values())
        if self.options.get("refuse") == points[0].phase:
            raise MemoryError("out of memory in this scene")
        if "journal" in self.options:
            with open(self.options["journal"], "a") as file:
                for point in dict.fromkeys(points):
                    file.write(json.dumps(point) + "\n")
        return [Sample(point, law_s(point)) for point in points]

    def all_reduce_s(self, tokens):
        return None if self.request.tp == 1 else 1e-5 + 1e-8 * tokens

    def close(self):
        pass
