"""Regenerate the figures of Aladdin's sections 4 to 6 that placement can reproduce.

    python examples/studies/aladdin_figures.py

Figure 3's example; Figure 13, scheduling time; Eq. 7 and Eq. 8. Fleets serve Poisson
arrivals of ShareGPT lengths in ``capplan.placement.replay``: heartbeats of 0.2 s,
iteration times of the worker's profile. A fleet is large enough when the required share
of requests meets the SLO and KV never overflows. The other figures are in
``papers_aladdin.py``.
"""

import argparse
import math
import time
from dataclasses import dataclass, replace

import numpy as np

from capplan.fleet.catalog import gpu
from capplan.latency.catalog import find_profile
from capplan.llm.catalog import llm
from capplan.placement.demand_law import fit_demand_law
from capplan.placement.heuristics.blind import Route
from capplan.placement.kv_profile import kv_at
from capplan.placement.problem import PlacementProblem
from capplan.placement.replay import Replay
from capplan.placement.replica import PlacementReplica, replica_of_tables
from capplan.workload.catalog import shipped_workload
from capplan.workload.predictors import predict
from capplan.workload.trace import Trace

HEARTBEAT_S = 0.2
THETAS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True)
class Setting:
    """A row of Aladdin's Table 2 and the worker its Table 3 finds best."""

    llm: str
    best_tp: int
    ttft_s: float
    tpot_s: float


SETTINGS = (Setting("Llama-2-70B", 2, 1.6, 0.075), Setting("Llama-2-7B", 1, 0.4, 0.015))


def worker(name: str, tp: int) -> PlacementReplica:
    """Return an A100-80GB worker: shipped profile, KV in 90 % less the weights."""
    model, card = llm(name), gpu("A100-80GB-SXM")
    profile = find_profile(model.name, card.name, tp)
    assert profile is not None
    kv_bytes = 0.9 * tp * card.memory_bytes - model.weight_bytes()
    tokens = int(kv_bytes // model.kv_bytes_per_token())
    return replica_of_tables(profile.tables(256, 4096), tokens, max_batch=256)


def arrivals(rate_per_s: float, span_s: float, seed: int) -> Trace:
    """Draw ShareGPT requests of at most 2048 output tokens, Poisson in time."""
    rng = np.random.default_rng(seed)
    trace = shipped_workload("sharegpt")
    fits = (trace.prompt_tokens <= 2048) & (trace.output_tokens <= 2048)
    rows = rng.choice(np.flatnonzero(fits), int(rate_per_s * span_s))
    return Trace(
        trace.prompt_tokens[rows],
        trace.output_tokens[rows],
        np.cumsum(rng.exponential(1 / rate_per_s, len(rows))),
    )


class Fleet(Replay):
    """A fleet that best fit lets grow, or a fixed one behind a router."""

    def __init__(
        self,
        template: PlacementReplica,
        trace: Trace,
        setting: Setting,
        theta: float = 0.9,
        route: Route | None = None,
        replicas: int = 0,
        decode_only: bool = False,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """Serve the trace; a router is blind to the constraints.

        ``decode_only``: prefill is done elsewhere, as for the decode pool of
        split-phase serving.
        """
        # The wait until the heartbeat comes off the TTFT.
        slo_s = setting.ttft_s - heartbeat_s, setting.tpot_s
        super().__init__(template, trace, slo_s, theta=theta)
        self._fixed = None if route is None else (route, replicas)
        self._decode_only = decode_only
        self.kv_overflows = 0  # runs of iterations with more KV than fits
        used, placing_s, placed = [], [], []
        for now_s, new in self.heartbeats(heartbeat_s):
            start = time.perf_counter()
            self.place(new, now_s)
            placing_s.append(time.perf_counter() - start)
            used.append(self.advance(now_s, heartbeat_s))
            placed.append(len(new))
        self.peak_replicas = max(used)
        self.placing_s, self.placed = np.array(placing_s), np.array(placed)
        attained = decode_only | (self.first_s - self.arrival_s <= setting.ttft_s)
        # ATGT: a one-token output has no time between tokens, and attains it.
        tokens = np.where(self.output > 1, self.output - 1, np.nan)
        tpot_s = (self.end_s - self.first_s) / tokens
        attained &= np.isnan(tpot_s) | (tpot_s <= setting.tpot_s * (1 + 1e-9))
        self.attainment = float(attained.mean())

    def place(self, new: np.ndarray, now_s: float) -> PlacementProblem | None:
        if self._fixed is None:
            return super().place(new, now_s)
        route, replicas = self._fixed
        counts = np.bincount(self.replica[self.running()], minlength=replicas)
        self.replica[new] = route(counts, len(new))
        return None

    def lengths(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        generated, predicted = super().lengths(rows)
        if self._decode_only:
            # With its prefill done elsewhere it has its first token, but no replica.
            return np.maximum(generated, 1), np.maximum(predicted, 2)
        return generated, predicted

    def prefill_s(self, rows: np.ndarray) -> float:
        return 0.0 if self._decode_only else super().prefill_s(rows)

    def decode_s(self, batch: int, context: float) -> tuple[float, float]:
        self.kv_overflows += context > self.template.kv_capacity_tokens
        return super().decode_s(batch, context)


def enough(run: Fleet, attainment: float) -> bool:
    return run.attainment >= attainment and run.kv_overflows == 0


def served(
    template: PlacementReplica,
    trace: Trace,
    setting: Setting,
    predictor: str = "oracle",
    **how,
) -> Fleet:
    predicted = predict(predictor, trace, None, np.random.default_rng(0))
    known = replace(trace, predicted_output_tokens=predicted)
    return Fleet(template, known, setting, **how)


def best_fit(
    template: PlacementReplica, trace: Trace, setting: Setting, share: float, **how
) -> tuple[int, float] | None:
    """Return the fewest workers over all theta, and that theta."""
    counts = []
    for theta in THETAS:
        run = served(template, trace, setting, theta=theta, **how)
        if enough(run, share):
            counts.append((run.peak_replicas, theta))
    return min(counts, default=None)


def figure_3() -> None:
    prompt, output = np.array([4, 1, 4, 1]), np.array([1, 4, 1, 4])
    print("Figure 3: four requests on two workers with KV for 9 tokens")
    for name, rows in (("shortest queue", [0, 2]), ("one of each kind", [0, 1])):
        kv = kv_at(prompt[rows], output[rows], np.unique(output[rows]))
        peak = kv.sum(axis=0).max()
        print(f"  {name:18} peak KV {peak} tokens")


def rate_within(
    rate_per_s: np.ndarray, scheduling_s: np.ndarray, limit_s: float
) -> float:
    """Return r(T_s), the highest rate whose arrivals are placed within the limit.

    Best fit is O(n log n) (section 6.5): the time is fitted as a multiple of
    rate · log2(rate + 1).
    """
    work = rate_per_s * np.log2(rate_per_s + 1)
    slope = float((work * scheduling_s).sum() / (work * work).sum())
    low, high = 0.0, 1.0
    while slope * high * math.log2(high + 1) <= limit_s:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        within = slope * middle * math.log2(middle + 1) <= limit_s
        low, high = (middle, high) if within else (low, middle)
    return low


def group_requests(
    rate_per_s: float, workers: int, error: float, rate_limit_per_s: float
) -> tuple[int, int, bool]:
    """Return groups, workers of each, and whether these suffice (appendix A, Eq. 8).

    A group needs at least 1/(2e) workers so that at most a share e of the workers is
    lost, and at most the rate r(T_s) that one scheduler places in time. Eq. 8 prints
    the first limit for the rate r_i; the text derives it for workers.
    """
    count = max(math.ceil(rate_per_s / rate_limit_per_s - 1e-9), 1)
    least = math.ceil(1 / (2 * error) - 1e-9)
    return count, workers // count, count == 1 or workers // count >= least


def figure_13(rates: list[float], span_s: float) -> None:
    setting = SETTINGS[0]
    template = worker(setting.llm, setting.best_tp)
    print("\nFigure 13: time to place the arrivals of one second")
    taken = []
    for rate in rates:
        run = served(template, arrivals(rate, span_s, seed=1), setting)
        busy = run.placed > 0
        per_s = run.placing_s[busy].sum() / run.placed.sum() * rate
        taken.append(per_s)
        print(
            f"{rate:>6g} requests/s: {per_s * 1e3:.1f} ms, slowest heartbeat "
            f"{run.placing_s.max() * 1e3:.1f} ms"
        )
    limit = rate_within(np.array(rates), np.array(taken), 0.05)
    count, workers, _ = group_requests(1000, 400, 0.1, limit)
    extra = 0.0 if count == 1 else count / 800  # half of the groups need one more
    print(
        f"  50 ms suffice for {limit:,.0f} requests/s; Eq. 8: 1,000 requests/s on 400 "
        f"workers in {count} groups of {workers}, at most {extra:.1%} more workers"
    )


def equation_7(rates: list[float], span_s: float, attainment: float) -> None:
    print("\nEq. 7: workers of Llama-2-70B against the rate, best fit")
    setting = SETTINGS[0]
    best = worker(setting.llm, setting.best_tp)
    found = [
        (rate, best_fit(best, arrivals(rate, span_s, seed=1), setting, attainment))
        for rate in rates
    ]
    points = [(rate, fit[0]) for rate, fit in found if fit is not None]
    if len(points) < 4:
        print("  too few rates at which any theta meets the SLO")
        return
    rate, workers = np.array(points, float).T
    law = fit_demand_law(rate, workers)
    low, high = law.workers_per_rate_interval
    print(
        f"  workers = ⌈{law.workers_per_rate:.3f} · rate + {law.workers_fixed:.2f}⌉ "
        f"from R = {law.linear_from_per_s:g} requests/s on; k5 in [{low:.3f}, "
        f"{high:.3f}] (95 %), farthest count {law.residual_workers:.2f} workers "
        "off the line"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="2,5,10,15,20,25")
    parser.add_argument("--seconds", type=float, default=60.0, help="span of arrivals")
    parser.add_argument("--attainment", type=float, default=0.99)
    arguments = parser.parse_args()
    rates = [float(text) for text in arguments.rates.split(",")]
    figure_3()
    figure_13(rates, arguments.seconds)
    equation_7(rates, arguments.seconds, arguments.attainment)


if __name__ == "__main__":
    main()
