"""Hold the hours of planned days against simulations that start an hour before each.

    python examples/studies/peak_hours.py --days 50

Each day has two tenants and a peak, at a random hour and of a random height, on the
clock of a log. It is planned by default: every hour attains the target, each tenant by
its own requests. Then each window is simulated by itself, with the fleet that was
planned, from an hour before it on. Printed are the replicas, the windows, the worst of
them as planned and by itself, the largest difference of the two shares of a window,
and by how much the worst window is below its target with one replica fewer.
"""

import argparse
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.load.traffic import read_requests
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.results.metrics import requests_needed
from capplan.simulator.results.times import Simulation
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

HOUR_S = 3600.0
AFTER_S = 600.0
"""Simulated after a window too: what it counts still decodes. [s]"""
FIRST_S = 1_795_531_320.0
"""2026-11-24 14:42 UTC: the log begins in the middle of an hour. [s]"""


class Window(NamedTuple):
    """Hours of a log in which the requests of a class are judged."""

    request_class: int
    target: float
    begin_s: float
    end_s: float

    def share(self, simulation: Simulation, slo: Slo) -> float:
        """Return the share of its requests that meet their SLO."""
        times = simulation.table
        met = times.met(slo.columns(times.request_class, simulation.class_names))
        rows = (times.request_class == self.request_class) & self.holds(times.arrival_s)
        return float(np.logical_and.reduce(met)[rows].mean())

    def holds(self, arrival_s: np.ndarray, before_s: float = 0.0) -> np.ndarray:
        """Return which arrivals are in it, or in a time before or after it."""
        after_s = AFTER_S if before_s else 0.0
        return (arrival_s >= self.begin_s - before_s) & (
            arrival_s < self.end_s + after_s
        )


class Day(NamedTuple):
    """A day that was planned, and its windows as planned and by themselves."""

    best: Candidate
    windows: tuple[Window, ...]
    planned: np.ndarray  # share of each window, shape (windows,)
    alone: np.ndarray  # the same, simulated from an hour before
    fewer: np.ndarray  # the same as planned, with one replica fewer

    @property
    def targets(self) -> np.ndarray:
        """Return the target of each window."""
        return np.array([window.target for window in self.windows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=50, help="days to draw")
    parser.add_argument("--before-h", type=float, default=1, help="hours before")
    arguments = parser.parse_args()
    print("day | replicas | windows | worst | alone | largest difference | one fewer")
    print("---|---|---|---|---|---|---")
    for seed in range(arguments.days):
        day = planned_day(seed, HOUR_S * arguments.before_h)
        worst = int(np.argmin(day.planned - day.targets))
        largest = 100 * float(np.abs(day.planned - day.alone).max())
        fewer = 100 * float((day.fewer - day.targets).min())
        print(
            f"{seed} | {day.best.replica_count} | {len(day.windows)} | "
            f"{day.planned[worst]:.3%} | {day.alone[worst]:.3%} | "
            f"{largest:.3f} points | {fewer:+.2f} points",
            flush=True,
        )


def planned_day(seed: int, before_s: float = HOUR_S) -> Day:
    """Plan a random day, and simulate each window from a time before it on. [s]"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.csv"
        path.write_text("\n".join(csv_lines(np.random.default_rng(seed))) + "\n")
        settings = PlanSettings(
            llm="Llama-3.1-8B",
            gpu="H100-SXM",
            price="H100-SXM=2.79",
            latency_ms="60,0.6,0,2.4,0.0015",
            kv_blocks=4000,
            tp=1,
            trace=str(path),
            slo=["chat:ttft=6s,tpot=135ms", "vip:ttft=3s,tpot=120ms"],
            attainment={"all": 0.99, "vip": 0.995},
        )
        best = plan(settings).best
        trace, slo = read_requests(settings), settings.objective()
    assert best is not None
    assert best.run is not None
    assert slo is not None
    deployment, arrival_s = best.run.deployment, trace.arrival_s
    assert arrival_s is not None
    found = tuple(windows_of(trace, slo))
    whole = simulate(trace, deployment, slo=slo)
    less = deployment.with_replicas(max(1, deployment.replica_count - 1))
    fewer = simulate(trace, less, slo=slo)
    alone = []
    for window in found:
        near = trace.select(np.flatnonzero(window.holds(arrival_s, before_s)))
        alone.append(window.share(simulate(near, deployment, slo=slo), slo))
    return Day(
        best,
        found,
        np.array([window.share(whole, slo) for window in found]),
        np.array(alone),
        np.array([window.share(fewer, slo) for window in found]),
    )


def windows_of(trace: Trace, slo: Slo) -> Iterator[Window]:
    """Yield the windows of each class, by the words of the rule."""
    assert trace.arrival_s is not None
    assert trace.clock_s is not None
    into_s = trace.clock_s % HOUR_S
    hour = ((trace.arrival_s + into_s) // HOUR_S).astype(int)
    last = int(hour[-1])
    for group in slo.groups(trace.class_names):
        (index,) = group.indices
        needed, count, ends = requests_needed(group.target), 0, [0]
        for k in range(last + 1):
            count += int(((hour == k) & (trace.request_class == index)).sum())
            if count >= needed:
                ends.append(k + 1)
                count = 0
        ends = [*ends[: max(1, len(ends) - 1)], last + 1]
        edges_s = [HOUR_S * end - into_s for end in ends]
        for begin_s, end_s in pairwise(edges_s):
            yield Window(index, group.target, begin_s, end_s)


def csv_lines(rng: np.random.Generator) -> list[str]:
    """Return the lines of a CSV of a day: two tenants, a night and a peak."""
    minutes = np.arange(1440)
    at = rng.uniform(120, 1320)
    peak = rng.uniform(1, 6) * np.exp(-(((minutes - at) / rng.uniform(10, 60)) ** 2))
    day = 1.2 + np.sin((minutes - at) / 1440 * 2 * np.pi + rng.uniform(1, 2)) + peak
    rows = []
    for name, rate_per_s in (
        ("chat", rng.uniform(0.4, 1)),
        ("vip", rng.uniform(0.02, 0.3)),
    ):
        counts = rng.poisson(60 * rate_per_s * day)
        at_s = 60 * (np.repeat(minutes, counts) + rng.random(counts.sum()))
        prompts = rng.lognormal(5.0, 0.8, len(at_s)).clip(1, 3000).astype(int)
        outputs = rng.lognormal(4.3, 0.6, len(at_s)).clip(1, 800).astype(int)
        rows += zip(at_s, prompts, outputs, [name] * len(at_s), strict=True)
    lines = [
        f"{FIRST_S + at_s:.6f},{prompt},{output},{name}"
        for at_s, prompt, output, name in sorted(rows)
    ]
    return ["arrival_s,prompt_tokens,output_tokens,class", *lines]


if __name__ == "__main__":
    main()
