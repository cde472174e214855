"""A latency profile of ranks that step together, its parts apart.

It is of one LLM on one GPU type in a layout of TP, DP and EP other than TP alone, one
YAML file such as ``profiles/<gpu>/<llm>/dp8-ep8.yaml``; profiles of TP degrees and
their interpolations know nothing of it.
"""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from capplan.errors import InputError
from capplan.latency.measurements import PHASES
from capplan.latency.profile import CALIBRATED, HOW, Origin, Profile
from capplan.latency.rank_tables import RankTables
from capplan.latency.terms import PartTerms
from capplan.llm.layout import Layout

PARTS = ("experts", "exchange")
"""Parts of an iteration beside what a rank does alone: routed experts, and the dispatch
of their tokens with the combination of what they return."""

Degree = Annotated[int, Field(ge=1, le=1024)]


class RankProfile(Profile):
    """Latency of the ranks of one layout, its parts apart.

    Terms, forms and range are of what a rank does alone, errors of its phases and of
    the other parts.
    """

    SCHEMA: ClassVar[str] = "capplan-rank-profile/1"
    WHAT: ClassVar[str] = "a profile of ranks"
    ERRORS_OF: ClassVar[dict[str, tuple[str, ...]]] = {"part": (*PHASES, *PARTS)}

    dp: Degree = 1  # ranks that step together
    ep: Degree = 1  # GPUs that hold different experts
    all_to_all: str  # how tokens reach the experts, as in the launch line
    nextn: Annotated[int, Field(ge=0, le=64)] = 0  # tokens that MTP drafts
    # load of the most loaded GPU's experts over the mean; on the experts' times
    imbalance: Annotated[float, Field(ge=1, le=100)] = 1.0
    imbalance_source: str = ""
    experts: PartTerms  # by tokens of all ranks, evenly spread over the experts
    experts_prefill: PartTerms  # the same in an iteration with a prompt
    exchange: PartTerms  # by tokens of a rank
    exchange_prefill: PartTerms

    @model_validator(mode="after")
    def _is_of_a_layout(self) -> Self:
        """Refuse a layout that no engine has, or that is TP alone."""
        try:
            layout = self.layout
        except InputError as error:
            raise ValueError(str(error)) from None
        if layout == Layout(layout.tp):
            raise ValueError(
                f"{layout} is TP alone; expected DP or EP above 1, or a profile of TP"
            )
        return self

    @property
    def layout(self) -> Layout:
        """TP, DP and EP."""
        return Layout(self.tp, self.dp, self.ep)

    @property
    def name(self) -> str:
        """Name in outputs, such as ``DeepSeek-R1 on H200-SXM, dp8-ep8``."""
        drafts = f" with MTP {self.nextn}" if self.nextn else ""
        return f"{self.llm} on {self.gpu}, {self.layout}{drafts}"

    def rank_tables(
        self, max_batch: int, max_tokens: int, *, quantile: float = 0.5
    ) -> RankTables:
        """Return the parts up to a batch and an iteration size of a rank.

        They are of the kernels, times the imbalance, with the engine's time where that
        is known; with CUDA graphs ``max_tokens`` is at least the largest.
        """
        ranks, time = self.dp, self.engine_time
        most = max_tokens + max_batch * (1 + self.nextn)
        experts_s = self.imbalance * self.experts.table(ranks * most)
        prefill_s = self.imbalance * self.experts_prefill.table(ranks * most)
        exchange_s = self.exchange.table(most)
        sent_s = self.exchange_prefill.table(most)
        if time is not None:
            experts_s = time.decode_factor * experts_s
            exchange_s = time.decode_factor * exchange_s
            prefill_s = time.of_kernels(prefill_s, ranks)
            sent_s = time.of_kernels(sent_s)
        return RankTables(
            rank=self.tables(max_batch, max_tokens, quantile=quantile),
            ranks=ranks,
            experts_s=experts_s,
            experts_prefill_s=prefill_s,
            exchange_s=exchange_s,
            exchange_prefill_s=sent_s,
            tokens_per_request=1 + self.nextn,
        )

    def note(self) -> str:
        """Return one sentence on how and where the kernels were obtained."""
        engine = f"{self.engine} {self.engine_version}".strip()
        how = HOW["kernel-sum"] if self.kernels_from == "kernel-sum" else HOW[self.how]
        source = self.source.partition(CALIBRATED)[0]
        spread = ""
        if self.imbalance > 1:
            spread = f"; times {self.imbalance:g} on the experts, for their imbalance"
        times = self.engine_time
        own = "" if times is None else f"; times of {times.engine_name}"
        return (
            f"{self.name}: {how} ({engine}, all-to-all {self.all_to_all}; {source})"
            f"{spread}{own}."
        )

    def document(self) -> dict[str, Any]:
        """Return what is known, as it is written."""
        content = super().document()
        if not self.request_s:
            del content["request_s"]
        return {name: content[name] for name in _ORDER if name in content}


_OWN = [name for name in RankProfile.model_fields if name not in Profile.model_fields]
_TERMS = ["decode_form", "fused_form", "decode", "fused"]
_FIRST = (*Origin.model_fields, *_OWN[:6], *_TERMS, *_OWN[6:])
_ORDER = dict.fromkeys((*_FIRST, *Profile.model_fields))
"""Keys of a file: layout before terms, these before the other parts."""
