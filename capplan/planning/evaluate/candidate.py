"""One GPU type and layout: the fewest replicas of it, what they cost, and why not."""

import math
from dataclasses import dataclass

from capplan.bounds.lower_bound import Bound
from capplan.deployment.configuration import Configuration, is_too_wide
from capplan.deployment.pools import Counts, Deployment, Pool
from capplan.fleet.price import Price
from capplan.llm.layout import Layout
from capplan.planning.configure.launch import Launch
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.money.cost import Cost, paid_price, usd_per_month

Degrees = tuple[int, ...]


def degrees(layout: Layout) -> Degrees:
    """Return what orders layouts of one GPU type: fewer GPUs, then less apart."""
    return layout.gpus, layout.dp, layout.ep


@dataclass(frozen=True, eq=False)
class PoolPlan:
    """One of two pools of a candidate: replicas for prompts, or for decoding."""

    role: str  # PREFILL or DECODE; empty: both
    configuration: Configuration
    bound: Bound  # on its replicas, by its part of the work alone
    bound_sample: int = 0  # as of a candidate
    replica_count: int | None = None  # None unless feasible
    busy_share: float | None = None  # of its replicas' time; None unless simulated
    launch: Launch | None = None  # how to start one of its replicas
    held: int = 0  # replicas below which more arrives than is completed; 0: unknown

    @property
    def least(self) -> Pool:
        """The fewest of its replicas that its bound and its load allow."""
        count = max(1, self.bound.replica_count, self.held)
        return Pool(self.configuration, count)

    @property
    def gpu(self) -> str:
        """Its GPU type."""
        return self.configuration.gpu

    @property
    def key(self) -> tuple[str, str]:
        """GPU type and layout."""
        return self.configuration.key

    @property
    def tp(self) -> int:
        """Its tensor-parallel degree."""
        return self.configuration.tp

    @property
    def gpu_count(self) -> int | None:
        """GPUs of its replicas; None unless feasible."""
        if self.replica_count is None:
            return None
        return self.replica_count * self.configuration.gpus

    @property
    def lower_bound_gpu_count(self) -> int:
        """No scheduler meets the SLO with fewer GPUs in this pool."""
        return self.bound.replica_count * self.configuration.gpus

    @property
    def layout(self) -> Layout:
        """How ranks and experts share the GPUs of a replica."""
        return self.configuration.layout

    @property
    def degrees(self) -> str:
        """Its degrees in short, the TP degree first."""
        return self.layout.degrees


@dataclass(frozen=True, eq=False, repr=False)
class Candidate:
    """One GPU type and layout of a replica, and the fewest replicas of it.

    Where prefill and decode are disaggregated, two degrees and the cheapest two counts.
    """

    gpu: str  # of two pools that of decoding
    tp: int  # tensor-parallel degree of a rank; of two pools that of decoding
    status: str  # "feasible", "infeasible", "pruned" or "interrupted"
    # as simulated, where it was; None where there is none: the LLM does not fit, say
    configuration: Configuration | None = None
    run: Run | None = None  # the fewest that meet the SLO; None unless feasible
    cost: Cost | None = None  # of its pools; None unless feasible and priced
    decided: bool = False  # whether the samples show that the run meets the SLO
    coarse: bool = False  # the count is found to 10 %: it is no rival to the best
    cut_short: bool = False  # its search was interrupted
    # replicas with times that nine of ten engines stay within; None: not in doubt
    cautious_count: int | None = None
    cautious_fails: bool = False  # none does with these times
    # smaller counts, of each pool, that the samples do not tell from the target
    close: tuple[Counts, ...] = ()
    # keeps it from being smaller: "TTFT", "TPOT", "E2E", "KV" or "none"; None unless
    # feasible
    binding: str | None = None
    # SLO that fails unbatched and by how much, or what does not fit
    infeasible_reason: str | None = None
    # the bound that shows that it cannot win, or how far it came
    pruned_reason: str | None = None
    # all counts simulated, ascending; the one below the run fails
    probes: tuple[Probe, ...] = ()
    bound: Bound | None = None  # with its witness window; None where none was computed
    # sample of drawn arrivals whose bound it is, the smallest of several; -1: the mix
    bound_sample: int = 0
    held: int = 0  # as of a pool
    # how to start a replica; None unless feasible, or where no LLM is named
    launch: Launch | None = None
    pools: tuple[PoolPlan, ...] = ()  # for prompts and for decoding; none: one pool
    layout: Layout | None = None  # None: TP alone

    @classmethod
    def of(cls, configuration: Configuration, status: str) -> "Candidate":
        """Return a candidate of a configuration without a run."""
        gpu, layout = configuration.gpu, configuration.layout
        other = None if layout == Layout(layout.tp) else layout
        return cls(gpu, layout.tp, status, configuration, layout=other)

    def __repr__(self) -> str:
        """Return it in a line: its fields hold all that was simulated."""
        if self.replica_count is None:
            return f"<{self}: {self.status}>"
        return f"<{self}: {self.replica_count} replicas, {self.gpu_count} GPUs>"

    def __str__(self) -> str:
        if self.pools:
            prefill, decode = (pool.layout.text for pool in self.pools)
            if len(self.gpus) > 1:
                first, second = self.gpus
                return f"prefill {first} × {prefill}, decode {second} × {decode}"
            return f"{self.gpu} × prefill {prefill}, decode {decode}"
        return f"{self.gpu} × {self.layout_text}"

    @property
    def gpus(self) -> tuple[str, ...]:
        """Its GPU types, that of the replicas for prompts first."""
        return tuple(dict.fromkeys(pool.gpu for pool in self.pools)) or (self.gpu,)

    @property
    def all_pools(self) -> tuple[PoolPlan, ...]:
        """Its pools; of one pool that one."""
        if self.pools or self.configuration is None or self.bound is None:
            return self.pools
        of = self.configuration, self.bound, self.bound_sample, self.replica_count
        return (PoolPlan("", *of, held=self.held),)

    @property
    def least(self) -> tuple[Pool, ...]:
        """The smallest fleet that is not ruled out; empty without a bound."""
        return tuple(pool.least for pool in self.all_pools)

    @property
    def too_close(self) -> tuple[int, ...]:
        """Smaller counts that the samples do not tell from the target; of one pool."""
        return () if self.pools else tuple(count for (count,) in self.close)

    @property
    def layout_text(self) -> str:
        """How ranks and experts share the GPUs of a replica; of two pools decoding."""
        return self._layout.text

    @property
    def _layout(self) -> Layout:
        return self.layout or Layout(self.tp)

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others: GPU type and layout."""
        return self.gpu, str(self._layout)

    @property
    def gpus_per_replica(self) -> int | None:
        """GPUs of all ranks of a replica; None where pools have their own."""
        return None if self.pools else self._layout.gpus

    @property
    def place(self) -> Degrees:
        """Its place among equally good ones."""
        return degrees(self._layout)

    @property
    def only_tp(self) -> int | None:
        """Its tensor-parallel degree; None where pools have their own."""
        return None if self.pools else self.tp

    @property
    def layout_name(self) -> str | None:
        """Its layout as profiles are named by; None where pools have their own."""
        return None if self.pools else str(self._layout)

    @property
    def degrees(self) -> str:
        """Its degrees in short, the TP degree first."""
        return self._layout.degrees

    @property
    def is_in_doubt(self) -> bool:
        """Whether its count or cost may be far off: then it replaces none without."""
        return self.configuration is not None and self.configuration.is_estimated

    @property
    def replica_count(self) -> int | None:
        """Fewest replicas that meet the SLO; None unless feasible."""
        return None if self.run is None else self.run.replica_count

    @property
    def capacity_ratio(self) -> tuple[float, float] | None:
        """What 80 % of such fleets sustain of what is assumed; None where unknown."""
        if self.pools and self.run is not None:
            found = self.run.configuration.capacity_quantiles(disaggregated=True)
            return None if found is None else (found[0], found[2])
        if self.pools or self.configuration is None:
            return None
        return self.configuration.capacity_ratio

    @property
    def cautious(self) -> Deployment | None:
        """The fleet that nine of ten engines do with; None: no doubt, or none does."""
        if self.run is None or self.cautious_fails:
            return None
        if self.cautious_count is not None:
            return self.run.deployment.with_replicas(self.cautious_count)
        pools = self.run.deployment.pools
        shares = [pool.configuration.cautious_share for pool in pools]
        if self.pools and (served := self.capacity_ratio) is not None:
            shares = [served[0] if is_too_wide(served) else None for _ in pools]
        if not any(shares):
            return None
        counts = [
            max(pool.replica_count, math.ceil(pool.replica_count / (share or 1) - 1e-9))
            for pool, share in zip(pools, shares, strict=True)
        ]
        return self.run.deployment.with_replicas(*counts)

    @property
    def is_to_be_tested(self) -> bool:
        """Whether a load test may change its count by much."""
        return self.cautious is not None or self.cautious_fails

    @property
    def cautious_replica_count(self) -> int | None:
        """Replicas of :attr:`cautious`, of all its pools."""
        return None if self.cautious is None else self.cautious.replica_count

    @property
    def cautious_usd_per_month(self) -> float | None:
        """Bill of :attr:`cautious`; None without it or a price. [$]"""
        return None if self.cautious is None else usd_per_month(self.cautious.pools)

    @property
    def sweep_count(self) -> int | None:
        """Sweeps of engines that ``capacity_ratio`` was counted in, or fleets; 0: none.

        None where there is no configuration.
        """
        if self.pools and self.run is not None:
            served = self.run.configuration.layout_error(disaggregated=True)
            return 0 if served is None else served.sweeps
        return None if self.configuration is None else self.configuration.sweep_count

    @property
    def sureness(self) -> str:
        """As of its configuration; only served fleets of two pools check two pools."""
        if self.configuration is None:
            return "estimated"
        word = self.configuration.sureness
        is_checked = not self.pools or bool(self.sweep_count)
        return word if is_checked or word != "checked" else "estimated"

    @property
    def engine_fleets(self) -> tuple[Deployment, Deployment] | None:
        """The smallest and the largest fleet that 80 % of such engines need.

        With the planned one: a plan on the slow side may need more than most engines.
        The largest is the cautious one, where there is one. None where unknown.
        """
        ratio, configuration = self.capacity_ratio, self.configuration
        if self.run is None or ratio is None or configuration is None:
            return None
        if self.cautious_fails or not (self.pools or configuration.has_range):
            return None
        low, high = ratio
        counts = [pool.replica_count for pool in self.run.deployment.pools]
        # A hair below: 4 / 0.8 is 5 replicas and not 6.
        fewest, most = (
            [max(1, math.ceil(count / share - 1e-9)) for count in counts]
            for share in (high, low)
        )
        return (
            self.run.deployment.with_replicas(*map(min, fewest, counts)),
            self.cautious or self.run.deployment.with_replicas(*map(max, most, counts)),
        )

    @property
    def replica_count_range(self) -> tuple[int, int] | None:
        """Replicas that 80 % of such engines need, (low, high); None where unknown.

        Of two pools see ``gpu_count_range``.
        """
        fleets = self.engine_fleets
        if self.pools or fleets is None:
            return None
        return fleets[0].replica_count, fleets[1].replica_count

    @property
    def gpu_count_range(self) -> tuple[int, int] | None:
        """GPUs that 80 % of such engines need, (low, high); None where unknown."""
        fleets = self.engine_fleets
        return None if fleets is None else (fleets[0].gpu_count, fleets[1].gpu_count)

    @property
    def gpu_count(self) -> int | None:
        """GPUs of these replicas; None unless feasible."""
        return None if self.run is None else self.run.deployment.gpu_count

    @property
    def price(self) -> Price | None:
        """That of the largest nodes bought, with all that may be; None without one."""
        if self.run is not None:
            return paid_price(self.run.deployment.pools)
        return None if self.configuration is None else self.configuration.price

    @property
    def usd_per_month_range(self) -> tuple[float, float] | None:
        """Bills of the fewest and most replicas that 80 % of engines need. [$]"""
        if self.cost is None or self.engine_fleets is None:
            return None
        low, high = (usd_per_month(each.pools) for each in self.engine_fleets)
        return low or 0.0, high or 0.0

    @property
    def lower_bound_gpu_count(self) -> int | None:
        """No scheduler meets the SLO with fewer GPUs; None without a bound."""
        counts = [pool.lower_bound_gpu_count for pool in self.all_pools]
        return sum(counts) if counts else None

    @property
    def cached_share(self) -> float | None:
        """Share of the prompt tokens found in the prefix cache."""
        totals = None if self.run is None else self.run.simulation.totals
        return None if totals is None else totals.cached_tokens / totals.prompt_tokens


@dataclass(frozen=True)
class Disaggregation:
    """What disaggregated prefill and decode are worth, by the best of each kind."""

    pays: bool  # it costs less; without prices, it takes fewer GPUs
    # by which the best of two pools is below the best of one; negative: above it
    gpu_count_saved: int | None = None  # None where one of them is infeasible
    usd_per_h_saved: float | None = None  # None without a price too [$]
