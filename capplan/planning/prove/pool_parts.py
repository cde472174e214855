"""What a pool of disaggregated prefill and decode does of requests, for its bound."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from capplan.bounds.bound_check import HANDED
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import DECODE, PREFILL
from capplan.simulator.hand_offs import MIXING, parse_hand_off

Columns = Mapping[str, np.ndarray]
"""Those of ``bound_check.COLUMNS``, one row per request."""


@dataclass(frozen=True)
class Part:
    """What the replicas of a pool do of each request; by default all of it."""

    role: str = ""
    hand_off: str = ""  # from the first pool to the second, with its settings

    @property
    def mixes(self) -> bool:
        """Whether a replica of either pool may serve a whole request."""
        return self.hand_off.partition(":")[0] in MIXING

    def of(self, columns: Columns) -> Columns:
        """Return the requests as the pool sees them.

        Prompts are requests of one output token. What is decoded has its prompt from
        others. A prompt that the decode replica may compute itself, since few of its
        tokens are not cached there, asks nothing of either.
        """
        if not self.role:
            return columns
        handed = np.ones(len(columns["prompt_tokens"]), np.int64)
        if self.role == DECODE:
            return {**columns, HANDED: handed}
        threshold = parse_hand_off(self.hand_off).settings.get("threshold", 0.0)
        own = columns["prompt_tokens"] - columns["cached_tokens"] >= threshold
        first = {**columns, "output_tokens": np.ones(len(handed), np.int64)}
        return first if own.all() else {**first, HANDED: handed - own}

    def widest(self, engine: EngineSettings) -> EngineSettings:
        """Return engine settings that bound the pool's iterations.

        A replica for prompts decodes nothing; at least one request is to be allowed.
        """
        return replace(engine, max_num_seqs=1) if self.role == PREFILL else engine


WHOLE = Part()
