"""A configuration: an engine on a GPU type, its iteration time and its price."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from capplan.deployment.cold_start import ColdStart, cold_start
from capplan.deployment.engine import EngineSettings
from capplan.deployment.replica import Replica
from capplan.fleet.price import Price
from capplan.latency.capacity import (
    LEVELS,
    alone_s,
    capacity_quantiles,
    measured_ratio,
    users,
)
from capplan.latency.contract import LatencyTables
from capplan.latency.engine_time import WIDE, EngineTime
from capplan.latency.layout_errors import LayoutError, layout_error
from capplan.latency.measured_factor import MeasuredFactor
from capplan.latency.profile import Profile
from capplan.latency.rank_tables import RankTables
from capplan.latency.with_engine import before
from capplan.llm.layout import Layout

UNMEASURED = "no benchmark of this kind of engine backs it"
UNBACKED = "no benchmark of this LLM backs it"
APART = "real engines of it differ by a factor of two"


@dataclass(frozen=True)
class Configuration:
    """What a replica is: an engine on GPUs, how fast it is and what it costs."""

    engine: EngineSettings  # with the KV blocks filled in
    tables: LatencyTables  # iteration time
    gpu: str = ""  # empty where nobody named it
    tp: int = 1  # tensor-parallel degree of a rank
    price: Price | None = None  # of one GPU; None where no source names one
    # source of the iteration time; None where the user gave its coefficients
    profile: Profile | None = None
    # memory budget; None where the user gave the KV blocks
    replica: Replica | None = None
    # of the engines' times, that the tables hold; None where the user gave the times
    quantile: float | None = None
    # prefix caching is on, and simulated without, since no request shares a prefix
    caching_unused: bool = False
    # parts of the iteration time of ranks that step together; None: it has one
    rank_tables: RankTables | None = None
    graph_sizes: tuple[int, ...] = ()  # of CUDA graphs ranks are padded to [tokens]
    ep: int = 1  # GPUs that hold different experts; 1: experts are cut by TP
    redundant_experts: int = 0  # copies of loaded experts, by EPLB
    all_to_all: str = ""  # ``--all2all-backend``; empty: vLLM's default, or none
    own_engine_times: bool = False  # the user's, and not those that fleets are held to
    # of a fleet that runs, which the times have; None: no backtest
    backtested: MeasuredFactor | None = None

    def __str__(self) -> str:
        return f"{self.gpu} × {self.layout.text}"

    @property
    def layout(self) -> Layout:
        """How ranks and experts share the GPUs."""
        ranks = self.engine.data_parallel_size
        stages = self.engine.pipeline_parallel_size
        return Layout(self.tp, ranks, self.ep, self.redundant_experts, stages)

    @property
    def gpus(self) -> int:
        """GPUs of a replica, of all its ranks and stages."""
        return self.layout.gpus

    @property
    def nodes_per_replica(self) -> int:
        """Nodes that a replica spans; 1 where their size is not known."""
        if self.replica is None:
            return 1
        return math.ceil(self.gpus / self.replica.gpu.max_gpus_per_node)

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the others of a plan: GPU type and layout."""
        return self.gpu, str(self.layout)

    @property
    def is_estimated(self) -> bool:
        """Whether there are doubts: it neither prunes nor replaces one without."""
        return bool(self.doubts)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why its count of GPUs or its cost may be far from what it will be.

        None where engines were measured and a price is asked.
        """
        found = []
        if self.backtested is not None:
            pass
        elif self.is_unbacked:
            found.append(self._unbacked)
        elif self.latency_source == "estimate":
            found.append("its latency is an estimate")
        elif self.is_unmeasured:
            found.append(UNMEASURED)
        elif is_too_wide(self.capacity_ratio):
            found.append(APART)
        if self.price is not None and self.price.is_guess:
            found.append("its price is a guess")
        return tuple(found)

    @property
    def sureness(self) -> str:
        """How its times are known: "measured", "checked" or "estimated".

        Measured by the user, held against load tests of real engines, or neither.
        """
        if self.is_estimated:
            return "estimated"
        profile = self.profile
        if self.backtested is not None:
            return "measured"
        if profile is None or profile.how == "measured" or profile.is_load_tested:
            return "measured"
        return "checked" if self.sweep_count else "estimated"

    @property
    def kv_dtype(self) -> str:
        """Type of the KV cache; empty where the user gave the KV blocks alone."""
        return "" if self.replica is None else self.replica.kv_dtype

    @property
    def latency_source(self) -> str:
        """How the iteration time was obtained: as ``Profile.how``, or given."""
        return "given" if self.profile is None else self.profile.how

    def layout_error(self, *, disaggregated: bool = False) -> LayoutError | None:
        """How far fleets of its layout were off, with its drafts; None where none was.

        ``disaggregated``: those of two pools, of which it decodes.
        """
        profile, drafts = self.profile, self.engine.speculation
        if profile is None or profile.kernels_from is None or self.own_engine_times:
            return None
        if self.backtested is not None:
            return None
        if drafts is not None and drafts.method != "mtp":
            return None
        return layout_error(
            profile.llm,
            self.layout,
            drafts=drafts is not None,
            disaggregated=disaggregated,
        )

    def capacity_quantiles(
        self, *, disaggregated: bool = False
    ) -> tuple[float, float, float] | None:
        """What such engines sustain of what is assumed: 10, 50, 90 %; None: unknown."""
        if self.backtested is not None and not disaggregated:
            return measured_ratio(self.tables, self.backtested)
        if self.profile is None or self.quantile is None:
            return None
        of_layout = self.layout_error(disaggregated=disaggregated)
        if disaggregated and of_layout is None:
            return None
        return capacity_quantiles(self.profile, self.quantile, of_layout)

    @cached_property
    def capacity_ratio(self) -> tuple[float, float] | None:
        """What 80 % of such engines sustain of what is assumed; None where unknown."""
        found = self.capacity_quantiles()
        return None if found is None else (found[0], found[2])

    @property
    def is_unbacked(self) -> bool:
        """Whether other families of LLMs alone tell its error, by a factor of two."""
        return self._left_out == "family" and self.is_unmeasured

    @property
    def _unbacked(self) -> str:
        """What no benchmark was of: the LLM, or this layout or engine of it."""
        if self.profile is None or self.latency_source != "calibrated":
            return UNBACKED
        if self.layout == Layout(self.tp):
            return f"no benchmark of {self.profile.llm} with this engine backs it"
        return (
            f"no benchmark of this layout of {self.profile.llm} backs it; its TP "
            "layouts were measured"
        )

    @property
    def is_measured(self) -> bool:
        """Whether engines of its LLM were measured on such GPUs, or its user did."""
        if self.profile is not None and self.profile.is_load_tested:
            return True
        return self._left_out == "group" and self.latency_source != "estimate"

    @property
    def _left_out(self) -> str:
        time = None if self.profile is None else self.profile.engine_time
        return "" if time is None or time.served is None else time.served.left_out

    @property
    def has_range(self) -> bool:
        """Whether engines of it tell a range of counts, and not those of others."""
        if self.backtested is not None:
            return True
        return self.latency_source != "estimate" and not self.is_unmeasured

    @property
    def cautious_share(self) -> float | None:
        """What nine of ten engines sustain at least, of what is assumed; None: is sure.

        Where its latency is in doubt: an estimate, an LLM without a benchmark, or
        engines that differ by a factor of two.
        """
        ratio = self.capacity_ratio
        is_sure = self.has_range and not is_too_wide(ratio)
        return None if is_sure or ratio is None else ratio[0]

    @property
    def cautious_slowdown(self) -> float | None:
        """Times of nine of ten engines at most, over those planned; None: is sure."""
        ends = None if self.cautious_share is None else self.slowdown_range
        return None if ends is None else ends[1]

    @property
    def slowdown_range(self) -> tuple[float, float] | None:
        """Times of 80 % of such engines over those planned; None: not known."""
        if (found := self.backtested) is not None:
            return found.low / found.value, found.high / found.value
        time = None if self.profile is None else self.profile.engine_time
        if time is None or time.served is None:
            return None
        planned = time.served.slowdown(self.quantile or 0.5)
        if self._left_out == "family":  # planned with the fit in place of the median
            planned /= time.served.slowdown(0.5)
        served = self.layout_error() or time.served
        low, high = (served.slowdown(share) / planned for share in (0.1, 0.9))
        return min(1.0, low), max(1.0, high)

    def slowed(self, factor: float) -> "Configuration":
        """Return it with a factor on the time of every iteration."""
        ranks = self.rank_tables
        return replace(
            self,
            tables=self.tables.scaled(factor),
            rank_tables=None if ranks is None else ranks.scaled(factor),
        )

    def own_time(self, factor: float, source: str) -> EngineTime:
        """Return the engine's time, with a factor on every iteration, as measured.

        Of its profile's kernels, also where the tables are at a quantile of engines.
        """
        assert self.profile is not None
        time = self.profile.engine_time or EngineTime(source=source)
        alone = time.model_copy(update={"served": None, "source": source})
        fitted = self.profile.model_copy(update={"engine_time": alone})
        planned = self.tables.decode_s[1] / fitted.tables(1, 1).decode_s[1]
        return alone.slowed(factor * float(planned))

    @property
    def is_unmeasured(self) -> bool:
        """No engine of its LLM was measured, and others differ by a factor of two."""
        if self.layout_error() is not None or self.is_measured or self.backtested:
            return False
        has_time = self.profile is not None and self.profile.engine_time is not None
        ratio = self.capacity_ratio
        return is_too_wide(ratio) or (has_time and ratio is None)

    @property
    def older_engine(self) -> tuple[EngineTime, float] | None:
        """The version before of its engine, and the share of its users that it has."""
        if self.profile is None or self.replica is None or self.rank_tables is not None:
            return None
        older = before(self.profile, self.replica.llm.experts > 0)
        if older is None or older.engine_time is None:
            return None
        limit_s = LEVELS[0] * alone_s(self.profile)
        share = users(older, limit_s) / max(users(self.profile, limit_s), 1.0)
        return older.engine_time, share

    @property
    def weight_bytes(self) -> float | None:
        """Weights of a replica, on all its GPUs; None where not known. [bytes]"""
        if self.replica is None:
            return None
        ranks = self.engine.data_parallel_size
        return self.tp * ranks * self.replica.weight_bytes_of_stages

    @property
    def cold_start(self) -> ColdStart | None:
        """Cold start of a replica by its parts, as assumed; None: weights not known."""
        if self.replica is None or self.weight_bytes is None:
            return None
        return cold_start(self.weight_bytes, self.replica.llm.parameter_count)

    @property
    def times_of(self) -> str:
        """Engine and version whose times are taken; empty where the user gave them."""
        return "" if self.profile is None else self.profile.times_of

    @property
    def sweep_count(self) -> int:
        """Sweeps of real engines that ``capacity_ratio`` was counted in; 0: none."""
        of_layout = self.layout_error()
        if self.backtested is not None:
            return 0
        if of_layout is not None:
            return of_layout.sweeps
        time = None if self.profile is None else self.profile.engine_time
        return 0 if time is None or time.served is None else time.served.sweeps

    @property
    def latency_error(self) -> dict[str, float]:
        """Mean relative error of the profile's fit, by phase where it is known."""
        errors = {} if self.profile is None else self.profile.errors_by_phase
        return {
            str(phase): mean
            for phase, record in errors.items()
            if (mean := record.held_out_mean_abs or record.mean_abs) is not None
        }

    @property
    def note(self) -> str:
        """One sentence on the source of the iteration time."""
        text = "Iteration time from --latency-ms."
        if self.profile is not None:
            text = self.profile.note()
        if (of := self.backtested) is not None:
            text += (
                f" Times {of.value:.3g} [{of.low:.3g}, {of.high:.3g}], by a backtest."
            )
        return text


def is_too_wide(ratio: tuple[float, float] | None) -> bool:
    """Return whether real engines differ by a factor of two or more."""
    return ratio is not None and ratio[1] >= WIDE * ratio[0]
