"""Choose the engine's own time by GPU, LLM, engine and version from a file of rows.

The shipped rows are of engines that were measured, see
``examples/studies/served_accuracy.py``.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field

from capplan.engines.catalog import EngineName, numbers
from capplan.errors import InputError
from capplan.latency.catalog import names_alike
from capplan.latency.engine_time import Basis, EngineTime, ServedError
from capplan.latency.yaml_file import Strict, read_once, read_yaml
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import same_shapes
from capplan.shipped import shipped

SCHEMA = "capplan-engine-times/1"
SHIPPED = "engine_times.yaml"
"""In the folder of shipped profiles."""

NEWER_CARRIES = 1.4
"""Users of a replica over those of an older version: gpt-oss-120b with vLLM 0.11 and
0.13 over 0.10, the median of H100, H200 and B200 (docs/internals/accuracy.md)."""

Version = tuple[int, ...]
AnyTime = TypeVar("AnyTime", bound=EngineTime)


class EngineRow(EngineTime):
    """An engine's time, and the profiles that it is added to."""

    of: Basis = "kernel-sum"
    # beginnings of GPU names; all when empty
    gpus: list[str] = Field(default_factory=list)
    llms: list[str] = Field(default_factory=list)  # LLMs of the catalog; all when empty
    experts: bool | None = None  # mixtures of experts, dense LLMs or both
    # of the TP degree in both factors: kernels in the tables add an all-reduce that
    # engines fuse, so that higher degrees take less than their sum
    tp_power: Annotated[float, Field(ge=-2, le=2)] = 0.0
    since: str = ""  # first version that it holds for; the first fitted to when empty
    # of bursts: its prefill factor alone holds, beside the times of another row
    prompts_only: bool = False

    def fits(self, of: Basis, gpu: str, llm: str, experts: bool) -> bool:
        """Return whether the row is of such a profile."""
        return (
            self.of == of
            and (not self.gpus or gpu.startswith(tuple(self.gpus)))
            and (not self.llms or self.is_of(llm) > 0)
            and self.experts in (None, experts)
        )

    @property
    def time(self) -> EngineTime:
        """The row's time alone, as at TP 1."""
        return EngineTime(**self.model_dump(include=set(EngineTime.model_fields)))

    def at(self, tp: int) -> "EngineRow":
        """Return the row with the factors of a TP degree."""
        times = tp**self.tp_power
        factors = {
            name: getattr(self, name) * times
            for name in ("decode_factor", "prefill_factor")
        }
        return self.model_copy(update={**factors, "tp_power": 0.0})

    @property
    def versions(self) -> tuple[Version, Version]:
        """First version that the row holds for, and last that it was fitted to."""
        first, _, last = self.engine_version.partition("–")
        return numbers(self.since or first), numbers(last or first)

    def is_sure_of(self, engine: str) -> bool:
        """Return whether it is an engine's, and of an LLM or with a range."""
        is_told = self.served is None or not self.served.is_wide
        return self.engine == engine and (bool(self.llms) or is_told)

    def is_of(self, llm: str) -> int:
        """Return 2 where it is of an LLM, 1 of another weight dtype of it, else 0."""
        return max((_likeness(name, llm) for name in self.llms), default=0)

    def nearness(self, llm: str) -> tuple[int, int]:
        """How near the row is: those that name the LLM first, then the fewest GPUs."""
        return self.is_of(llm), -len(self.gpus or range(100))


@cache
def _likeness(name: str, llm: str) -> int:
    if name == llm or name in names_alike(llm):
        return 2
    try:
        return int(same_shapes(find_llm(name), find_llm(llm)))
    except InputError:  # an LLM of no catalog
        return 0


class _Table(Strict):
    times: Annotated[list[EngineRow], Field(min_length=1)]
    # errors of estimates, by what the kernels come from: they take the times of kernel
    # sums where they have no row of their own
    estimated: dict[Basis, ServedError] = Field(default_factory=dict)


def engine_time(
    of: Basis,
    gpu: str,
    llm: str,
    experts: bool,
    *,
    wanted: EngineName | None = None,
    path: Path | None = None,
) -> EngineRow | None:
    """Return the row of a file to add to a kind of profile, or None where none fits.

    ``path`` is the user's file; the shipped one when None. See :func:`choose`.
    """
    table = read_once(path or shipped("profiles") / SHIPPED, _read)
    row = choose(table.times, of, gpu, llm, experts, wanted)
    if row is None and of in table.estimated:
        row = choose(table.times, "kernel-sum", gpu, llm, experts, wanted)
        if row is not None and row.llms:  # else its error is the larger
            row = row.model_copy(update={"served": table.estimated[of]})
    return row


def choose(
    rows: Sequence[EngineRow],
    of: Basis,
    gpu: str,
    llm: str,
    experts: bool,
    wanted: EngineName | None = None,
) -> EngineRow | None:
    """Return the row that is nearest to a kind of profile, or None where none fits.

    Rows that hold for a version ``wanted`` are before others, if there are any. Those
    that name the LLM are before those of another weight dtype of it, these before
    those of its kind, then those that name fewer GPUs. Where no engine is ``wanted``
    vLLM's are before others, unless another alone was measured with the LLM. Of the
    nearest the newest is taken: by default, and for a version that is newer than all;
    for an older one than all the first. It takes the prefill factor that bursts of the
    LLM on the GPU tell, where it names these less nearly.
    """
    fitting = [row for row in rows if row.fits(of, gpu, llm, experts)]
    found = _nearest([row for row in fitting if not row.prompts_only], llm, wanted)
    told = [
        row
        for row in fitting
        if row.prompts_only
        and found is not None
        and row.engine == found.engine
        and row.nearness(llm) > found.nearness(llm)
    ]
    if found is None or not told:
        return found
    nearest = max(told, key=lambda row: row.nearness(llm))
    return found.model_copy(update={"prefill_factor": nearest.prefill_factor})


def _nearest(
    rows: list[EngineRow], llm: str, wanted: EngineName | None
) -> EngineRow | None:
    if wanted is not None:
        rows = [row for row in rows if row.engine == wanted.engine]
    else:
        sure = [row for row in rows if row.is_sure_of("vllm")]
        own = [row for row in rows if row.llms]
        rows = sure or own or [row for row in rows if row.engine == "vllm"] or rows
    if not rows:
        return None
    asked = numbers("" if wanted is None else wanted.version)
    # Of an older version than its LLM's own rows hold for, the row of its kind.
    rows = [r for r in rows if asked and r.versions[0][: len(asked)] <= asked] or rows
    nearest = max(row.nearness(llm) for row in rows)
    rows = [row for row in rows if row.nearness(llm) == nearest]
    if any(row.engine == "vllm" for row in rows):
        rows = [row for row in rows if row.engine == "vllm"]
    rows.sort(key=lambda row: row.versions[1], reverse=True)  # stable: first of equals
    if wanted is None or not wanted.version:
        return rows[0]
    return next(
        (row for row in rows if row.versions[0][: len(asked)] <= asked), rows[-1]
    )


def older_row(
    time: EngineTime, of: Basis, gpu: str, llm: str, experts: bool
) -> EngineRow | None:
    """Return the shipped row of the last version before those that a time is of."""
    table = read_once(shipped("profiles") / SHIPPED, _read)
    first = numbers(time.engine_version)
    before = [
        row
        for row in table.times
        if row.engine == time.engine and () < row.versions[1] < first
    ]
    return choose(before, of, gpu, llm, experts)


def is_newer(wanted: EngineName, row: EngineTime) -> bool:
    """Return whether a version is newer than all that a row was fitted to."""
    asked = numbers(wanted.version)
    last = numbers(row.engine_version.rpartition("–")[2])
    return bool(asked and last) and asked > last[: len(asked)]


def widened(time: AnyTime) -> AnyTime:
    """Return the time of an older version for a newer one, which may sustain more."""
    if time.served is None:
        return time
    low, middle, high = time.served.capacity
    capacity = [low, middle, high * NEWER_CARRIES]
    served = time.served.model_copy(update={"capacity": capacity})
    return time.model_copy(update={"served": served})


def _read(path: Path) -> _Table:
    return read_yaml(path, _Table, SCHEMA, "a file of engine times")
