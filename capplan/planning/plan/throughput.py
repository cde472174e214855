"""What a planned fleet serves, beside what the same fleet could."""

import math
from dataclasses import dataclass

from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.planning.evaluate.run import Run
from capplan.planning.load.traffic_over_time import Traffic

PLANNED = "planned traffic"
BUSIEST = "busiest window"
WITHIN_SLO = "most within the SLO"
SATURATED = "maximum throughput"


@dataclass(frozen=True)
class Throughput:
    """A rate of requests, the tokens in them, and how it compares with the planned."""

    what: str
    rate_per_s: float  # [requests/s]
    prompt_tokens_per_s: float  # [tokens/s]
    output_tokens_per_s: float  # [tokens/s]
    # the planned traffic over this one, by requests; None of the planned and busiest
    used_share: float | None = None
    width_s: float | None = None  # of the busiest window [s]


def throughput(
    run: Run, load: ReplicaLoad | None, traffic: Traffic | None
) -> tuple[Throughput, ...]:
    """Return what is served, and what could be of the same mix of requests.

    Within the SLO: requests at one rate by a Poisson process, all of which attain the
    target (``replica_load``). Saturated: what the replicas complete while requests
    wait at all times, the rate that the utilisation is reckoned against.
    """
    totals = run.simulation.totals
    rate_per_s = totals.rate_per_s
    if not (math.isfinite(rate_per_s) and rate_per_s > 0):
        return ()
    prompts, outputs = totals.mean_prompt_tokens, totals.mean_output_tokens

    def row(what: str, at_per_s: float, *, could: bool) -> Throughput:
        share = rate_per_s / at_per_s if could else None
        return Throughput(what, at_per_s, prompts * at_per_s, outputs * at_per_s, share)

    rows = [row(PLANNED, rate_per_s, could=False)]
    if traffic is not None:
        at = traffic.busiest
        rows.append(
            Throughput(
                BUSIEST,
                float(traffic.rate_per_s[at]),
                float(traffic.prompt_tokens_per_s[at]),
                float(traffic.output_tokens_per_s[at]),
                width_s=traffic.width_s,
            )
        )
    if load is not None:
        rows.append(row(WITHIN_SLO, load.rate_per_s * run.replica_count, could=True))
    used = run.judgement.steadiness.known_utilisation
    if used:
        rows.append(row(SATURATED, rate_per_s / used, could=True))
    return tuple(rows)
