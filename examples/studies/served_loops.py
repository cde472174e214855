"""DeepSeek-R1 as served, and as simulated: each run's users in a closed loop.

    python examples/studies/served_loops.py deepseek_r1.csv \
        --docs docs/internals/latency.md

As ``served_layouts.py``, whose classes and factors these are, but that each run of one
pool is simulated: its users ask ten requests each, one after the other, of the run's
lengths, of the engine's scheduler, with the KV that the layout leaves. Iterations take
the sum of the kernels; ranks that step together are padded to vLLM's CUDA graphs.
Drafts are verified by vLLM V1's scheduler, whoever served them. Nothing is fitted in
the first columns.
"""

import numpy as np
import pandas as pd
from served_layouts import (
    ACCEPTED,
    ENGINES,
    GPUS,
    LAYERS,
    LLMS,
    drafts,
    layout_of,
    measured_tpot_s,
    predicted_runs,
    scored,
    tables_of,
    tell,
)

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.memory import MemoryShare, memory_budget
from capplan.deployment.pools import Deployment
from capplan.deployment.speculation import ACCEPTANCE_ERROR, Speculation
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.latency.rank_tables import RankTables
from capplan.llm.catalog import llm
from capplan.llm.layout import Layout
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from capplan.workload.users import Users

MARK = "<!-- served loops -->"
GRAPHS = (1, 2, 4, *range(8, 513, 8))
BUDGET = 8192  # tokens of an iteration, of a rank as of an engine
SPARE = 64  # TensorRT-LLM's was the prompt, a token of each user, and as many more
REQUESTS = 10  # of each user
SHORTEST = 0.8  # of the nominal length; lengths are uniform from there
UTILIZATION = 0.9


def main() -> None:
    tell(__doc__, MARK, simulated_runs, of_acceptance)


def of_acceptance(runs: pd.DataFrame) -> str:
    """Return the errors of tokens/s where fewer and where more drafts are accepted."""
    told = []
    for times in (1 - ACCEPTANCE_ERROR, 1 + ACCEPTANCE_ERROR):
        rows = scored(simulated_runs(runs[runs.spec_method == "mtp"], times))
        told.append(
            "; ".join(
                f"{row['class']} {row['output']:.0%} ({row['output_ratio']:.2f})"
                for row in rows
            )
        )
    fewer, more = told
    return (
        f"Errors of tokens/s per GPU (measured ÷ simulated) with drafts where "
        f"{ACCEPTANCE_ERROR:.0%} fewer are accepted: {fewer}. Where as many more are: "
        f"{more}."
    )


def simulated_runs(runs: pd.DataFrame, times: float = 1.0) -> pd.DataFrame:
    """Return the runs of one pool with measured over simulated in place of predicted.

    A run that mean values have in two classes of DP attention is in one. Each rate of
    acceptance is ``times`` as high.
    """
    found = runs_of_one_pool(runs)
    for row in found[found.left_out.isin(["", "queued"])].itertuples():
        layout = layout_of(row)
        tables = None if layout is None else tables_of(row, layout)
        assert layout is not None
        assert tables is not None
        try:
            tpot_s, per_gpu = simulated(row, layout, tables, times)
        except InputError as error:
            found.loc[row.Index, "left_out"] = str(error)
            continue
        found.loc[row.Index, "predicted"] = per_gpu
        found.loc[row.Index, "output"] = row.output_tput_per_gpu / per_gpu
        found.loc[row.Index, "tpot"] = measured_tpot_s(row) / tpot_s
    return found


def runs_of_one_pool(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of one pool, by mean values, each in one class."""
    found = predicted_runs(runs[~runs.disagg])
    found = found[~found.kind.astype(str).str.contains("in turn")].copy()
    found["kind"] = found.kind.astype(str).str.removesuffix(", at once")
    return found


def simulated(
    run, layout: Layout, tables: RankTables, times: float
) -> tuple[float, float]:
    """Return the mean TPOT [s] and the output tokens/s per GPU of a run."""
    configuration = configured(run, layout, tables, times, drafts(run, layout))
    users = int(run.conc)
    count = max(REQUESTS * users, 40)
    draw = np.random.default_rng(0)
    prompts, answers = (
        draw.integers(max(1, int(SHORTEST * longest)), longest + 1, count)
        for longest in (int(run.isl), int(run.osl))
    )
    trace = Users(users, 0.0).asking(Trace(prompts, answers), draw)
    times = simulate(trace, Deployment.of(configuration, 1)).table
    stays_s = times.finish_s - times.first_token_s
    tpot_s = float((stays_s / (times.output_tokens - 1)).mean())
    per_s = float(times.output_tokens.sum() / times.finish_s.max())
    return tpot_s, per_s / layout.gpus


def configured(
    run, layout: Layout, tables: RankTables, times: float, k: int
) -> Configuration:
    """Return the engine of a run, or its ranks, which drafts k tokens."""
    name = "vllm-v1" if k or run.disagg else ENGINES[run.framework]
    budget = BUDGET
    if ENGINES[run.framework] == "trtllm":
        budget = int(run.isl + (1 + k) * run.conc) + SPARE
    engine = EngineSettings(
        max_num_batched_tokens=budget,
        max_num_seqs=min(1024, budget // (1 + k)),
        kv_blocks=blocks(run, layout),
        scheduler=parse_scheduler(name),
        async_scheduling=name == "vllm-v1",
        data_parallel_size=layout.dp,
        dp_balance="vllm" if name == "vllm-v1" else "round-robin",
        speculation=speculation(k, times),
    )
    if layout.dp > 1:
        return Configuration(
            engine, tables.rank, rank_tables=tables, graph_sizes=GRAPHS
        )
    return Configuration(engine, tables.folded())


def blocks(run, layout: Layout) -> int:
    """Return the KV blocks of a rank."""
    model = llm(LLMS[run.precision])
    budget = memory_budget(
        model,
        gpu(GPUS[run.hardware]),
        layout,
        EngineSettings(BUDGET),
        MemoryShare(UTILIZATION, has_graphs=False),
    )
    per_token = model.kv_bytes_per_token_per_gpu(layout.tp, "fp8")
    return int(budget.kv_bytes // (16 * per_token))


def speculation(k: int, times: float) -> Speculation | None:
    """Return MTP with the acceptance of ``ACCEPTED``, so many times as high."""
    if not k:
        return None
    rates = tuple(np.diff([ACCEPTED[j] for j in range(k + 1)]).round(6))
    return Speculation("mtp", rates, draft_share=1 / LAYERS).accepting(times)


if __name__ == "__main__":
    main()
