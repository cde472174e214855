"""Run scenes on a plain PyTorch transformer, where there is no vLLM.

It measures the same points on another engine: no scheduler, sampler or paged cache,
and PyTorch's kernels. Its profiles say so.
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from capplan.errors import ProfileError
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.profiling.backend import EngineFacts, EngineRequest
from capplan.profiling.hardware import cpu_name, driver
from capplan.profiling.scenes import Point, Prompts, Sample, Scene
from capplan.profiling.torch_llm import TorchLlm, Work, check_llm

NOTE = "measured on a plain PyTorch transformer, not on vLLM"
_BLOCK_TOKENS = 16
_CPU_KV_BYTES = 2**30
_MEMORY_SHARE = 0.9
_OPTIONS = {
    "dtype",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "kv_cache_memory_bytes",
    "gpu_memory_utilization",
    "load_format",
}


class TorchBackend:
    """A model's shapes with random weights; options have vLLM's names."""

    def __init__(self, request: EngineRequest) -> None:
        self.request = request
        self.rank: _Rank
        self._workers: list[tuple[Any, Connection]] = []

    def device(self) -> str:
        """Return the name of the hardware."""
        if torch.cuda.is_available():
            return torch.cuda.get_device_name()
        return "cpu " + cpu_name()

    def load(self) -> EngineFacts:
        """Build the transformer on each rank."""
        start = time.perf_counter()
        unknown = sorted(set(self.request.options) - _OPTIONS)
        if unknown:
            raise ProfileError(
                f"the torch backend has no setting {', '.join(unknown)}; expected "
                f"{', '.join(sorted(_OPTIONS))}"
            )
        llm, tp = find_llm(self.request.llm), self.request.tp
        check_llm(llm, tp)
        on_gpu = torch.cuda.is_available()
        if on_gpu and torch.cuda.device_count() < tp:
            raise ProfileError(
                f"TP {tp} is larger than the number of available GPUs "
                f"({torch.cuda.device_count()})"
            )
        settings = self._settings(llm)
        port = _free_port() if tp > 1 else 0
        context = multiprocessing.get_context("spawn")
        for number in range(1, tp):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(theirs, llm, tp, number, port, settings),
                daemon=True,
            )
            process.start()
            self._workers.append((process, mine))
        self.rank = _Rank(llm, tp, 0, port, settings)
        self._everywhere("wait")
        return self._facts(llm, settings, time.perf_counter() - start)

    def run(self, scene: Scene) -> list[Sample]:
        """Run the points of a scene; times are the same on an empty cache."""
        if isinstance(scene, Prompts):
            counts = dict.fromkeys(scene.points(self._budget), scene.repeats)
        else:
            counts = Counter(scene.schedule().values())
        return [
            Sample(point, seconds)
            for point, count in counts.items()
            for seconds in self._everywhere("time", work_of(point), count)
        ]

    def all_reduce_s(self, tokens: int) -> float | None:
        """Return the time of one all-reduce of ``tokens`` hidden states. [s]"""
        if self.request.tp == 1:
            return None
        return self._everywhere("reduce", tokens)

    def close(self) -> None:
        """Stop the other ranks."""
        for process, connection in self._workers:
            connection.send(("stop",))
            process.join(10)
            if process.is_alive():
                process.kill()
        if self._workers and dist.is_initialized():
            dist.destroy_process_group()

    def _everywhere(self, name: str, *arguments: Any) -> Any:
        """Call a method on all ranks; return the result of the first."""
        for _, connection in self._workers:
            connection.send((name, *arguments))
        result = getattr(self.rank, name)(*arguments)
        for process, connection in self._workers:
            try:
                failure = connection.recv()
            except EOFError:
                process.join()
                failure = f"a rank ended with exit status {process.exitcode}"
            if failure:
                raise ProfileError(failure)
        return result

    def _settings(self, llm: Architecture) -> dict[str, Any]:
        options = self.request.options
        on_gpu = torch.cuda.is_available()
        memory = torch.cuda.get_device_properties(0).total_memory if on_gpu else 0
        # The defaults of `vllm serve`.
        large = memory >= 70 * 2**30 and "A100" not in self.device()
        tokens, requests = (8192, 1024) if large else (2048, 256 if on_gpu else 128)
        dtype = options.get("dtype", "auto")
        self._budget = int(options.get("max_num_batched_tokens", tokens))
        return {
            "dtype": "bfloat16" if dtype == "auto" else dtype,
            "max_model_len": int(options.get("max_model_len", llm.max_positions)),
            "max_num_batched_tokens": self._budget,
            "max_num_seqs": int(options.get("max_num_seqs", requests)),
            "kv_cache_memory_bytes": options.get("kv_cache_memory_bytes"),
            "memory_share": float(options.get("gpu_memory_utilization", _MEMORY_SHARE)),
        }

    def _facts(
        self, llm: Architecture, settings: dict[str, Any], load_s: float
    ) -> EngineFacts:
        return EngineFacts(
            device=self.device(),
            backend="torch",
            backend_version=torch.__version__,
            torch_version=torch.__version__,
            driver=driver(),
            dtype=settings["dtype"],
            quantization="none",
            kv_cache_dtype="auto",
            max_model_len=settings["max_model_len"],
            max_num_batched_tokens=settings["max_num_batched_tokens"],
            max_num_seqs=settings["max_num_seqs"],
            block_size=_BLOCK_TOKENS,
            kv_blocks=self.rank.kv_tokens // _BLOCK_TOKENS + 1,
            kv_bytes_per_token=float(self.rank.kv_bytes_per_token),
            async_scheduling=False,
            layers=llm.layers,
            load_s=load_s,
            flags={"options": {k: str(v) for k, v in self.request.options.items()}},
            note=NOTE,
        )


def work_of(point: Point) -> Work:
    """Return the work of an iteration of this point."""
    if point.phase == "prefill":
        tokens = point.new_tokens // point.batch
        return Work(0, 0, point.batch, tokens, point.context)
    chunk = point.new_tokens - point.batch
    return Work(point.batch, point.context, int(chunk > 0), chunk, 0)


class _Rank:
    """One rank: its share of the transformer, and its timer."""

    def __init__(
        self, llm: Architecture, tp: int, rank: int, port: int, settings: dict[str, Any]
    ) -> None:
        on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
        if on_gpu:
            torch.cuda.set_device(self.device)
        if tp > 1:
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            dist.init_process_group(
                "nccl" if on_gpu else "gloo", rank=rank, world_size=tp
            )
        self.dtype = getattr(torch, settings["dtype"])
        kv_width = llm.kv_heads_per_gpu(tp) * llm.head_dim
        self.kv_bytes_per_token = 2 * llm.layers * kv_width * self.dtype.itemsize
        budget = settings["max_num_batched_tokens"]
        kv_bytes = settings["kv_cache_memory_bytes"] or self._free_bytes(
            llm, tp, budget, settings["memory_share"]
        )
        self.kv_tokens = int(kv_bytes) // self.kv_bytes_per_token
        if self.kv_tokens < settings["max_model_len"]:
            raise ProfileError(
                f"the KV cache has room for {max(self.kv_tokens, 0)} tokens; to serve "
                f"at least one request of max_model_len {settings['max_model_len']} "
                "it needs more"
            )
        self.hidden = llm.hidden
        self.llm = TorchLlm(llm, tp, self.device, self.dtype, self.kv_tokens, budget)

    def time(self, work: Work, repeats: int) -> list[float]:
        """Return the times of an iteration, after two warm-up runs. [s]"""
        # As vLLM, decode iterations are replayed as a CUDA graph.
        captures = self.device.type == "cuda" and work.prompts == 0
        run = self._graph(work) if captures else lambda: self.llm.iterate(work).cpu()
        return self._times(run, 2, repeats)

    def reduce(self, tokens: int) -> float:
        """Return the median time of an all-reduce. [s]"""
        hidden = torch.ones(tokens, self.hidden, dtype=self.dtype, device=self.device)
        return median(self._times(lambda: dist.all_reduce(hidden), 5, 20))

    def _times(
        self, run: Callable[[], Any], warm_ups: int, repeats: int
    ) -> list[float]:
        times = []
        for _ in range(warm_ups + repeats):
            self.wait()
            start = time.perf_counter()
            run()
            self.wait()
            times.append(time.perf_counter() - start)
        return times[warm_ups:]

    def _graph(self, work: Work) -> Callable[[], Any]:
        """Return a replay of the iteration, captured after a warm-up run."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.llm.iterate(work)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tokens = self.llm.iterate(work)

        def replay() -> Any:
            graph.replay()
            return tokens.cpu()

        return replay

    def wait(self) -> None:
        """Return when the rank has done its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _free_bytes(
        self, llm: Architecture, tp: int, budget: int, share: float
    ) -> float:
        if self.device.type == "cpu":
            return _CPU_KV_BYTES
        free, total = torch.cuda.mem_get_info()
        # Activations of one iteration: a few copies of its widest rows.
        widest = max(llm.hidden, 2 * llm.dense_ffn // tp, llm.vocab // tp // 8)
        activations = 6 * budget * widest * self.dtype.itemsize
        weights = llm.weight_bytes_per_gpu(tp)
        return free - (1 - share) * total - weights - activations


def _work(connection: Connection, *rank_arguments: Any) -> None:
    """Run another rank; reply to each call with "", or with the reason of a failure."""
    rank = _Rank(*rank_arguments)
    while True:
        name, *arguments = connection.recv()
        if name == "stop":
            dist.destroy_process_group()
            return
        try:
            getattr(rank, name)(*arguments)
            connection.send("")
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
