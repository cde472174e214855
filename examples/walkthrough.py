"""Questions that one asks in a notebook, answered from Python.

Run it as it is, or cell by cell (`# %%`) in an editor that knows cells:

    python examples/walkthrough.py
"""

# %% How many GPUs, at what cost? Arguments are the flags of `capplan plan`.
from pathlib import Path

import capplan

requests = Path(__file__).parent / "requests.csv"
asked = {
    "trace": requests,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM,L40S",
    "tp": "1",
    "slo": ("chat:ttft=2s,tpot=60ms", "code:e2e=10s"),
    "attainment": "0.95,code=0.9",
    "price": {"H100-SXM": "2.49", "L40S": "1.86"},
}
plan = capplan.plan(**asked)
best = plan.best
pool, usd = best.run.deployment.pool, best.cost.usd_per_month
print(f"{pool} of {best.gpu}: ${usd:,.0f} a month")

# %% Why not fewer? Each simulated count, and the bound that no scheduler beats.
for probe in best.probes:
    found = {True: "enough", False: "too few", None: "too close to call"}[probe.meets]
    print(f"{probe.replica_count}: {probe.slo_attainment:.2%} in time, {found}")
print(f"no scheduler does with fewer than {best.bound.replica_count}")

# %% What does each class get?
for row in best.run.judgement.classes:
    p99_s = row.ttft_p99_s
    print(f"{row.class_name}: {row.slo_attainment:.2%} in time, p99 TTFT {p99_s:.2f} s")

# %% What if the same requests come twice and four times as fast?
for rate in (20, 40):
    grown = capplan.plan(**asked, rate=rate).best
    usd = grown.cost.usd_per_month
    print(f"{rate} requests/s: {grown.run.deployment.pool}, ${usd:,.0f} a month")

# %% How full is the fleet? Anything simulated is a table: one row a request.
run = capplan.simulate(
    **{name: asked[name] for name in ("trace", "llm", "slo", "attainment")},
    gpu=best.gpu,
    tp=str(best.tp),
    replicas=best.replica_count,
)
times = run.simulation.times
slowest = times.ttft_s.argmax()
print(
    f"busy {run.simulation.busy_share:.0%} of the time; the slowest first token took "
    f"{times.ttft_s[slowest]:.2f} s, of a prompt of {times.prompt_tokens[slowest]:,}"
)
