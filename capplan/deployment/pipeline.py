"""Pipeline parallelism (PP): stages that hold the layers one after the other."""

from dataclasses import dataclass

import numpy as np

from capplan.errors import InputError, check_at_least
from capplan.latency.contract import LatencyTables

MOST_STAGES = 64
"""Stages that an engine may have: the simulator looks at each."""


@dataclass(frozen=True)
class Pipeline:
    """Stages of a replica, what each computes, and the time from one to the next."""

    stages: int = 2
    layer_share: float | None = None  # of the largest stage; None: 1 / stages
    hop_s: float = 0.0  # from a stage to the next, of each step [s]
    hop_token_s: float = 0.0  # and of each of its tokens [s/token]
    # Of an iteration's time the engine's own, which every stage takes whole:
    own_s: float = 0.0  # [s]
    own_request_s: float = 0.0  # of each decoding request [s]

    def __post_init__(self) -> None:
        if not 1 <= self.stages <= MOST_STAGES:
            raise InputError(
                f"pipeline_parallel_size is {self.stages}; expected 1 to {MOST_STAGES}"
            )
        if not 1 / self.stages <= self.share <= 1:
            raise InputError(
                f"layer_share is {self.layer_share}; expected 1/{self.stages} to 1"
            )
        check_at_least(0, self, "hop_s", "hop_token_s", "own_s", "own_request_s")

    @property
    def share(self) -> float:
        """Share of an iteration that the largest stage computes."""
        return 1 / self.stages if self.layer_share is None else self.layer_share

    def stage_tables(
        self, tables: LatencyTables, verified_tokens: int = 1
    ) -> LatencyTables:
        """Return the time that a step takes on each stage, the hop behind it included.

        ``tables`` are those of all layers, whose decodes have ``verified_tokens`` each.
        A step takes as long on every stage as on the largest.
        """
        share, per_token_s = self.share, self.hop_token_s
        fixed_s = self.hop_s + (1 - share) * self.own_s
        request_s = (1 - share) * self.own_request_s
        batch, tokens = np.arange(len(tables.decode_s)), np.arange(len(tables.fused_s))
        return tables._replace(
            decode_s=share * tables.decode_s
            + fixed_s
            + (request_s + verified_tokens * per_token_s) * batch,
            decode_context_s=share * tables.decode_context_s,
            fused_s=share * tables.fused_s + fixed_s + per_token_s * tokens,
            fused_decode_s=share * tables.fused_decode_s + request_s * batch,
            fused_context_s=share * tables.fused_context_s,
            attention_s=share * tables.attention_s,
        )
