"""Record what an installed vLLM's scheduler does with a list of requests.

Run it with a Python that has vLLM (CPU is enough; no model is loaded)::

    python record.py OUT CASE.json [CASE.json ...]

Only the scheduler runs, so that it may be that of a CUDA wheel, unpacked into a folder
that ``PYTHONPATH`` names, on a machine without a GPU.

A case holds the engine's limits and the coefficients of the iteration time under
the names of ``meta_TAG.json``, and ``requests``: rows of arrival [s], prompt,
output, prefix group, prefix tokens and the row of the turn before (-1: none), then a
priority where ``policy`` is "priority". With ``max_loras`` so many adapters fit an
iteration, and ``adapters`` has that of each request (-1: none). The
prompt of a later turn begins with that turn's prompt and answer, and arrives
``arrival`` after its last token. With ``drafts`` so many tokens of each request are
drafted by ``method`` (eagle, mtp or ngram) in each iteration, with vLLM's synthetic
acceptance of ``synthetic_length``: a whole number, so that nothing is drawn. With
``state_groups`` so many groups of layers hold recurrent states, as a gated delta net's
do, beside the group with full attention. With
``images``, rows of image tokens, images and tokens of text before them for each
request, ``encoder_cache_size`` is the size of the encoder cache and the encoder's
budget, which are set on the scheduler: the model has no encoder. Three
files per case are written to OUT, named by the case's ``tag``; ``recorded.py`` says
what they hold. All other tokens are drawn anew from ``seed``, except that those of one
prefix group begin alike.

The clock is virtual. An iteration with prefill chunks of n tokens behind p others
and decoding contexts l takes
``c0 + ca*sum(n) + cq*sum(n*(p + (n+1)/2)) + cd*len(l) + ce*sum(l)`` milliseconds, and
``ca + cq/2`` for each drafted token that is verified; ``encode`` has the milliseconds
of each image that is encoded, and of each of its tokens.

With ``pipeline_parallel_size`` above 1 vLLM's model runner V2 is asked for, and so many
stages are played, of each of which an iteration takes an equal part and
``hop`` ("fixed,per token") milliseconds more. The first waits for the tokens that were
sampled as many iterations before, which its workers do (v1/worker/gpu/pp_utils.py).
"""

import csv
import gzip
import heapq
import json
import os
import sys
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

# A CUDA build finds no platform without a GPU, and vLLM's modules ask for it on import.
vllm.platforms._current_platform = CpuPlatform()

# ruff: noqa: E402
from vllm.config import (
    CacheConfig,
    LoRAConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

Case = dict[str, Any]

SMALL_LLM = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}
LISTS = ("requests", "images", "adapters")
"""Parts of a case with a row for each request."""
IN_VAIN = 100
"""Iterations without requests after which there will be none with one."""
LOWEST_TOKEN, HIGHEST_TOKEN = 10, 128_000


def scheduler(case: Case, folder: str, transfer: Any = None) -> Scheduler:
    """Return vLLM's own scheduler with the limits of the case.

    ``transfer`` is vLLM's ``KVTransferConfig`` where KV comes from or goes to others.
    """
    (Path(folder) / "config.json").write_text(json.dumps(SMALL_LLM))
    stages = case.get("pipeline_parallel_size", 1)
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    config = VllmConfig(
        model_config=ModelConfig(
            model=folder,
            dtype="bfloat16",
            skip_tokenizer_init=True,
            max_model_len=case["max_model_len"],
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=case["max_num_seqs"],
            max_num_batched_tokens=case["max_num_batched_tokens"],
            max_model_len=case["max_model_len"],
            enable_chunked_prefill=True,
            policy=case.get("policy", "fcfs"),
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(
            block_size=case["block_size"],
            enable_prefix_caching=bool(case["prefix_caching"]),
        ),
        kv_transfer_config=transfer,
        lora_config=loras(case),
    )
    if case.get("drafts"):
        # No draft is loaded: the scheduler asks for the method and its numbers only.
        config.speculative_config = SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=case["drafts"],
            prompt_lookup_max=4,
            rejection_sample_method="synthetic",
            synthetic_acceptance_length=case["synthetic_length"],
            target_model_config=config.model_config,
            target_parallel_config=config.parallel_config,
        )
        config.speculative_config.method = case["method"]
    config.parallel_config.pipeline_parallel_size = stages
    # Only from here on: the check of a configuration wants a GPU's Triton for it.
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(stages > 1))
    config.cache_config.block_size = case["block_size"]
    config.cache_config.num_gpu_blocks = case["blocks"]
    config.scheduler_config.async_scheduling = bool(case["async_sched"])
    layer = FullAttentionSpec(
        block_size=case["block_size"],
        num_kv_heads=1,
        head_size=32,
        dtype=torch.bfloat16,
    )
    groups = [KVCacheGroupSpec(["layer"], layer)]
    if case.get("state_groups"):
        config.cache_config.mamba_cache_mode = "align"
        state = MambaSpec(
            block_size=case["block_size"],
            shapes=((layer.page_size_bytes // 4,),),
            dtypes=(torch.float32,),
            mamba_cache_mode="align",
            num_speculative_blocks=case.get("drafts", 0),
        )
        # In the order of the layers: an LLM's first ones hold a state, and that of an
        # MTP draft, the last one, is in the group with full attention.
        states = [f"state{k}" for k in range(case["state_groups"])]
        groups[0].is_eagle_group = case.get("method") == "mtp"
        groups = [*(KVCacheGroupSpec([name], state) for name in states), *groups]
    kind = AsyncScheduler if case["async_sched"] else Scheduler
    made: Scheduler = kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=case["blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=groups,
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=case["block_size"],
        log_stats=False,
    )
    if case.get("images"):
        size = case["encoder_cache_size"]
        made.max_num_encoder_input_tokens = size
        made.encoder_cache_manager = EncoderCacheManager(size)
        made.scheduler_config.disable_chunked_mm_input = case["whole_images"]
    return made


def loras(case: Case) -> LoRAConfig | None:
    """Return how many adapters fit an iteration, and host memory."""
    if not case.get("max_loras"):
        return None
    return LoRAConfig(max_loras=case["max_loras"], max_cpu_loras=case["max_cpu_loras"])


@dataclass
class Batch:
    """One scheduled iteration on its way through the engine."""

    output: Any
    ends_prompt: dict[str, bool]
    sched_s: float
    end_s: float
    rejected: dict[str, int] = field(default_factory=dict)  # drafts of it


@dataclass
class Recorder:
    """An engine loop around vLLM's scheduler, with a virtual clock."""

    case: Case
    scheduler: Scheduler
    hasher: Any
    rng: np.random.Generator = field(init=False)
    now_s: float = 0.0
    gpu_s: float = 0.0
    due: list[tuple[float, int]] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, list[int]] = field(default_factory=dict)
    iterations: list[dict[str, Any]] = field(default_factory=list)
    prefixes: dict[int, list[int]] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)  # drafts in flight
    admitted: dict[str, int] = field(default_factory=dict)  # tokens known then
    stage_s: list[float] = field(init=False)  # end of the newest iteration on each
    sampled_s: dict[int, float] = field(default_factory=dict)  # tokens of iterations

    def __post_init__(self) -> None:
        self.stage_s = [0.0] * self.case.get("pipeline_parallel_size", 1)
        self.rng = np.random.default_rng(self.case["seed"])
        self.due = [
            (request[0], index)
            for index, request in enumerate(self.case["requests"])
            if request[5] < 0
        ]
        heapq.heapify(self.due)

    def tokens(self, count: int) -> list[int]:
        return self.rng.integers(LOWEST_TOKEN, HIGHEST_TOKEN, count).tolist()

    def prompt(self, index: int) -> list[int]:
        """Return the tokens of a request's prompt."""
        _, prompt, _, group, shared, before, *_ = self.case["requests"][index]
        head: list[int] = []
        if group >= 0:
            prefix = self.prefixes.setdefault(group, [])
            prefix += self.tokens(max(0, shared - len(prefix)))
            head = prefix[:shared]
        elif before >= 0:
            head = self.texts[f"r{before}"]
        return (head + self.tokens(prompt))[:prompt]

    def images(self, index: int) -> list[Any]:
        """Return a request's images; those that begin in its prefix are the group's."""
        if not self.case.get("images"):
            return []
        _, _, _, group, shared, *_ = self.case["requests"][index]
        total, count, offset = self.case["images"][index]
        each = total // max(count, 1)
        found = []
        for k in range(count):
            begin = offset + k * each
            whose = f"g{group}" if group >= 0 and begin < shared else f"r{index}"
            name = f"{whose}-{k}-{each}"
            place = PlaceholderRange(begin, each)
            found.append(MultiModalFeatureSpec(None, "image", name, place))
        return found

    def add(
        self,
        name: str,
        prompt: list[int],
        output: int,
        arrival_s: float,
        priority: int = 0,
        transfer: dict[str, Any] | None = None,
        images: list[Any] | None = None,
        adapter: int = -1,
    ) -> None:
        """Hand the scheduler a request, with what its KV connector is to know."""
        self.texts[name] = list(prompt)
        lora = LoRARequest(f"a{adapter}", adapter + 1, "-") if adapter >= 0 else None
        self.scheduler.add_request(
            Request(
                name,
                prompt,
                SamplingParams(
                    max_tokens=output,
                    min_tokens=output,
                    ignore_eos=True,
                    temperature=0.0,
                    extra_args=transfer and {"kv_transfer_params": transfer},
                ),
                None,
                mm_features=images,
                arrival_time=arrival_s,
                priority=priority,
                lora_request=lora,
                block_hasher=self.hasher,
            )
        )

    def arrive(self) -> None:
        """Hand the scheduler what has arrived by now."""
        while self.due and self.due[0][0] <= self.now_s:
            arrival_s, index = heapq.heappop(self.due)
            request = self.case["requests"][index]
            given_s, prompt, output, group, shared, before, *priority = request
            name = f"r{index}"
            adapters = self.case.get("adapters")
            adapter = adapters[index] if adapters else -1
            self.add(
                name,
                self.prompt(index),
                output,
                arrival_s,
                priority=priority[0] if priority else 0,
                images=self.images(index),
                adapter=adapter,
            )
            given = self.case.get("images")
            columns = "image_tokens", "images", "image_offset"
            shown = dict(zip(columns, given[index], strict=True)) if given else {}
            shown |= {"adapter": adapter} if adapters else {}
            self.rows[name] = {
                "id": name,
                "arrival_s": arrival_s,
                "prompt_len": prompt,
                "output_len": output,
                "prefix_group": group,
                "prefix_tokens": shared,
                "turn_before": before,
                "think_s": given_s if before >= 0 else 0.0,
                "priority": priority[0] if priority else 0,
                "first_sched_s": None,
                "first_token_s": None,
                "finish_s": None,
                "preemptions": 0,
                "cached_tokens": 0,
                **shown,
            }

    def schedule(self) -> Batch:
        """Let the scheduler choose an iteration, and note it."""
        live = self.scheduler.requests
        earlier = {name: one.num_preemptions for name, one in live.items()}
        output = self.scheduler.schedule()
        preempted = 0
        for name, one in live.items():
            times = one.num_preemptions - earlier[name]
            self.rows[name]["preemptions"] += times
            preempted += times
        admitted = [new.req_id for new in output.scheduled_new_reqs]
        for name in (*admitted, *output.scheduled_cached_reqs.resumed_req_ids):
            self.admitted[name] = live[name].num_tokens
        parts = []
        for name, new in output.num_scheduled_tokens.items():
            before = live[name].num_computed_tokens - new
            before -= self.rejected.get(name, 0)  # in flight: the scheduler hopes
            decodes = self.decodes(live[name], before, new)
            drafts = output.scheduled_spec_decode_tokens.get(name, ())
            decodes |= len(drafts) > 0
            parts.append((name, before, new, decodes))
        batch = Batch(
            output,
            {part[0]: not live[part[0]].is_prefill_chunk for part in parts},
            self.now_s,
            self.now_s,
        )
        for name, drafts in output.scheduled_spec_decode_tokens.items():
            batch.rejected[name] = len(drafts) - self.accepted(batch, name)
            self.rejected[name] = self.rejected.get(name, 0) + batch.rejected[name]
        if parts:
            batch.end_s = self.note(parts, preempted, self.encode_s(output))
        if any(self.sends(live[name], before) for name, before, *_ in parts):
            self.sampled_s[self.scheduler.current_step] = batch.end_s
        return batch

    def sends(self, one: Request, before: int) -> bool:
        """Return whether the last stage sends the first one a token of a request.

        It does not where a prompt ends with the last one (v1/worker/gpu/pp_utils.py,
        ``compute_need_sampled_mask``).
        """
        known = self.admitted[one.request_id]
        is_last = known + 1 >= one.num_prompt_tokens + one.max_tokens
        return not one.is_prefill_chunk and not (before < known and is_last)

    def encode_s(self, output: Any) -> float:
        """Return how long the images of an iteration take to encode. [s]"""
        image_ms, token_ms = map(float, self.case.get("encode", "0,0").split(","))
        counts = [
            self.scheduler.requests[name].get_num_encoder_embeds(place)
            for name, places in output.scheduled_encoder_inputs.items()
            for place in places
        ]
        return sum(image_ms + token_ms * count for count in counts) / 1e3

    def decodes(self, one: Request, before: int, new: int) -> bool:
        """Return whether a part of an iteration is a decode, not of a prompt."""
        return new == 1 and before >= one.num_prompt_tokens

    def note(
        self,
        parts: list[tuple[str, int, int, bool]],
        preempted: int,
        encode_s: float = 0.0,
    ) -> float:
        """Write the iteration down, run it on the virtual GPU, return its end."""
        chunks = [(before, new) for _, before, new, decodes in parts if not decodes]
        contexts = [before + 1 for _, before, _, decodes in parts if decodes]
        c0, ca, cq, cd, ce = (float(ms) / 1e3 for ms in self.case["coef"].split(","))
        attention = sum(new * (before + (new + 1) / 2) for before, new in chunks)
        new_tokens = sum(new for _, new in chunks)
        drafted = sum(new - 1 for _, _, new, decodes in parts if decodes)
        took_s = (
            c0
            + (ca + cq / 2) * drafted
            + ca * new_tokens
            + cq * attention
            + cd * len(contexts)
            + ce * sum(contexts)
        )
        start_s = self.play(took_s, encode_s, sum(new for _, _, new, _ in parts))
        for name, before, _, _ in parts:
            row = self.rows[name]
            if row["first_sched_s"] is None:
                row["first_sched_s"] = self.now_s
                row["cached_tokens"] = before
        pool = self.scheduler.kv_cache_manager.block_pool
        self.iterations.append(
            {
                "sched_s": self.now_s,
                "start_s": start_s,
                "end_s": self.gpu_s,
                "ctx_reqs": len(chunks),
                "ctx_tokens": new_tokens,
                "gen_reqs": len(contexts),
                "gen_ctx": sum(contexts),
                "running": len(self.scheduler.running),
                "waiting": len(self.scheduler.waiting),
                "free_blocks": pool.get_num_free_blocks(),
                "preempted": preempted,
                "sched": ";".join(f"{name}:{p}+{n}" for name, p, n, _ in parts),
            }
        )
        return self.gpu_s

    def play(self, took_s: float, encode_s: float, tokens: int) -> float:
        """Run an iteration on the virtual GPUs, stage by stage; return its start.

        The first encodes the images (v1/worker/gpu/model_runner.py).
        """
        stages = len(self.stage_s)
        fixed_s, token_s = (
            float(ms) / 1e3 for ms in self.case.get("hop", "0,0").split(",")
        )
        each_s = took_s / stages + fixed_s + token_s * tokens
        start_s = max(self.now_s, self.stage_s[0])
        if stages > 1:
            sampled = self.scheduler.current_step - stages
            start_s = max(start_s, self.sampled_s.get(sampled, 0.0))
        self.gpu_s = start_s + encode_s
        for stage in range(stages):
            self.gpu_s = max(self.gpu_s, self.stage_s[stage]) + each_s
            self.stage_s[stage] = self.gpu_s
        return start_s

    def collect(self, batch: Batch) -> None:
        """Wait for an iteration; give each finished prompt or decode a token."""
        self.now_s = max(self.now_s, batch.end_s)
        names = list(batch.output.num_scheduled_tokens)
        for name, count in batch.rejected.items():
            self.rejected[name] -= count
        given = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[
                self.tokens(1 + self.accepted(batch, name))
                if batch.ends_prompt[name]
                else []
                for name in names
            ],
            kv_connector_output=self.copied(batch),
        )
        for client in self.scheduler.update_from_output(batch.output, given).values():
            for one in client.outputs:
                row = self.rows[one.request_id]
                self.texts[one.request_id] += one.new_token_ids
                if one.new_token_ids and row["first_token_s"] is None:
                    row["first_token_s"] = self.now_s
                if one.finish_reason is not None:
                    row["finish_s"] = self.now_s
                    self.finished(one)
        if self.case.get("drafts") and not self.case["async_sched"]:
            drafted = [name for name in names if batch.ends_prompt[name]]
            count = self.case["drafts"]
            self.scheduler.update_draft_token_ids(
                DraftTokenIds(drafted, [self.tokens(count) for _ in drafted])
            )

    def accepted(self, batch: Batch, name: str) -> int:
        """Return how many drafts of a request are accepted in an iteration.

        None where it was padded with placeholders when it was admitted.
        """
        drafts = batch.output.scheduled_spec_decode_tokens.get(name, ())
        new = {one.req_id for one in batch.output.scheduled_new_reqs}
        if name in new | set(batch.output.scheduled_cached_reqs.resumed_req_ids):
            return 0
        rates = self.scheduler.vllm_config.speculative_config
        sure = 0 if rates is None else sum(rates.synthetic_acceptance_rates)
        return min(int(sure), len(drafts))

    def copied(self, batch: Batch) -> Any:
        """Return what a worker tells with an iteration of KV that was copied."""
        return None

    def finished(self, one: Any) -> None:
        """Do what follows on a request's last token."""
        self.follow(int(one.request_id[1:]))

    def follow(self, finished: int) -> None:
        """Let the next turns of a finished request arrive after their think time."""
        for index, request in enumerate(self.case["requests"]):
            if request[5] == finished:
                heapq.heappush(self.due, (self.now_s + request[0], index))

    def run(self) -> None:
        """Serve all requests.

        With async scheduling two iterations are in flight, or one more than stages:
        the next is scheduled as soon as there is room, and a result is waited for only
        when there is none or nothing could be scheduled.
        """
        depth = self.scheduler.vllm_config.max_concurrent_batches
        in_flight: deque[Batch] = deque()
        in_vain = 0  # iterations without requests, one after the other
        while True:
            busy = self.scheduler.has_requests()
            if not busy and not in_flight:
                if not self.due:
                    return
                self.now_s = max(self.now_s, self.due[0][0])
            self.arrive()
            if self.scheduler.has_requests():
                batch = self.schedule()
                in_vain = 0 if batch.ends_prompt else in_vain + 1
                if in_vain == IN_VAIN and self.scheduler.has_unfinished_requests():
                    raise ValueError(f"{self.case['tag']}: a request never fits")
                in_flight.append(batch)
                ran = bool(batch.ends_prompt) or self.scheduler.has_requests()
                if len(in_flight) < depth and ran:
                    continue
            if in_flight:
                self.collect(in_flight.popleft())


def write(
    case: Case,
    rows: list[dict[str, Any]],
    iterations: list[dict[str, Any]],
    out: Path,
) -> None:
    """Write the three files of a recording."""
    with (out / f"req_{case['tag']}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    path = out / f"iter_{case['tag']}.csv.gz"
    with gzip.open(path, "wt", newline="") as text:
        writer = csv.DictWriter(text, list(iterations[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(iterations)
    meta = {name: value for name, value in case.items() if name not in LISTS}
    (out / f"meta_{case['tag']}.json").write_text(
        json.dumps({"vllm": vllm.__version__, "args": meta}, indent=1)
    )


def main() -> None:
    """Record every case named on the command line."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as folder:
        for path in sys.argv[2:]:
            case = json.loads(Path(path).read_text())
            hasher = None
            if case["prefix_caching"]:
                hasher = get_request_block_hasher(case["block_size"], sha256)
            recorder = Recorder(case, scheduler(case, folder), hasher)
            recorder.run()
            write(case, list(recorder.rows.values()), recorder.iterations, out)


if __name__ == "__main__":
    main()
