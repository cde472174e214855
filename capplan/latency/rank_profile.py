"""A latency profile of ranks that step together, its parts apart.

It is of one LLM on one GPU type in a layout of TP, DP and EP other than TP alone, one
YAML file such as ``profiles/<gpu>/<llm>/dp8-ep8.yaml``; profiles of TP degrees and
their interpolations know nothing of it.
"""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from capplan.errors import InputError
from capplan.latency.measurements import PHASES
from capplan.latency.profile import ErrorRecord, Origin, Validity
from capplan.latency.rank_tables import RankTables
from capplan.latency.terms import DecodeTerms, FusedTerms, PartTerms, tables
from capplan.llm.layout import Layout

PARTS = ("experts", "exchange")
"""Parts of an iteration beside what a rank does alone: routed experts, and the dispatch
of their tokens with the combination of what they return."""

Degree = Annotated[int, Field(ge=1, le=1024)]


class RankProfile(Origin):
    """Latency of the ranks of one layout, its parts apart."""

    dp: Degree = 1  # ranks that step together
    ep: Degree = 1  # GPUs that hold different experts
    all_to_all: str  # how tokens reach the experts, as in the launch line
    nextn: Annotated[int, Field(ge=0, le=64)] = 0  # tokens that MTP drafts
    # load of the most loaded GPU's experts over the mean; on the experts' times
    imbalance: Annotated[float, Field(ge=1, le=100)] = 1.0
    imbalance_source: str = ""
    decode_form: str  # forms of :mod:`capplan.latency.forms`, of a rank alone
    fused_form: str
    decode: DecodeTerms
    fused: FusedTerms
    experts: PartTerms  # by tokens of all ranks, evenly spread over the experts
    experts_prefill: PartTerms  # the same in an iteration with a prompt
    exchange: PartTerms  # by tokens of a rank
    exchange_prefill: PartTerms
    validity: Validity = Validity()
    # relative: of a rank alone by phase, and of the other parts
    errors: dict[str, ErrorRecord] = Field(default_factory=dict)
    # driver, flags and other details
    meta: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @field_validator("errors")
    @classmethod
    def _errors_are_of_parts(cls, errors: dict[str, ErrorRecord]) -> dict:
        """Refuse errors of an unknown phase or part."""
        for name in errors:
            if name not in (*PHASES, *PARTS):
                known = ", ".join((*PHASES, *PARTS))
                raise ValueError(f"{name} is no part; expected {known}")
        return errors

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

    def tables(self, max_batch: int, max_tokens: int) -> RankTables:
        """Return the parts up to a batch and an iteration size of a rank.

        They are of the kernels alone, as measured, times the imbalance; with CUDA
        graphs ``max_tokens`` is at least the largest.
        """
        most = max_tokens + max_batch * (1 + self.nextn)
        return RankTables(
            rank=tables(self.decode, self.fused, max_batch, max_tokens),
            ranks=self.dp,
            experts_s=self.imbalance * self.experts.table(self.dp * most),
            experts_prefill_s=self.imbalance
            * self.experts_prefill.table(self.dp * most),
            exchange_s=self.exchange.table(most),
            exchange_prefill_s=self.exchange_prefill.table(most),
            tokens_per_request=1 + self.nextn,
        )

    def note(self) -> str:
        """Return one sentence on how and where the profile was obtained."""
        engine = f"{self.engine} {self.engine_version}".strip()
        spread = ""
        if self.imbalance > 1:
            spread = f"; times {self.imbalance:g} on the experts, for their imbalance"
        return (
            f"{self.name}: {self.how_obtained} ({engine}, all-to-all "
            f"{self.all_to_all}; {self.source}){spread}."
        )

    def errors_of(self, part: str) -> ErrorRecord:
        """Return the errors of a phase or part; an empty record where unknown."""
        return self.errors.get(part) or ErrorRecord()
