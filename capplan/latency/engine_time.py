"""Time of an engine beside its kernels: CPU, launches, scheduler and sampling.

A profile of kernel sums has none of it, and a roofline has none either. It is linear
in the batch, so decode iterations keep their closed form. The shipped times were fitted
to sweeps of real engines (``examples/studies/served_accuracy.py``).
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from capplan.engines.catalog import title_of
from capplan.latency.contract import LatencyTables
from capplan.latency.yaml_file import Strict

WIDE = 2.0
"""Most over least that real engines sustain, from which it is no range."""

LEAST_USERS = 4
"""Fewest requests at once in the sweeps that the shipped times were fitted to."""

Basis = Literal["kernel-sum", "other-tp", "other-gpu", "roofline"]
"""What the time is added to: kernels, or an estimate from another TP degree, from
another GPU type, or from data sheets alone."""

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]


def _ascending(values: list[float]) -> list[float]:
    if values != sorted(values):
        raise ValueError("expected the quantiles 10, 50 and 90 %, ascending")
    return values


Quantiles = Annotated[
    list[Ratio], Field(min_length=3, max_length=3), AfterValidator(_ascending)
]

_OUTER = NormalDist().inv_cdf(0.9)


def between(quantiles: Sequence[float], z: float) -> float:
    """Return a value at a normal quantile ``z``, of its quantiles 10, 50 and 90 %.

    Its logarithm is linear in ``z`` between and beyond the three.

    Examples
    --------
    >>> round(between([0.5, 1.0, 3.0], -_OUTER), 6), between([0.5, 1.0, 3.0], 0.0)
    (0.5, 1.0)
    """
    low, middle, high = np.log(quantiles)
    step = (high - middle if z > 0 else middle - low) / _OUTER
    return float(np.exp(middle + step * z))


class ServedError(Strict):
    """How real engines differed from a prediction, over sweeps that it did not see.

    A sweep is one engine at several concurrencies. Each list has the quantiles 10, 50
    and 90 % over the sweeps.
    """

    sweeps: Annotated[int, Field(ge=1)]
    # what was left out of the fit that predicted a sweep: its LLM on its GPU type and
    # engine, or all LLMs of its family, as where no benchmark of an LLM is known
    left_out: Literal["group", "family"] = "group"
    tpot: Quantiles  # measured ÷ predicted TPOT, median of a sweep
    # measured ÷ predicted users of a replica at 1.25 times the sweep's lowest TPOT
    capacity: Quantiles

    @property
    def is_wide(self) -> bool:
        """Whether engines differ by a factor of two or more."""
        return self.capacity[2] >= WIDE * self.capacity[0]

    def slowdown(self, quantile: float) -> float:
        """Return the factor on times that a share of the engines stay within.

        Its logarithm is linear in the normal quantile between the three of ``tpot``.
        """
        return between(self.tpot, NormalDist().inv_cdf(quantile))


BEYOND_TOKENS = 64
"""Tokens of an iteration up to which its kernels mostly read weights: ``decode_factor``
is on these, ``prefill_factor`` on what the tokens beyond add."""


_OF_ITERATIONS = {"decode_factor", "prefill_factor", "iteration_s"}
_OF_ITERATIONS |= {"per_request_s", "prefill_iteration_s"}
"""Fields of ``EngineTime`` that change the time of iterations."""


class EngineTime(Strict):
    """Time that an engine adds to its kernels, and two factors on these."""

    decode_factor: Ratio = 1.0  # on kernels, but for those of tokens beyond 64
    prefill_factor: Ratio = 1.0  # on kernels of tokens beyond 64, beside prefill
    iteration_s: Seconds = 0.0  # of each iteration
    per_request_s: Seconds = 0.0  # of each running request in an iteration
    # of each iteration with prefill, beside iteration_s: no graph launches its kernels
    prefill_iteration_s: Seconds = 0.0
    request_s: Seconds = 0.0  # of each request before and after its iterations
    prompt_token_s: Seconds = 0.0  # of each prompt token, before its iterations
    api_request_s: Seconds = 0.0  # 1 / requests per second of an API server process
    engine: str = "vllm"
    engine_version: str = ""  # as 0.13.0, or the first and last as 0.11.0–0.13.0
    source: str
    served: ServedError | None = None  # None where no sweep was left out

    @model_validator(mode="before")
    @classmethod
    def _one_factor_is_both(cls, content: Any) -> Any:
        """Read ``factor`` as both factors, which were one before."""
        if isinstance(content, dict) and "factor" in content:
            rest = dict(content)
            factor = rest.pop("factor")
            return {"decode_factor": factor, "prefill_factor": factor, **rest}
        return content

    def applied(self, tables: LatencyTables) -> LatencyTables:
        """Return the tables with the engine's time in every iteration."""
        per_request_s = self.per_request_s * np.arange(len(tables.decode_s))
        with_prefill_s = self.iteration_s + self.prefill_iteration_s
        kernels = tables.scaled(self.decode_factor)
        return kernels._replace(
            decode_s=kernels.decode_s + self.iteration_s + per_request_s,
            fused_s=self.of_kernels(tables.fused_s) + with_prefill_s,
            fused_decode_s=kernels.fused_decode_s + per_request_s,
            attention_s=self.prefill_factor * tables.attention_s,
            request_s=kernels.request_s + self.request_s,
            prompt_token_s=kernels.prompt_token_s + self.prompt_token_s,
            api_request_s=max(kernels.api_request_s, self.api_request_s),
        )

    def slowed(self, factor: float) -> Self:
        """Return it with a factor on the time of every iteration, kernels included."""
        times = self.model_dump(include=_OF_ITERATIONS)
        return self.model_copy(update={name: factor * x for name, x in times.items()})

    def of_kernels(self, times_s: np.ndarray, ranks: int = 1) -> np.ndarray:
        """Return the time of kernels by the tokens of an iteration with prompts. [s]

        ``times_s`` are as measured, shape (tokens + 1,), of all ``ranks`` together.
        """
        few = BEYOND_TOKENS * ranks
        beyond_s = np.maximum(times_s - times_s[min(few, len(times_s) - 1)], 0.0)
        beyond_s[: few + 1] = 0.0
        more = self.prefill_factor - self.decode_factor
        return np.asarray(self.decode_factor * times_s + more * beyond_s)

    @property
    def engine_name(self) -> str:
        """Engine with its version, such as ``vLLM 0.11.0–0.13.0``."""
        return f"{title_of(self.engine)} {self.engine_version}".strip()

    def __str__(self) -> str:
        """Return the engine with its version, and its time."""
        factor = ""
        if (self.decode_factor, self.prefill_factor) != (1, 1):
            factor = f"{self.decode_factor:.3g} × kernels + "
        if self.decode_factor != self.prefill_factor:
            factor = (
                f"{self.decode_factor:.3g} × kernels of decoding, "
                f"{self.prefill_factor:.3g} × of prefill + "
            )
        prefill = ""
        if self.prefill_iteration_s:
            prefill = f"{self.prefill_iteration_s * 1e3:.2f} ms one with prefill + "
        return (
            f"{factor}{self.iteration_s * 1e3:.2f} ms an iteration + {prefill}"
            f"{self.per_request_s * 1e6:.0f} µs a running request ({self.engine_name})"
        )
