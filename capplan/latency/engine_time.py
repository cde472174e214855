"""Time of an engine beside its kernels: CPU, launches, scheduler and sampling.

A profile of kernel sums has none of it, and a roofline has none either. It is linear
in the batch, so decode iterations keep their closed form. The shipped times were fitted
to sweeps of real engines (``examples/served_accuracy.py``).
"""

from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, ValidationError

from capplan.errors import ProfileError
from capplan.latency.contract import LatencyTables
from capplan.latency.yaml_file import Strict, first_problem, read_yaml
from capplan.shipped import shipped

SCHEMA = "capplan-engine-times/1"
SHIPPED = "engine_times.yaml"
"""In the folder of shipped profiles."""

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


class ServedError(Strict):
    """How real engines differed from a prediction, over sweeps that it did not see.

    A sweep is one engine at several concurrencies. Each list has the quantiles 10, 50
    and 90 % over the sweeps.
    """

    sweeps: Annotated[int, Field(ge=1)]
    tpot: Quantiles  # measured ÷ predicted TPOT, median of a sweep
    # measured ÷ predicted users of a replica at 1.25 times the sweep's lowest TPOT
    capacity: Quantiles

    def slowdown(self, quantile: float) -> float:
        """Return the factor on times that a share of the engines stay within."""
        return _at(self.tpot, quantile)


def _at(quantiles: list[float], share: float) -> float:
    """Return a quantile, the logarithm linear in the normal quantile between three."""
    z = NormalDist().inv_cdf(share)
    low, middle, high = np.log(quantiles)
    step = (high - middle if z > 0 else middle - low) / _OUTER
    return float(np.exp(middle + step * z))


class EngineTime(Strict):
    """Time that an engine adds to its kernels, and a factor on these."""

    factor: Ratio = 1.0  # on the time of kernels
    iteration_s: Seconds = 0.0  # of each iteration
    per_request_s: Seconds = 0.0  # of each running request in an iteration
    request_s: Seconds = 0.0  # of each request before and after its iterations
    engine: str = "vllm"
    engine_version: str = ""
    source: str
    served: ServedError | None = None  # None where no sweep was left out

    def applied(self, tables: LatencyTables) -> LatencyTables:
        """Return the tables with the engine's time in every iteration."""
        per_request_s = self.per_request_s * np.arange(len(tables.decode_s))
        kernels = tables.scaled(self.factor)
        return kernels._replace(
            decode_s=kernels.decode_s + self.iteration_s + per_request_s,
            fused_s=kernels.fused_s + self.iteration_s,
            fused_decode_s=kernels.fused_decode_s + per_request_s,
            request_s=kernels.request_s + self.request_s,
        )

    def __str__(self) -> str:
        """Return the engine with its version, and its time."""
        factor = "" if self.factor == 1 else f"{self.factor:.3g} × kernels + "
        return (
            f"{factor}{self.iteration_s * 1e3:.2f} ms an iteration + "
            f"{self.per_request_s * 1e6:.0f} µs a running request "
            f"({self.engine} {self.engine_version})".replace(" )", ")")
        )


class _Row(EngineTime):
    """An engine's time, and the profiles that it is added to."""

    of: Basis = "kernel-sum"
    gpus: list[str] = Field(
        default_factory=list
    )  # beginnings of GPU names; all when empty
    experts: bool | None = None  # mixtures of experts, dense LLMs or both

    def fits(self, of: Basis, gpu: str, experts: bool) -> bool:
        """Return whether the row is of such a profile."""
        return (
            self.of == of
            and (not self.gpus or gpu.startswith(tuple(self.gpus)))
            and self.experts in (None, experts)
        )


class _Table(Strict):
    times: Annotated[list[_Row], Field(min_length=1)]


def engine_time(
    of: Basis, gpu: str, experts: bool, path: Path | None = None
) -> EngineTime | None:
    """Return the time to add to a kind of profile: the first row of the file that fits.

    ``path`` is the user's file; the shipped one when None.
    """
    path = path or shipped("profiles") / SHIPPED
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None
    for row in _read(path, changed_ns):
        if row.fits(of, gpu, experts):
            names = set(EngineTime.model_fields)
            return EngineTime.model_validate(row.model_dump(include=names))
    return None


@lru_cache(maxsize=8)
def _read(path: Path, changed_ns: int) -> tuple[_Row, ...]:
    content = read_yaml(path, "a file of engine times")
    if (schema := content.pop("schema", None)) != SCHEMA:
        raise ProfileError(f"{path}: schema is {schema!r}; expected {SCHEMA!r}")
    try:
        return tuple(_Table.model_validate(content).times)
    except ValidationError as error:
        raise ProfileError(f"{path}: {first_problem(error, 'engine times')}") from None
