"""Print how close the lower bound comes to the best plan that was simulated.

    python examples/studies/bound_quality.py
    python examples/studies/bound_quality.py --requests 20000 --workload sharegpt \
        --tpot-ms 30

For each workload and TPOT limit: replicas of the bound, of the best simulated plan over
token budgets and of the engine's default budget, and where the gap between bound and
best plan comes from, in replicas:

- scheduling: best simulated plan less a fluid whose iterations all last the TPOT;
- escape: that fluid less the work of all requests (in the bound, prefill need not
  share iterations with decoding);
- missing: the costliest requests, which may miss their SLO;
- edges: work that the busiest window need not hold.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from capplan.bounds.asked import droppable_requests
from capplan.bounds.lower_bound import lower_bound
from capplan.bounds.prices import IterationPrices
from capplan.bounds.work import Requests, request_work
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.latency.catalog import find_profile
from capplan.latency.contract import LatencyTables
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.simulate import simulate
from capplan.workload.arrivals import with_arrivals
from capplan.workload.catalog import open_workload
from capplan.workload.synthesis import resample
from capplan.workload.trace import Trace

RATES = {"sharegpt": 1200.0, "azure-conv-like": 500.0}
BUDGETS = (8192, 2048, 1024, 512, 384)
ATTAINMENT = 0.99


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=RATES, nargs="+", default=[*RATES])
    parser.add_argument("--tpot-ms", type=float, nargs="+", default=[30.0, 15.0])
    parser.add_argument("--ttft-ms", type=float, default=1000.0)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--gpu", default="H100-SXM")
    parser.add_argument("--llm", default="Llama-3.1-8B")
    options = parser.parse_args()
    profile = find_profile(options.llm, options.gpu, 1)
    if profile is None:
        parser.error(f"no profile of {options.llm} on {options.gpu}")
    engine = EngineSettings()
    tables = profile.tables(engine.max_num_seqs, engine.max_num_batched_tokens)
    print(
        "| workload | TPOT | bound | best simulated | ratio "
        "| default simulated "
        "| scheduling | escape | missing | edges |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in options.workload:
        rng = np.random.default_rng(1)
        trace = resample(open_workload(name, seed=1), options.requests, rng)
        trace = with_arrivals(trace, RATES[name], "poisson", rng)
        for tpot_ms in options.tpot_ms:
            row(name, trace, tables, engine, options.ttft_ms / 1e3, tpot_ms / 1e3)


def row(
    name: str,
    trace: Trace,
    tables: LatencyTables,
    engine: EngineSettings,
    ttft_s: float,
    tpot_s: float,
) -> None:
    n = len(trace)
    slo = (np.full(n, ttft_s), np.full(n, tpot_s), np.full(n, np.inf))
    columns = (trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    names = ("arrival_s", "prompt_tokens", "output_tokens", "ttft_s", "tpot_s", "e2e_s")
    asked = dict(zip(names, (*columns, *slo), strict=True))
    bound = lower_bound(asked, ATTAINMENT, tables, engine, thorough=True)

    def run(budget: int, replicas: int) -> RequestTimes:
        tuned = replace(
            engine,
            max_num_batched_tokens=budget,
            max_num_seqs=min(engine.max_num_seqs, budget),
        )
        return simulate(
            trace, Deployment.of(Configuration(tuned, tables), replicas)
        ).times

    def meets(budget: int, replicas: int) -> bool:
        times = run(budget, replicas)
        met = (times.ttft_s <= ttft_s) & ~(times.tpot_s > tpot_s)
        return bool(met.mean() >= ATTAINMENT)

    fewest_of = {
        budget: fewest(lambda count, b=budget: meets(b, count), bound.replica_count)
        for budget in BUDGETS
    }
    best = min(fewest_of.values())
    requests = Requests(
        columns[0],
        *(np.asarray(c, float) for c in columns[1:]),
        np.zeros(n),
        *slo,
    )
    prices = IterationPrices._make(bound.prices)
    work_s = request_work(requests, prices, engine, bound.mix, bound.context_cap).work_s
    whole = work_s.sum() / trace.duration_s
    dropped = np.sort(work_s)[n - droppable_requests(n, ATTAINMENT) :].sum()
    load = bound.work_s / (bound.window_end_s - bound.window_start_s)
    fluid = fluid_replicas(trace, tables, engine, tpot_s)
    kept = whole - dropped / trace.duration_s
    print(
        f"| {name} {trace.rate_per_s:.0f}/s | {tpot_s * 1e3:.0f} ms "
        f"| {bound.replica_count} ({load:.1f}) | {best} | "
        f"{bound.replica_count / best:.2f} "
        f"| {fewest_of[BUDGETS[0]]} | "
        f"{best - fluid:.1f} | {fluid - whole:.1f} | {whole - kept:.1f} "
        f"| {kept - load:.1f} |",
        flush=True,
    )


def fewest(meets: Callable[[int], bool], low: int) -> int:
    """Return the fewest replicas from ``low`` on that meet the SLO."""
    high = max(2 * low, 4)
    while not meets(high):
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle + 1, high)
    return low


def fluid_replicas(
    trace: Trace, tables: LatencyTables, engine: EngineSettings, tpot_s: float
) -> float:
    """Return the replicas of a fluid whose iterations all carry the same mix.

    Prefill is spread evenly over iterations, each as long as the TPOT or shorter.
    """
    steps = trace.output_tokens - 1.0
    prompt = float(trace.prompt_tokens.sum() / steps.sum())
    context = float((steps * (trace.prompt_tokens + steps / 2)).sum() / steps.sum())
    quadratic = float((trace.prompt_tokens**2.0).sum() / 2 / steps.sum())
    b = np.arange(1, engine.max_num_seqs + 1)
    tokens = np.minimum(np.round(b * (1 + prompt)), engine.max_num_batched_tokens)
    time_s = tables.fused_s[tokens.astype(int)] + tables.fused_decode_s[b]
    time_s = time_s + tables.fused_context_s[b] * b * context
    time_s = time_s + tables.attention_s * quadratic * b
    fits = (time_s <= tpot_s) & (b * context <= engine.kv_capacity_tokens)
    fits &= b * (1 + prompt) <= engine.max_num_batched_tokens
    most = int(np.flatnonzero(fits).max())
    per_step_s = time_s[most] / b[most]
    return float(steps.sum() * per_step_s / trace.duration_s)


if __name__ == "__main__":
    main()
