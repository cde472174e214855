"""DeepSeek-R1 as served with disaggregated prefill and decode, and as simulated.

    python examples/studies/served_pools.py deepseek_r1.csv \
        --docs docs/internals/latency.md

As ``served_loops.py``, of the runs of two pools whose workers are told: both pools as
they were, with vLLM V1's scheduler and hand-off nixl whoever served them. The users of
a run ask for a few requests each, one after the other. Nothing is fitted. What is
compared are all tokens per second and GPU of both pools, and the TPOT.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import served_loops
from scipy.stats import kendalltau
from served_layouts import (
    ENGINES,
    GPUS,
    LLMS,
    drafts,
    error,
    kind_of,
    layout_of,
    measured_tpot_s,
    tables_of,
    tell,
)

from capplan.deployment.pools import Deployment, Pool
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.llm.catalog import llm
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from capplan.workload.users import Users

MARK = "<!-- served pools -->"
REQUESTS = 4  # of each user
FEWEST = 40
LEAST_ORDERED = 5
SAME = ["hardware", "framework", "precision", "spec_method", "isl", "osl"]
SAME += [
    f"{pool}_{name}"
    for pool in ("prefill", "decode")
    for name in ("tp", "ep", "dp_attention", "num_workers")
]


def main() -> None:
    tell(__doc__, MARK, simulated_runs, of_orders, of_table=table)


def of_orders(runs: pd.DataFrame) -> str:
    """Return how fleets of one and of two pools are ordered, as served and here."""
    columns = ["measured", "simulated"]
    apart = simulated_runs(runs)
    apart["simulated"] = apart.tput_per_gpu / apart.tokens
    apart["measured"] = apart.tput_per_gpu
    together = served_loops.simulated_runs(runs)
    share = (together.isl + together.osl) / together.osl
    together["simulated"] = together.predicted * share
    together["measured"] = together.output_tput_per_gpu * share
    both = pd.concat([apart, together])
    both = both[(both.left_out == "") & both.simulated.notna()]
    same = [*SAME, "disagg", "conc"]
    medians = both.groupby(same, dropna=False)[columns].median().reset_index()
    tau = [
        float(kendalltau(*(of[name] for name in columns)).statistic)
        for _, of in medians.groupby(["hardware", "isl", "osl"])
        if len(of) >= LEAST_ORDERED and of.disagg.any()
    ]
    return (
        "Kendall's tau of all tokens/s per GPU among configurations and users of a GPU "
        f"and pair of lengths, fleets of one pool among them: {np.median(tau):.2f} in "
        f"the median of {len(tau)}, {min(tau):.2f} at worst."
    )


def simulated_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of two pools with measured over simulated of each."""
    kept = []
    for run in runs_of_two_pools(runs).itertuples():
        found = {**run._asdict(), "left_out": ""}
        kept.append(found)
        try:
            fleet, kind = pools(run)
        except InputError as refusal:
            found["left_out"] = str(refusal)
            continue
        tpot_s, per_gpu = simulated(run, fleet)
        found |= {"kind": kind, "tpot": measured_tpot_s(run) / tpot_s}
        found["tokens"] = run.tput_per_gpu / per_gpu
    return pd.DataFrame(kept)


def runs_of_two_pools(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of two pools on GPUs and engines that have profiles."""
    of = runs.disagg & runs.hardware.isin(GPUS) & runs.framework.isin(ENGINES)
    return runs[of]


def pools(run) -> tuple[Deployment, str]:
    """Return the fleet of a run, and its class by what decodes.

    Raises
    ------
    InputError
        Where its workers are not told, or no profile is of them.
    """
    decoding = layout_of(run)
    prompting = layout_of(
        run._replace(
            decode_tp=run.prefill_tp,
            decode_ep=run.prefill_ep,
            decode_dp_attention=run.prefill_dp_attention,
        )
    )
    if decoding is None or prompting is None or not run.prefill_num_workers:
        raise InputError("its workers are not told")
    k = drafts(run, decoding)
    engines = []
    for layout in (prompting, decoding):
        tables = tables_of(run, layout)
        if tables is None:
            raise InputError(f"no profile of {layout}")
        one = served_loops.configured(run, layout, tables, 1.0, k)
        per_token = llm(LLMS[run.precision]).kv_bytes_per_token_per_gpu(
            layout.tp, "fp8"
        )
        engine = replace(one.engine, kv_block_bytes=int(16 * per_token))
        engines.append(replace(one, engine=engine, tp=layout.tp))
    counts = int(run.prefill_num_workers), int(run.decode_num_workers)
    link = gpu(GPUS[run.hardware]).network_bytes_per_s_per_direction
    fleet = Deployment(
        tuple(Pool(each, n) for each, n in zip(engines, counts, strict=True)),
        "round-robin",
        hand_off="nixl",
        link_gb_per_s=link / 1e9,
    )
    return fleet, kind_of(run, decoding)


def simulated(run, fleet: Deployment) -> tuple[float, float]:
    """Return the mean TPOT [s] and all tokens/s per GPU of a run."""
    users = int(run.conc)
    draw = np.random.default_rng(0)
    prompts, answers = (
        draw.integers(
            max(1, int(served_loops.SHORTEST * longest)),
            longest + 1,
            max(REQUESTS * users, FEWEST),
        )
        for longest in (int(run.isl), int(run.osl))
    )
    trace = Users(users, 0.0).asking(Trace(prompts, answers), draw)
    times = simulate(trace, fleet).table
    stays_s = times.finish_s - times.first_token_s
    tpot_s = float((stays_s / (times.output_tokens - 1)).mean())
    tokens = float((times.output_tokens + times.prompt_tokens).sum())
    return tpot_s, tokens / float(times.finish_s.max()) / fleet.gpu_count


def table(runs: pd.DataFrame) -> str:
    """Return the table of classes in Markdown: medians over configurations."""
    lines = [
        "| decoding | runs (configurations) | TPOT, measured ÷ simulated | error | all "
        "tokens/s per GPU, measured ÷ simulated | error |",
        "|---|---|---|---|---|---|",
    ]
    used = runs[runs.left_out == ""]
    for kind, of in used.groupby("kind"):
        same = [group for _, group in of.groupby(SAME, dropna=False)]
        cells = [str(kind).removeprefix("decode pools, "), f"{len(of)} ({len(same)})"]
        for name in ("tpot", "tokens"):
            ratio = np.median([group[name].median() for group in same])
            missed = np.median([error(group[name], 1.0) for group in same])
            cells += [f"{ratio:.2f}", f"{missed:.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    left = runs[runs.left_out != ""].left_out.value_counts()
    count = ", ".join(f"{name} ({n})" for name, n in left.items())
    return "\n".join([*lines, "", f"Left out, with their runs: {count}."])


if __name__ == "__main__":
    main()
