"""A latency profile: iteration time of one LLM on one GPU type at one TP degree.

It is stored as one YAML file, ``profiles/<gpu>/<llm>/tp<k>.yaml``.
"""

from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from capplan.errors import ProfileError
from capplan.latency.contract import LatencyTables
from capplan.latency.engine_time import BEYOND_TOKENS, Basis, EngineTime
from capplan.latency.forms import iteration_s
from capplan.latency.measured_factor import MeasuredFactor, is_factor
from capplan.latency.measurements import PHASES, Points
from capplan.latency.terms import DecodeTerms, FusedTerms, tables
from capplan.latency.yaml_file import Strict
from capplan.llm.layout import Layout

HOW = {
    "measured": "measured on the engine itself",
    "calibrated": "kernel sums or data sheets, calibrated to sweeps of real engines",
    "kernel-sum": "a sum of measured kernel times",
    "published": "published coefficients, measured by others",
    "estimate": "an estimate, not a measurement",
}
"""Values of :attr:`Profile.how` and their meaning."""

Share = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Range = Annotated[
    list[Annotated[float, Field(ge=0, le=1e9)]], Field(min_length=2, max_length=2)
]


CALIBRATED = "; calibrated to "
"""In a source, before that of an engine's time."""
LOAD_TESTS = "load_tests"
BACKTEST = "backtest"
"""Of ``Profile.meta``: a user's load tests that its engine's time was fitted to, and
the factor with its interval by which that explains metrics of a fleet."""


class DecodeRange(Strict):
    """Measured range of decode iterations, each as [least, most]."""

    batch: Range
    context: Range


class PrefillRange(Strict):
    """Measured range of prefill iterations."""

    new_tokens: Range
    prefix: Range


class MixedRange(DecodeRange):
    """Measured range of mixed iterations."""

    chunk: Range


class Validity(Strict):
    """Measured range of each phase; None when a phase was not measured."""

    decode: DecodeRange | None = None
    prefill: PrefillRange | None = None
    mixed: MixedRange | None = None


class ErrorRecord(Strict):
    """Relative errors of a fit in one phase; sigma is the held-out residual's RMS."""

    points: int | None = None
    mean_abs: Share | None = None
    max_abs: Share | None = None
    held_out_mean_abs: Share | None = None
    held_out_max_abs: Share | None = None
    sigma: Share | None = None

    @classmethod
    def of(cls, points: int, fitted: np.ndarray, unseen: np.ndarray) -> "ErrorRecord":
        """Return the record of relative errors at fitted and at held-out points."""
        return cls(
            points=points,
            mean_abs=float(np.abs(fitted).mean()),
            max_abs=float(np.abs(fitted).max()),
            held_out_mean_abs=float(np.abs(unseen).mean()),
            held_out_max_abs=float(np.abs(unseen).max()),
            sigma=float(np.sqrt((unseen**2).mean())),
        )


class Origin(Strict):
    """What the times of a profile are of, and where they are from."""

    gpu: str  # as in the catalog
    llm: str  # as in the catalog
    tp: Annotated[int, Field(ge=1)]
    dtype: str = "bfloat16"  # of activations
    quantization: str = "none"  # type of the weights; none: as dtype
    kv_dtype: str = "bfloat16"
    engine: str
    engine_version: str = ""
    source: str
    licence: str = ""
    how: Literal["measured", "calibrated", "kernel-sum", "published", "estimate"]
    date: str = ""  # of the measurement


class Profile(Origin):
    """Latency of one LLM on one GPU type and TP degree."""

    SCHEMA: ClassVar[str] = "capplan-profile/1"
    WHAT: ClassVar[str] = "a profile"  # of files
    ERRORS_OF: ClassVar[dict[str, tuple[str, ...]]] = {"phase": PHASES}

    decode_form: str  # a form of :mod:`capplan.latency.forms`
    fused_form: str
    decode: DecodeTerms
    fused: FusedTerms
    # what the terms are the kernels of; None where they hold the engine's time too
    kernels_from: Basis | None = None
    engine_time: EngineTime | None = None  # on top of the terms
    request_s: Share = 0.0  # front end's time before a request reaches the engine [s]
    validity: Validity = Validity()
    errors: dict[str, ErrorRecord] = Field(default_factory=dict)  # relative, by phase
    kv_tokens: Annotated[int, Field(ge=1, le=10**12)] | None = (
        None  # as the engine reported it
    )
    block_size: Annotated[int, Field(ge=1, le=65_536)] | None = (
        None  # of a KV block [tokens]
    )
    # driver, flags and other details
    meta: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @field_validator("errors")
    @classmethod
    def _errors_are_known(cls, errors: dict[str, ErrorRecord]) -> dict:
        """Refuse errors of an unknown phase or part."""
        [(kind, known)] = cls.ERRORS_OF.items()
        for name in errors:
            if name not in known:
                raise ValueError(f"{name} is no {kind}; expected {', '.join(known)}")
        return errors

    @model_validator(mode="before")
    @classmethod
    def _sums_are_kernels(cls, content: Any) -> Any:
        """Take a sum of kernels as such; it holds none of the engine's time."""
        if isinstance(content, dict) and content.get("how") == "kernel-sum":
            return {**content, "kernels_from": "kernel-sum"}
        return content

    @property
    def name(self) -> str:
        """Name in outputs, such as ``Llama-3.1-8B on H100-SXM, TP 1``."""
        return f"{self.llm} on {self.gpu}, TP {self.tp}"

    @property
    def layout(self) -> Layout:
        """How the GPUs share the LLM."""
        return Layout(self.tp)

    @property
    def times_of(self) -> str:
        """Engine and version that the times are of; empty where they are kernels'."""
        if self.kernels_from is not None and self.engine_time is None:
            return ""
        time = self.engine_time or self
        return f"{time.engine} {time.engine_version}".strip()

    @property
    def kv_element(self) -> str:
        """Element type of the KV cache as in the LLM catalog: bf16 or fp8."""
        return "fp8" if self.kv_dtype.startswith("fp8") else "bf16"

    def tables(
        self, max_batch: int, max_tokens: int, *, quantile: float = 0.5
    ) -> LatencyTables:
        """Return the tables the simulator runs on, up to a batch and iteration size.

        They hold the engine's own time, and times that a share ``quantile`` of the
        engines stay within: by the sweeps of such engines where there are any, else by
        the sigma of the fit.
        """
        served = None if self.engine_time is None else self.engine_time.served
        z = NormalDist().inv_cdf(quantile) if served is None else 0.0
        fused_sigma = max(self.sigma("prefill"), self.sigma("mixed"))
        made = tables(
            self.decode,
            self.fused,
            max_batch,
            max_tokens,
            request_s=self.request_s,
            decode_scale=max(1 + z * self.sigma("decode"), 0.1),
            fused_scale=max(1 + z * fused_sigma, 0.1),
        )
        if self.engine_time is not None:
            made = self.engine_time.applied(made)
        if served is None:
            return made
        slowdown = served.slowdown(quantile)
        if self.how != "estimate" or served.left_out == "family":
            # Fitted to engines of its kind, it is right in the middle: what is left
            # there is noise.
            slowdown /= served.slowdown(0.5)
        return made.scaled(slowdown)

    @property
    def is_load_tested(self) -> bool:
        """Whether its engine's time is of a user's load tests or fleet of this kind."""
        of_a_user = {LOAD_TESTS, BACKTEST} & self.meta.keys()
        return self.engine_time is not None and bool(of_a_user)

    @property
    def backtested(self) -> MeasuredFactor | None:
        """The factor of the fleet that its engine's time is fitted to; None of none."""
        text = str(self.meta.get(BACKTEST, ""))
        if self.engine_time is None or not text:
            return None
        if not is_factor(text):
            raise ProfileError(
                f"{self.name}: meta has backtest {text!r}; expected as `capplan fit "
                "--from metrics:` writes it, 1.12[1.04,1.19]@LLM/GPU/tp1"
            )
        return MeasuredFactor.parse(text)

    @property
    def has_spread(self) -> bool:
        """Whether any error of the times is known: of sweeps, or of the fit."""
        served = None if self.engine_time is None else self.engine_time.served
        return served is not None or self.sigma("decode") > 0

    def sigma(self, phase: str) -> float:
        """Return the relative standard deviation of a phase; 0 when unknown."""
        return self.errors_of(phase).sigma or 0.0

    def errors_of(self, part: str) -> ErrorRecord:
        """Return the errors of a phase or part; an empty record where unknown."""
        return self.errors.get(part) or ErrorRecord()

    @property
    def errors_by_phase(self) -> dict[str, ErrorRecord]:
        """Errors of the phases alone, as they were recorded."""
        return {of: record for of, record in self.errors.items() if of in PHASES}

    def document(self) -> dict[str, Any]:
        """Return what is known, as it is written."""
        return self.model_dump(exclude_none=True)

    def predict(self, points: Points) -> np.ndarray:
        """Return the time of each point, shape (points,). [s]

        With the engine's own time where the profile has one.
        """
        time_s = iteration_s(self.decode, self.fused, points)
        time = self.engine_time
        if time is None:
            return time_s
        own_s = time.iteration_s + time.per_request_s * points.decoding
        tokens = points.prefill_tokens + points.decoding
        few = np.minimum(tokens, BEYOND_TOKENS)
        prefill_s = self.fused.tokens_time_s(tokens) - self.fused.tokens_time_s(few)
        prefill_s = np.maximum(prefill_s, 0) + self.fused.attention_s * points.attention
        prefill_s = np.where(points.phase == PHASES.index("decode"), 0.0, prefill_s)
        own_s += time.prefill_iteration_s * (points.phase != PHASES.index("decode"))
        more = time.prefill_factor - time.decode_factor
        return time.decode_factor * time_s + more * prefill_s + own_s

    def beyond_range(
        self, max_batch: int, max_context: int, max_chunk: int
    ) -> list[str]:
        """Return a sentence for each way in which a workload leaves the measured range.

        A workload has most requests running at once, a longest context [tokens] and
        most prompt tokens in an iteration.
        """
        measured = self.validity
        used: list[tuple[str, int, float, str]] = []
        if measured.decode:
            used += [
                ("largest batch", max_batch, measured.decode.batch[1], "requests"),
                ("longest request", max_context, measured.decode.context[1], "tokens"),
            ]
        if measured.prefill:
            most = measured.prefill.new_tokens[1]
            used.append(("largest prefill", max_chunk, most, "tokens"))
        sentences = [
            f"{self.name}: your {name} ({value:,} {unit}) is beyond the {most:,.0f} "
            "measured; its times are extrapolated"
            for name, value, most, unit in used
            if value > most
        ]
        if measured.mixed is None:
            sentences.append(
                f"{self.name}: prefill beside decode was not measured; its times are "
                "combined from both"
            )
        return sentences

    def note(self) -> str:
        """Return one sentence on how and where the profile was obtained."""
        engine = f"{self.engine} {self.engine_version}".strip()
        when = f", {self.date}" if self.date else ""
        how = HOW[self.how]
        if "found_by" in self.meta:
            how = f"found by {self.meta['found_by']}"
        if self.meta.get("not_identified"):
            how += f", not identified: {self.meta['not_identified']}"
        times = self.engine_time
        own = "" if times is None else f"; times of {times.engine_name}"
        return f"{self.name}: {how} ({engine}; {self.source}{when}){own}."


_RANGES = {
    "decode": {"batch": "batch", "context": "context"},
    "prefill": {"new_tokens": "new_tokens", "prefix": "context"},
    "mixed": {"batch": "batch", "context": "context", "chunk": "prefill_tokens"},
}
"""Ranges of each phase, and the attributes of points that they span."""


def validity_of(points: Points) -> Validity:
    """Return the range of the points in each phase."""
    return covered(
        {
            phase: {
                name: getattr(points.of(phase), column)
                for name, column in names.items()
            }
            for phase, names in _RANGES.items()
        }
    )


def covered(values: dict[str, dict[str, np.ndarray]]) -> Validity:
    """Return the ranges of values by phase and name, without phases that lack any."""
    return Validity.model_validate(
        {
            phase: {
                name: [float(column.min()), float(column.max())]
                for name, column in columns.items()
            }
            for phase, columns in values.items()
            if all(len(column) for column in columns.values())
        }
    )
