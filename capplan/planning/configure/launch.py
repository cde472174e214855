"""The command that starts the engine of a configuration, as it was planned."""

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.engine_time import ENGINES
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import published
from capplan.llm.dtypes import UNQUANTIZED
from capplan.llm.memory import DEFAULT_UTILIZATION
from capplan.planning.configure.engine_commands import (
    COMMANDS,
    kv_dtype_told,
    unwritten,
)
from capplan.planning.configure.scheduling import VLLM, engine_of, is_vllm, scheduling
from capplan.planning.configure.speculation import parse_speculative_config
from capplan.planning.settings.groups import ConfigurationSettings
from capplan.planning.settings.layouts import DEFAULT_BACKEND, LayoutSettings

_KV_CACHE = {"fp8": "fp8", "bf16": "bfloat16", "fp16": "float16"}
"""Values of vLLM's ``--kv-cache-dtype``."""
_WHILE_LOADING: dict[str, dict[str, str]] = {
    "vllm": {"fp8": "fp8", "fp8_block": "fp8_per_block"},
    "sglang": {"fp8": "fp8"},
    "trtllm": {},
}
"""Values of ``--quantization`` with which an engine quantizes a 16-bit checkpoint."""
_NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
_DISAGGREGATED = (
    "a proxy in front sends each prompt to a prefill replica, then to a decode replica "
    "that pulls its KV, as llm-d's does; vLLM alone does not"
)
_ON_NODES = (
    "ranks on several nodes: give --data-parallel-size-local and "
    "--data-parallel-address on each, and --headless with --data-parallel-start-rank "
    "on all but the first"
)
_STAGES_ON_NODES = (
    "stages on several nodes: give --nnodes, --node-rank and --master-addr on each, "
    "and --headless on all but the first"
)
_NAMED_DRAFTS = ("eagle", "eagle3")
"""Methods whose draft is a checkpoint of its own."""
_DRAFT = 'the key "model" of --speculative-config'
YOURS = "YOUR_CHECKPOINT"
"""Stands for a checkpoint that nobody has published."""
STARTS = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path"),
    "trtllm": ("trtllm-serve",),
}
"""Words before the checkpoint, by engine."""
_FLAG = re.compile(r"--[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Launch:
    """How to start one replica."""

    words: tuple[str, ...]  # the command and its arguments; empty where there is none
    notes: tuple[str, ...] = ()  # what to know before, or why there is no command

    @property
    def line(self) -> str:
        """The command on one line, quoted for a shell."""
        return shlex.join(self.words)

    @property
    def engine(self) -> str:
        """The engine that it starts; empty where there is no command."""
        begins = (x for x, of in STARTS.items() if self.words[: len(of)] == of)
        return next(begins, "")

    @property
    def _flags_at(self) -> int:
        return len(STARTS.get(self.engine, ())) + 1

    @property
    def checkpoint(self) -> str:
        """The checkpoint that it serves; empty where there is no command."""
        return self.words[self._flags_at - 1] if self.words else ""

    @property
    def flags(self) -> dict[str, str | None]:
        """The flags with their values; None: a flag without one."""
        flags: dict[str, str | None] = {}
        name = ""
        for word in self.words[self._flags_at :]:
            if word.startswith("--"):
                name = word
                flags[name] = None
            else:
                flags[name] = word
        return flags

    @property
    def arguments(self) -> dict[str, Any]:
        """The flags as vLLM's engine arguments, with the types that JSON has.

        Examples
        --------
        >>> words = "vllm serve org/llm --max-num-seqs 8 --no-async-scheduling".split()
        >>> Launch(tuple(words)).arguments
        {'max_num_seqs': 8, 'async_scheduling': False}
        """
        found: dict[str, Any] = {}
        for flag, text in self.flags.items():
            name = flag.removeprefix("--").replace("-", "_")
            if text is None:
                found[name.removeprefix("no_")] = not name.startswith("no_")
                continue
            try:
                found[name] = json.loads(text)
            except ValueError:
                found[name] = text
        return found

    def across(self, node_count: str, rank: str, leader: str) -> "Launch":
        """Return the command of one node of a replica that spans several.

        The words may be variables. All but the first, of rank 0, answer no requests.
        """
        more = ("--nnodes", node_count, "--node-rank", rank, "--master-addr", leader)
        return Launch((*self.words, *more), self.notes)

    def serving(self, checkpoint: str) -> "Launch":
        """Return the command for another checkpoint of the same LLM."""
        words = list(self.words)
        words[self._flags_at - 1] = checkpoint
        return Launch(tuple(words), self.notes)

    def without(self, *flags: str) -> "Launch":
        """Return the command without some flags and their values."""
        words = list(self.words[: self._flags_at])
        for flag, value in self.flags.items():
            if flag not in flags:
                words += [flag] if value is None else [flag, value]
        return Launch(tuple(words), self.notes)


def read_launch(line: str, notes: tuple[str, ...] = ()) -> Launch:
    """Return the command that a launch line holds.

    Raises
    ------
    InputError
        When it is not the command of an engine, a checkpoint, then flags with at most
        one value.
    """
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise InputError(f"the launch line {line!r}: {error}") from None
    found = Launch(words, notes)
    at = len(STARTS.get(found.engine, ()))
    ended = not found.engine or len(words) <= at or words[at].startswith("-")
    is_flag = False
    for word in words[at + 1 :]:
        if word.startswith("--"):
            ended |= not _FLAG.fullmatch(word)
            is_flag = True
        else:
            ended |= not is_flag
            is_flag = False
    if ended or not all(word.isprintable() for word in words):
        raise InputError(
            f"the launch line {line!r} is not vllm serve CHECKPOINT and flags, nor "
            "that of another engine"
        )
    return found


def launch(
    configuration: Configuration, settings: ConfigurationSettings, hand_off: str = ""
) -> Launch | None:
    """Return how to start a replica; None where no LLM was named.

    Every setting that the plan rests on is given, also where it is vLLM's default,
    which differs by version and GPU. ``hand_off`` is that of
    disaggregated prefill and decode.
    """
    if settings.llm is None:
        return None
    engine = configuration.engine
    name = engine_of(settings)
    if name != "vllm" and (missing := unwritten(name, configuration, settings)):
        return Launch((), (missing,))
    if name != "vllm":
        checkpoint, flags, notes = _checkpoint(settings.llm, name)
        given, more = COMMANDS[name](configuration, settings, flags)
        return Launch((*STARTS[name], checkpoint, *given), (*notes, *more))
    if not is_vllm(engine):
        return Launch(
            (), (f"{scheduling(engine)}; no vllm serve command: vLLM does not",)
        )
    if hand_off and hand_off.partition(":")[0] != "nixl":
        return Launch((), (f"hand-off {hand_off}; no vllm serve command: vLLM's pull",))
    if engine.max_num_seqs > engine.max_num_batched_tokens:
        few = "vllm serve refuses fewer max_num_batched_tokens than max_num_seqs"
        return Launch((), (few,))
    checkpoint, flags, notes = _checkpoint(settings.llm)
    if engine.images is not None:
        flags = tuple(flag for flag in flags if flag != "--language-model-only")
    times_of = configuration.times_of.partition(" ")[0]
    if times_of in ENGINES and times_of != "vllm":
        other = (
            f"planned with the times of {ENGINES[times_of]}: vllm serve starts "
            f"another; --engine {times_of} plans that one"
        )
        if settings.engine is not None:
            return Launch((), (other,))
        notes = (*notes, other)
    words = [*STARTS["vllm"], checkpoint, *flags]
    words += ["--tensor-parallel-size", str(configuration.tp)]
    words += _layout(configuration, settings)
    if engine.pipeline_parallel_size > 1:
        words += ["--pipeline-parallel-size", str(engine.pipeline_parallel_size)]
    if engine.decode_context_parallel_size > 1:
        dcp = str(engine.decode_context_parallel_size)
        words += ["--decode-context-parallel-size", dcp]
    words += _memory(configuration, settings)
    words += ["--max-num-batched-tokens", str(engine.max_num_batched_tokens)]
    words += ["--max-num-seqs", str(engine.max_num_seqs)]
    # vLLM starts one for each rank by default.
    if engine.api_server_count > 1 or engine.data_parallel_size > 1:
        words += ["--api-server-count", str(engine.api_server_count)]
    words.append(_switch("async-scheduling", engine.async_scheduling))
    caching = engine.prefix_caching or configuration.caching_unused
    words.append(_switch("enable-prefix-caching", caching))
    if policy := VLLM[engine.scheduler.name]:
        words += ["--scheduling-policy", policy]
    words += [*_adapters(engine), *_images(engine)]
    if engine.speculation is not None:
        words += ["--speculative-config", (drafting := _drafting(settings, engine))]
        if engine.speculation.method in _NAMED_DRAFTS and '"model"' not in drafting:
            notes = (*notes, f"name the draft: {_DRAFT}")
    if configuration.nodes_per_replica > 1:
        notes = (*notes, _ON_NODES if engine.pipeline is None else _STAGES_ON_NODES)
    if hand_off:
        words += ["--kv-transfer-config", _NIXL]
        notes = (*notes, _DISAGGREGATED)
    if _is_filled(configuration):
        notes = (
            *notes,
            "--max-model-len fills the computed KV: where vLLM says that it holds "
            "less, give the length that it names",
        )
    return Launch(tuple(words), notes)


def _layout(configuration: Configuration, settings: ConfigurationSettings) -> list[str]:
    """Return the flags of ranks that step together and of experts spread over GPUs."""
    layout, engine = configuration.layout, configuration.engine
    words: list[str] = []
    if layout.dp > 1:
        words += ["--data-parallel-size", str(layout.dp)]
    if layout.ep > 1:
        words.append("--enable-expert-parallel")
    if layout.dp > 1 and layout.ep > 1:
        backend = configuration.all_to_all or DEFAULT_BACKEND
        words += ["--all2all-backend", backend]
    if layout.ep > 1 and isinstance(settings, LayoutSettings) and settings.enable_eplb:
        words.append("--enable-eplb")
        if settings.eplb_config is not None:
            words += ["--eplb-config", settings.eplb_config]
    if engine.prefill_schedule_interval > 1:
        words += ["--prefill-schedule-interval", str(engine.prefill_schedule_interval)]
    return words


def _drafting(settings: ConfigurationSettings, engine: EngineSettings) -> str:
    """Return the drafts as ``vllm serve`` takes them, with the number planned."""
    text = getattr(settings, "speculative_config", None)
    assert text is not None
    assert engine.speculation is not None
    config = parse_speculative_config(text)
    return config.launched(engine.speculation.drafts)


def _adapters(engine: EngineSettings) -> list[str]:
    """Return the flags of LoRA adapters."""
    if engine.adapters is None:
        return []
    words = ["--enable-lora"]
    for name in ("max_loras", "max_cpu_loras", "max_lora_rank"):
        value = str(getattr(engine.adapters, name))
        words += [f"--{name.replace('_', '-')}", value]
    return words


def _images(engine: EngineSettings) -> list[str]:
    """Return the flags of images; videos, whose encoder cache is larger, are off."""
    images = engine.images
    if images is None:
        return []
    limit = json.dumps({"image": images.limit_per_prompt, "video": 0})
    words = ["--limit-mm-per-prompt", limit]
    words += ["--mm-encoder-tp-mode", "data" if images.encoders > 1 else "weights"]
    if images.disable_chunked_mm_input:
        words.append("--disable-chunked-mm-input")
    return words


def _switch(flag: str, on: bool) -> str:
    return f"--{flag}" if on else f"--no-{flag}"


def _checkpoint(
    name: str, engine: str = "vllm"
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the checkpoint to serve, the flags that it needs, and notes."""
    entry, dtype = published(name), find_llm(name).weight_dtype
    if entry is None:  # a folder
        return name, (), ()
    if "/" in name:  # the repository that the user serves
        return name, entry.serve_flags, ()
    notes: tuple[str, ...] = ()
    if not entry.is_named:
        notes = (f"{name} is planned as {entry.llm}; serve your checkpoint of it",)
    if dtype in entry.checkpoints:
        return entry.checkpoints[dtype], entry.serve_flags, notes
    own = next(
        (entry.checkpoints[x] for x in UNQUANTIZED if x in entry.checkpoints), ""
    )
    if own and (kind := _WHILE_LOADING[engine].get(dtype)):
        flags = (*entry.serve_flags, "--quantization", kind)
        return own, flags, notes
    missing = f"no checkpoint of {entry.llm} in {dtype} is listed; name yours"
    return YOURS, entry.serve_flags, (missing,)


def _memory(configuration: Configuration, settings: ConfigurationSettings) -> list[str]:
    """Return the flags of the KV cache and of the longest request."""
    engine, replica = configuration.engine, configuration.replica
    share = settings.gpu_memory_utilization
    if replica is not None:
        share = replica.budget.utilization
    words = ["--gpu-memory-utilization", f"{share or DEFAULT_UTILIZATION:g}"]
    if engine.max_model_len < EngineSettings().max_model_len:
        words += ["--max-model-len", str(engine.max_model_len)]
    if settings.kv_blocks is not None:
        words += ["--num-gpu-blocks-override", str(settings.kv_blocks)]
    llm = find_llm(str(settings.llm))
    if settings.block_size is not None:
        words += ["--block-size", str(settings.block_size)]
    elif not _is_picked(llm, configuration.tp):
        words += ["--block-size", str(engine.gpu_block_size)]
    told = _KV_CACHE.get(kv_dtype_told(configuration, settings), "auto")
    return [*words, "--kv-cache-dtype", told]


def _is_picked(llm: Architecture, tp: int) -> bool:
    """Return whether vLLM picks the block size by itself.

    Of latent attention by GPU, where a given one may exclude the fastest kernels; of
    recurrent states and of windows with other heads so that all blocks have one size.
    """
    full, windowed = (
        llm.layer_kv_bytes_per_gpu(tp, windowed=windowed) for windowed in (False, True)
    )
    return llm.is_mla or llm.state_layers > 0 or full != windowed


def _is_filled(configuration: Configuration) -> bool:
    """Return whether the computed KV, not the LLM, limits the longest request."""
    engine, replica = configuration.engine, configuration.replica
    if replica is None or replica.kv_source != "estimated":
        return False
    return engine.max_model_len < replica.llm.max_positions
