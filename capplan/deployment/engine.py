"""Settings of an engine, with the policy by which it schedules."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from capplan.deployment.adapters import Adapters
from capplan.deployment.images import Images
from capplan.deployment.pipeline import Pipeline
from capplan.deployment.policy import VLLM_V1, Policy
from capplan.deployment.speculation import Speculation
from capplan.deployment.tier import Tier
from capplan.engines.catalog import VLLM
from capplan.errors import InputError, check_at_least
from capplan.fleet.gpu import Gpu
from capplan.latency.contract import LatencyTables

_GIB = 2**30
_OF_RANKS = ("data_parallel_size", "prefill_schedule_interval", "dp_balance")


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an engine, with vLLM's names."""

    max_num_batched_tokens: int = 8192  # token budget of an iteration [tokens]
    max_num_seqs: int = 1024  # most requests running at once
    block_size: int = 16  # tokens in a KV block, DCP included [tokens]
    kv_blocks: int = 27_000  # with the null block, as vLLM's ``num_gpu_blocks``
    async_scheduling: bool = True  # iteration k + 1 is scheduled while k runs
    prefix_caching: bool = False  # full blocks are kept and shared
    max_model_len: int = 2**31 - 1  # longest prompt plus output [tokens]
    bounded_groups: int = 0  # groups of layers whose KV a window or a state bounds
    bounded_blocks: int = 0  # most KV blocks that a request holds in each of them
    state_groups: int = 0  # of those groups, the ones that hold recurrent states
    kv_block_bytes: int = 0  # of a KV block on each GPU; 0 where unknown [bytes]
    link_gb_per_s: float = 24.0  # GPU to host, each way, as PCIe 4.0 x16 carries [GB/s]
    host_kv_gib: float = 4.0  # host memory for KV, for each GPU (swap_space) [GiB]
    api_server_count: int = 1  # processes in front of each replica
    scheduler: Policy = VLLM_V1  # with its settings
    speculation: Speculation | None = None  # drafts that each iteration verifies
    adapters: Adapters | None = None  # LoRA adapters that requests may ask for
    images: Images | None = None  # how images are encoded; None: there are none
    data_parallel_size: int = 1  # ranks that step together; the limits are of each
    prefill_schedule_interval: int = 1  # steps of ranks of which one may have prompts
    dp_balance: str = "vllm"  # how a rank is chosen for a request
    decode_context_parallel_size: int = 1  # GPUs of which each has a part of a block
    pipeline: Pipeline | None = None  # stages, where it has more than one
    tier: Tier | None = None  # host memory that keeps KV of prompts

    def __post_init__(self) -> None:
        check_at_least(
            1,
            self,
            "max_num_batched_tokens",
            "max_num_seqs",
            "block_size",
            "api_server_count",
            "data_parallel_size",
            "prefill_schedule_interval",
            "decode_context_parallel_size",
        )
        if self.kv_blocks < 2:
            raise InputError(
                f"kv_blocks is {self.kv_blocks}; expected >= 2 (one is the null block)"
            )
        if self.block_size % self.decode_context_parallel_size:
            raise InputError(
                f"block_size is {self.block_size}; expected a multiple of "
                f"decode_context_parallel_size ({self.decode_context_parallel_size})"
            )
        sizes = "bounded_groups", "bounded_blocks", "state_groups", "kv_block_bytes"
        check_at_least(0, self, *sizes, "host_kv_gib")
        if self.state_groups not in (0, self.bounded_groups):
            raise InputError(
                f"state_groups is {self.state_groups}; expected bounded_groups "
                f"({self.bounded_groups}) or 0: windows beside states are not modelled"
            )
        if not self.link_gb_per_s > 0:
            raise InputError(f"link_gb_per_s is {self.link_gb_per_s}; expected > 0")

    @property
    def is_plain_v1(self) -> bool:
        """Whether it schedules as vLLM V1 does by default, without adapters."""
        return (
            self.scheduler.name == VLLM_V1.name
            and self.adapters is None
            and self.pipeline is None
            and self.images is None
            and self.prefill_schedule_interval == 1
            and self.decode_context_parallel_size == 1
        )

    @property
    def has_tier(self) -> bool:
        """Whether host memory keeps KV of prompts: one of no chunks is none."""
        return self.tier is not None and self.tier.chunks > 0

    @property
    def tier_gib(self) -> float:
        """Host memory that keeps KV of a replica; 0 without a tier. [GiB]"""
        return 0.0 if self.tier is None else self.tier.held_gib(self.kv_block_bytes)

    def with_sized_tier(self, copies: int) -> "EngineSettings":
        """Return it with the chunks of its tier; so many GPUs hold different KV."""
        if self.tier is None:
            return self
        return replace(self, tier=self.tier.sized(self.kv_block_bytes, copies))

    @property
    def keeps_states(self) -> bool:
        """Whether prefix caching keeps recurrent states."""
        return self.prefix_caching and self.state_groups > 0

    @property
    def drafted_states(self) -> int:
        """States of drafts that each request holds of a group, however short. [blocks]

        Where prefix caching keeps states.
        """
        if self.speculation is None or not self.keeps_states:
            return 0
        return self.speculation.drafts

    @property
    def gpu_block_size(self) -> int:
        """Tokens of a KV block on one GPU, vLLM's ``--block-size``. [tokens]"""
        return self.block_size // self.decode_context_parallel_size

    @property
    def pipeline_parallel_size(self) -> int:
        """Stages that hold the layers of the replica one after the other."""
        return 1 if self.pipeline is None else self.pipeline.stages

    @property
    def verified_tokens(self) -> int:
        """Tokens that a decode takes of an iteration's budget. [tokens]"""
        return 1 if self.speculation is None else self.speculation.verified_tokens

    def tables(self, plain: LatencyTables) -> LatencyTables:
        """Return the times of iterations with its drafts, of a pipeline on a stage."""
        drafts, pipeline = self.speculation, self.pipeline
        if pipeline is None:
            return plain if drafts is None else drafts.tables(plain)
        if drafts is None:
            return pipeline.stage_tables(plain)
        return drafts.stage_tables(plain, pipeline)

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens whose KV fits on a rank, bounded groups left out. [tokens]"""
        return (self.kv_blocks - 1) * self.block_size

    @property
    def kv_tokens(self) -> int:
        """KV tokens of a replica, of all its ranks, as vLLM logs them. [tokens]"""
        return self.kv_blocks * self.block_size * self.data_parallel_size

    def requests_at(self, context_tokens: float) -> float:
        """Return how many requests of a context fit a replica's KV, as vLLM logs."""
        blocks = self.request_blocks(np.array([max(1, math.ceil(context_tokens))]))
        return self.data_parallel_size * self.kv_blocks / float(blocks[0])

    @property
    def longest_tokens(self) -> int:
        """Tokens of the longest context that the engine starts with. [tokens]"""
        return min(self.max_model_len, self.kv_blocks * self.block_size)

    @property
    def requests_at_max_model_len(self) -> float:
        """Requests of the longest context that fit a replica's KV."""
        return self.requests_at(self.longest_tokens)

    def capacity_at(self, context_tokens: float) -> int:
        """Return the tokens that fit in requests of this context. [tokens]"""
        bounded = min(context_tokens, self.bounded_blocks * self.block_size)
        share = context_tokens / (context_tokens + self.bounded_groups * bounded)
        return int(self.kv_capacity_tokens * share)

    @property
    def slack_tokens(self) -> int:
        """Tokens beyond its own for which a request alone has slots. [tokens]

        Those of drafts that are verified with its last token, of another iteration in
        flight and of the draft's lookahead.
        """
        if self.speculation is None:
            return 0
        in_flight = 2 if self.async_scheduling else 1
        drafts, lookahead = self.speculation.drafts, self.speculation.lookahead_tokens
        return in_flight * drafts + lookahead

    @property
    def longest_request_tokens(self) -> int:
        """Tokens of the longest request that fits on the replica alone. [tokens]"""
        all_blocks, drafted = self.kv_blocks - 1, self.drafted_states
        within = (all_blocks - self.bounded_groups * drafted) // (
            1 + self.bounded_groups
        )
        within = min(within, self.bounded_blocks - drafted)
        beyond = all_blocks - self.bounded_groups * self.bounded_blocks
        return max(within, beyond) * self.block_size - self.slack_tokens

    def request_blocks(self, tokens: np.ndarray) -> np.ndarray:
        """Return the KV blocks of requests with so many tokens, shape (n,). [blocks]"""
        blocks = -(-tokens // self.block_size)
        drafted = self.drafted_states
        bounded = np.minimum(blocks, self.bounded_blocks - drafted) + drafted
        return blocks + self.bounded_groups * bounded

    @property
    def block_link_s(self) -> float:
        """Time to move a KV block between GPUs and host, each GPU its part. [s]"""
        return self._known_block_bytes() / (self.link_gb_per_s * 1e9)

    @property
    def host_kv_blocks(self) -> int:
        """KV blocks of the replica that fit in its host memory. [blocks]"""
        return int(self.host_kv_gib * _GIB) // self._known_block_bytes()

    def document(self) -> dict[str, Any]:
        """Return the settings as they are written, the scheduler by its text."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        named |= {"scheduler": str(self.scheduler)}
        if self.decode_context_parallel_size == 1:
            del named["decode_context_parallel_size"]
        if not self.state_groups:
            del named["state_groups"]
        for name in ("adapters", "images", "pipeline", "speculation", "tier"):
            if named[name] is None:
                del named[name]
            else:
                named[name] = json.dumps(asdict(named[name]))
        for name in _OF_RANKS:  # one engine by itself has none
            if named[name] == getattr(EngineSettings, name):
                del named[name]
        return named

    def _known_block_bytes(self) -> int:
        if not self.kv_block_bytes:
            raise InputError(
                "the bytes of a KV block are not known, which swapping needs; "
                "name the LLM and the GPU"
            )
        return self.kv_block_bytes


def with_defaults(
    defaults: Mapping[str, Any], given: Mapping[str, Any]
) -> EngineSettings:
    """Return an engine's settings: those given that are not None, else its defaults.

    No more requests run by default than the budget has tokens: each decodes one.
    Prefix caching is on; :func:`.replica` sets ``kv_blocks``.
    """
    given = {name: value for name, value in given.items() if value is not None}
    settings = {"prefix_caching": True, **defaults, **given}
    if "max_num_seqs" not in given:
        few = settings["max_num_seqs"], settings["max_num_batched_tokens"]
        settings["max_num_seqs"] = min(few)
    return EngineSettings(**settings)


def default_engine_settings(gpu: Gpu, **settings: Any) -> EngineSettings:
    """Return the default settings of ``vllm serve`` on a GPU, or those given.

    Examples
    --------
    >>> from capplan.fleet.catalog import gpu
    >>> default_engine_settings(gpu("A100"), block_size=32).max_num_batched_tokens
    2048
    """
    return with_defaults(VLLM.defaults(gpu, None, 1, None).settings, settings)
