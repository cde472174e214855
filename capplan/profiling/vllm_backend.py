"""Run scenes on vLLM's engine, in process, with the settings of ``vllm serve``."""

import contextlib
import importlib.metadata
import itertools
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

from capplan.errors import ProfileError
from capplan.profiling.backend import EngineFacts, EngineRequest, expert_rate
from capplan.profiling.filling import prompts_for_equal_context
from capplan.profiling.hardware import cpu_name, driver
from capplan.profiling.iteration_clock import Iteration, IterationClock
from capplan.profiling.scenes import Ladder, Point, Prompts, Rung, Sample, Scene

_CONTEXT_TOLERANCE = 0.01
_CONTEXT_SLACK = 8  # decode iterations on either side of a point's middle one
_STUCK_STEPS = 10
_SETTINGS = ("VLLM_", "OMP_", "KMP_", "NCCL_", "CUDA_VISIBLE")


class VllmBackend:
    """vLLM's ``LLMEngine``, stepped; options are fields of its ``EngineArgs``."""

    def __init__(
        self, request: EngineRequest, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self.request = request
        self.engine: Any = None
        self._timer = timer
        self.clock: IterationClock
        self._random = random.Random(0)
        self._ids = itertools.count(1)
        self._live: list[str] = []
        self._environment: dict[str, str] = {}
        self._device = ""

    def device(self) -> str:
        """Return the name of the hardware, before anything is loaded."""
        # vLLM reads its environment when it is imported.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            _share_cores(self.request.tp)
        # Recorded now: vLLM adds variables of its own later.
        self._environment = {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_SETTINGS)
        }
        if current_platform.is_cpu():
            self._device = "cpu " + cpu_name()
        else:
            self._device = str(current_platform.get_device_name())
        return self._device

    def load(self) -> EngineFacts:
        """Start the engine with the limits of ``vllm serve`` on this hardware."""
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        start = time.perf_counter()
        arguments = {
            "model": self.request.llm,
            "tensor_parallel_size": self.request.tp,
            "enable_prefix_caching": False,
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
        }
        arguments |= self.request.options
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(**arguments), usage_context=UsageContext.OPENAI_API_SERVER
        )
        config = self.engine.vllm_config
        self.clock = IterationClock(self._core().scheduler, self._timer)
        self._lag = int(bool(config.scheduler_config.async_scheduling))
        self._max_num_batched_tokens = config.scheduler_config.max_num_batched_tokens
        self._max_model_len = config.model_config.max_model_len
        self._vocabulary = config.model_config.get_vocab_size()
        self.warm_up()
        return self._facts(config, time.perf_counter() - start)

    def run(self, scene: Scene) -> list[Sample]:
        """Run a scene and return its timed iterations."""
        self.clock.reset()
        try:
            if isinstance(scene, Prompts):
                samples = self._run_prompts(scene)
            else:
                samples = self._run_ladder(scene)
        except Exception:
            # What failed first is the reason, not what a failed engine answers next.
            with contextlib.suppress(Exception):
                self._drain()
            raise
        self._drain()
        return samples

    def warm_up(self) -> None:
        """Run every path once, untimed: kernels are compiled at first use."""
        for scene in (Prompts(1, 64, 1), Ladder(8, (Rung(2, (16,)),), 2)):
            self.run(scene)
        self.clock.reset()

    def all_reduce_s(self, tokens: int) -> float | None:
        """Return the time of one all-reduce of ``tokens`` hidden states. [s]"""
        if self.request.tp == 1:
            return None
        hidden = self.engine.vllm_config.model_config.get_hidden_size()
        dtype = self.engine.vllm_config.model_config.dtype
        times = self.engine.collective_rpc(
            _time_all_reduce, args=(tokens, hidden, str(dtype).removeprefix("torch."))
        )
        return max(times)

    def close(self) -> None:
        """Stop the engine and its workers."""
        if self.engine is not None:
            self.engine.engine_core.shutdown()

    def _core(self) -> Any:
        return self.engine.engine_core.engine_core

    def _facts(self, config: Any, load_s: float) -> EngineFacts:
        import vllm

        kv = self._core().scheduler.kv_cache_config
        slots = kv.num_blocks * config.cache_config.block_size
        compilation = config.compilation_config
        return EngineFacts(
            device=self._device,
            backend="vllm",
            backend_version=str(vllm.__version__),
            torch_version=importlib.metadata.version("torch"),
            driver=driver(),
            dtype=str(config.model_config.dtype).removeprefix("torch."),
            quantization=str(config.model_config.quantization or "none"),
            kv_cache_dtype=str(config.cache_config.cache_dtype),
            max_model_len=config.model_config.max_model_len,
            max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
            max_num_seqs=config.scheduler_config.max_num_seqs,
            block_size=config.cache_config.block_size,
            kv_blocks=kv.num_blocks,
            kv_bytes_per_token=sum(tensor.size for tensor in kv.kv_cache_tensors)
            / slots,
            async_scheduling=bool(config.scheduler_config.async_scheduling),
            layers=config.model_config.hf_text_config.num_hidden_layers,
            graph_batches=tuple(sorted(compilation.cudagraph_capture_sizes or ())),
            load_s=load_s,
            compile_s=float(compilation.compilation_time),
            expert_rate=_expert_rate(config.model_config.hf_text_config),
            flags={
                "options": {k: str(v) for k, v in self.request.options.items()},
                "environment": self._environment,
            },
        )

    def add(self, prompt_tokens: int, output_tokens: int) -> str:
        """Add a request of random tokens; return its name."""
        from vllm import SamplingParams

        params = SamplingParams(
            max_tokens=output_tokens,
            min_tokens=output_tokens,
            ignore_eos=True,
            temperature=0,
            detokenize=False,
        )
        tokens = self._random.choices(range(self._vocabulary), k=prompt_tokens)
        name = f"capplan-{next(self._ids)}"
        self.engine.add_request(name, {"prompt_token_ids": tokens}, params)
        self._live.append(name)
        return name

    def _run_prompts(self, scene: Prompts) -> list[Sample]:
        points = scene.points(self._max_num_batched_tokens)
        # The first warms up. An asynchronous engine learns of an iteration's end when
        # it has launched the next: the first seems longer, the last, with no next,
        # shorter, and neither is measured.
        first = 1 + self._lag
        sets = first + scene.repeats + self._lag
        for done in range(sets):
            for _ in range(scene.count):
                self.add(scene.prompt_tokens, 1)
            # The next set is added when this one is scheduled, not when it is
            # finished, so that the queue of an asynchronous engine is never empty.
            self._step_until(scheduled=(done + 1) * len(points))
        self._step_until(finished=sets * len(points))
        return [
            _sample(points[row % len(points)], iteration)
            for row, iteration in enumerate(self.clock.iterations)
            if first <= row // len(points) < first + scene.repeats
        ]

    def _run_ladder(self, scene: Ladder) -> list[Sample]:
        first = scene.rungs[0].batch
        lengths = prompts_for_equal_context(
            first, scene.context, self._max_num_batched_tokens
        )
        # Requests outlast the ladder and are aborted at its end.
        running = [self.add(length, self._max_model_len) for length in lengths]
        zero = self._step_until_all_decode(first, scene.context)
        rung_starts, chunk_starts = scene.rung_starts(), scene.chunk_starts()
        for number in range(scene.iterations):
            self._step_until(finished=zero + number)
            if number in rung_starts:
                batch = rung_starts[number].batch
                self.engine.abort_request(running[batch:])
                running = running[:batch]
            # With asynchronous scheduling one iteration is scheduled already.
            if number + self._lag in chunk_starts:
                self.add(chunk_starts[number + self._lag], 1)
        self._step_until(finished=zero + scene.iterations)
        iterations = self.clock.iterations[zero:]
        samples = {
            number: _sample(point, iterations[number])
            for number, point in scene.schedule().items()
        }
        return list(self._without_launches(samples, iterations).values())

    def _without_launches(
        self, samples: dict[int, Sample], iterations: list[Iteration]
    ) -> dict[int, Sample]:
        """Return the samples with mixed iterations as long as they were on the GPU.

        Launching a mixed iteration can take an asynchronous engine longer than the
        decode iteration before it, which then seems longer by what the mixed one seems
        shorter: the decode iteration took as long as others of its batch.
        """
        if not self._lag:
            return samples
        decodes: dict[int, list[float]] = defaultdict(list)
        for point, seconds in samples.values():
            if point.phase == "decode":
                decodes[point.batch].append(seconds)
        alone_s = {batch: median(times) for batch, times in decodes.items()}
        made = dict(samples)
        for number, (point, seconds) in samples.items():
            if point.phase == "mixed":
                both_s = iterations[number - 1].seconds + seconds
                made[number] = Sample(point, max(0.0, both_s - alone_s[point.batch]))
        return made

    def _step_until_all_decode(self, batch: int, context: int) -> int:
        """Step until all decode; return the number of the iteration at ``context``."""
        while True:
            self._step_until(finished=len(self.clock.iterations) + 1)
            seen = self.clock.iterations[-1].point
            if seen.phase == "decode" and seen.batch == batch:
                return len(self.clock.iterations) - 1 + max(0, context - seen.context)

    def _step_until(self, scheduled: int = 0, finished: int = 0) -> None:
        clock, idle = self.clock, 0
        while clock.scheduled < scheduled or len(clock.iterations) < finished:
            before = clock.scheduled, len(clock.iterations)
            self.engine.step()
            stuck = before == (clock.scheduled, len(clock.iterations))
            idle = idle + 1 if stuck else 0
            if idle == _STUCK_STEPS:
                raise ProfileError("the engine schedules nothing more of this scene")

    def _drain(self) -> None:
        self.engine.abort_request(self._live)
        self._live = []
        idle = 0  # an iteration whose step failed stays in flight for ever
        while self.clock.in_flight and idle < _STUCK_STEPS:
            before = self.clock.in_flight
            self.engine.step()
            idle = idle + 1 if self.clock.in_flight == before else 0


def _sample(point: Point, iteration: Iteration) -> Sample:
    """Return the iteration's time as a sample of its planned point, if it is one."""
    seen = iteration.point
    near = abs(seen.context - point.context) <= max(
        _CONTEXT_SLACK, _CONTEXT_TOLERANCE * point.context
    )
    if seen[:3] != point[:3] or not near:
        raise ProfileError(f"the engine ran a {seen} where a {point} was planned")
    return Sample(point, iteration.seconds)


def _time_all_reduce(worker: Any, tokens: int, hidden: int, dtype: str) -> float:
    """Return the median time of one all-reduce; runs in each worker. [s]"""
    import statistics
    import time as clock

    import torch
    from vllm.distributed import tensor_model_parallel_all_reduce

    device = worker.device
    hidden_states = torch.ones(
        tokens, hidden, dtype=getattr(torch, dtype), device=device
    )
    times = []
    for _ in range(25):
        start = clock.perf_counter()
        tensor_model_parallel_all_reduce(hidden_states)
        if device.type != "cpu":
            torch.accelerator.synchronize()
        times.append(clock.perf_counter() - start)
    return statistics.median(times[5:])


def _share_cores(tp: int) -> None:
    """Give each of ``tp`` CPU workers its share of the cores this process may use."""
    if tp == 1 or "VLLM_CPU_OMP_THREADS_BIND" in os.environ:
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < tp:
        return  # the engine refuses with its own reason
    share = len(cores) // tp
    groups = [cores[rank * share : (rank + 1) * share] for rank in range(tp)]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(
        ",".join(map(str, group)) for group in groups
    )


def _expert_rate(hf_config: Any) -> float | None:
    """Return the rate of a mixture of experts; families name its fields differently."""
    experts = [
        getattr(hf_config, name)
        for name in ("num_local_experts", "n_routed_experts", "num_experts")
        if getattr(hf_config, name, None)
    ]
    chosen = getattr(hf_config, "num_experts_per_tok", None)
    return expert_rate(chosen, experts[0]) if experts and chosen else None
