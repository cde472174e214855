"""What a simulated number of replicas showed."""

from dataclasses import dataclass, replace

from capplan.deployment.pools import Counts
from capplan.planning.evaluate.classes import ClassResult, few
from capplan.planning.evaluate.of_sessions import SessionsServed
from capplan.planning.evaluate.run import Run
from capplan.planning.load.worst_windows import TimeWindow


@dataclass(frozen=True)
class Probe:
    """One simulated replica count of a candidate."""

    replica_count: int
    slo_attainment: float  # share of the counted requests
    slo_attainment_interval: tuple[float, float]  # 95 % (low, high)
    ttft_p99_s: float  # [s]
    tpot_p99_s: float  # [s]
    e2e_p99_s: float  # [s]
    meets: bool | None  # None where the samples are too close to call
    stable: bool  # the backlog does not grow over the trace, nor while it lasts
    missing: tuple[str, ...] = ()  # classes below their target
    sample_count: int = 1  # independent samples simulated
    # arrivals over the saturated throughput; None: unknown
    utilisation: float | None = None
    # that of a trace's own arrivals until the last: from 1 on they leave a backlog
    sustained_utilisation: float | None = None
    # where there are several; of many those that miss
    classes: tuple[ClassResult, ...] = ()
    windows: tuple[TimeWindow, ...] = ()  # of a trace's own arrivals
    pool_replica_counts: tuple[int, ...] = ()  # of each pool, where there are two
    sessions: SessionsServed | None = None  # of conversations

    @property
    def users_per_replica(self) -> float:
        """Sessions that run on a replica in the mean; 0 without any."""
        running = 0.0 if self.sessions is None else self.sessions.running
        return running / self.replica_count

    @property
    def counts(self) -> Counts:
        """Replicas of each pool."""
        return self.pool_replica_counts or (self.replica_count,)

    @property
    def attained(self) -> str:
        """Share of the requests in time, where a window misses of that."""
        for row in self.windows:
            if row.is_judged and not row.meets:
                share = f"{100 * row.slo_attainment:.2f} %"
                return f"{share} of requests in time in the worst window ({row.when})"
        return f"{100 * self.slo_attainment:.2f} % of requests in time"

    @classmethod
    def of(cls, run: Run) -> "Probe":
        """Return the row of a judged run."""
        judgement, counts = run.judgement, run.deployment.counts
        assert judgement.attainment is not None
        told = few(judgement.classes) or few(
            tuple(x for x in judgement.classes if x.class_name in judgement.missing)
        )
        return cls(
            replica_count=run.replica_count,
            slo_attainment=judgement.attainment.share,
            slo_attainment_interval=judgement.attainment.interval,
            ttft_p99_s=judgement.p99_s("ttft_s"),
            tpot_p99_s=judgement.p99_s("tpot_s"),
            e2e_p99_s=judgement.p99_s("e2e_s"),
            meets=judgement.meets,
            stable=judgement.stable,
            missing=judgement.missing,
            sample_count=judgement.sample_count,
            utilisation=judgement.steadiness.known_utilisation,
            sustained_utilisation=judgement.steadiness.known_sustained,
            classes=tuple(replace(row, tails_s={}) for row in told),
            windows=judgement.in_windows.worst,
            pool_replica_counts=counts if len(counts) > 1 else (),
            sessions=run.sessions,
        )
