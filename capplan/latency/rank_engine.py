"""Profiles of ranks with the engine's own time on top, as those of TP have it."""

from typing import Any

from capplan.engines.catalog import EngineName
from capplan.latency.engine_rows import engine_time
from capplan.latency.profile import Profile
from capplan.latency.rank_profile import PARTS, RankProfile
from capplan.latency.rank_tables import RankTables

_ORIGIN: tuple[str, ...] = ("gpu", "llm", "tp", "dtype", "quantization", "kv_dtype")
_ORIGIN += ("engine", "engine_version", "source", "licence", "how", "date", "meta")
_OWN = ("decode_form", "fused_form", "decode", "fused", "validity")


class RankAlone(Profile):
    """What a rank does alone, with the parts that all ranks share.

    The engine's time is chosen as for a profile of TP; sweeps of such engines do not
    tell how far this one is off, so that it has the error of LLMs of other families.
    """

    parts: RankProfile

    @classmethod
    def of(cls, parts: RankProfile) -> "RankAlone":
        """Return the profile of what a rank of others does alone."""
        named: dict[str, Any] = {
            name: getattr(parts, name) for name in (*_ORIGIN, *_OWN)
        }
        errors = {at: row for at, row in parts.errors.items() if at not in PARTS}
        return cls(parts=parts, errors=errors, **named)

    @property
    def name(self) -> str:
        """Name in outputs, such as ``DeepSeek-R1 on H200-SXM, dp8-ep8``."""
        return self.parts.name

    def unserved(self) -> "RankAlone":
        """Return it with other families' error in place of its own LLM's with TP.

        Those were of TP too, so that it is a lower bound of the error of ranks.
        """
        time = self.engine_time
        if time is None or time.served is None or time.served.left_out == "family":
            return self
        kind = (self.kernels_from or "kernel-sum", self.gpu, "", True)
        row = engine_time(*kind, wanted=EngineName(time.engine)) or engine_time(*kind)
        time = time.model_copy(update={"served": None if row is None else row.served})
        return self.model_copy(update={"engine_time": time})

    def rank_tables(
        self,
        max_batch: int,
        max_tokens: int,
        *,
        quantile: float = 0.5,
    ) -> RankTables:
        """Return the parts of an iteration up to a batch and tokens of a rank."""
        parts = self.parts.tables(max_batch, max_tokens)
        experts_s, prefill_s = parts.experts_s, parts.experts_prefill_s
        exchange_s, sent_s = parts.exchange_s, parts.exchange_prefill_s
        if self.engine_time is not None:
            time, ranks = self.engine_time, self.parts.dp
            experts_s = time.decode_factor * experts_s
            exchange_s = time.decode_factor * exchange_s
            prefill_s = time.of_kernels(prefill_s, ranks)
            sent_s = time.of_kernels(sent_s)
        return parts._replace(
            rank=self.tables(max_batch, max_tokens, quantile=quantile),
            experts_s=experts_s,
            experts_prefill_s=prefill_s,
            exchange_s=exchange_s,
            exchange_prefill_s=sent_s,
        )

    def note(self) -> str:
        """Return one sentence on how and where the profile was obtained."""
        times = self.engine_time
        own = "" if times is None else f"; times of {times.engine_name}"
        return f"{self.parts.note().removesuffix('.')}{own}."
