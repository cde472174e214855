"""DeepSeek-R1 as served with experts by EP, DP attention and MTP, and as predicted.

    python examples/studies/served_layouts.py deepseek_r1.csv \
        --docs docs/internals/latency.md

The file is InferenceX's (frozen API copies in vngcloud/InferenceX-app, 7fe6d62a and
cac6246). Each run is predicted by mean values from the shipped profiles: an iteration
of as many requests on each rank as users there, at the mean context, and for every
request a prompt that all ranks wait for. A decode pool is given the share of its users'
time that is decoding as measured. Nothing is fitted in the first columns; in the last
the kernels have one factor, the median of the other configurations of the engine and
class where there are four. A run whose TTFT is above three seconds and four prompts
waited in a queue, which mean values do not know, and is left out.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from capplan.errors import InputError
from capplan.latency.catalog import find_profile, named_rank_profile
from capplan.latency.rank_tables import RankTables, RankWork
from capplan.llm.layout import Layout

GPUS = {"h200": "H200-SXM", "b200": "B200-SXM", "gb200": "GB200"}
"""Of B300 the server itself was short: 3 s to a first token at 8 users."""
LLMS = {"fp8": "DeepSeek-R1", "fp4": "DeepSeek-R1-NVFP4"}
ENGINES = {
    "sglang": "sglang",
    "trt": "trtllm",
    "dynamo-sglang": "sglang",
    "dynamo-trt": "trtllm",
}
LENGTHS = 0.9  # of the nominal: uniform from 0.8 to 1
ACCEPTED = {0: 1.0, 1: 1.79, 2: 2.27, 3: 2.49}
"""Tokens of a step by those drafted: DeepSeek-V4's MTP, coding (InferenceX)."""
LAYERS = 61
NODE = 8  # GPUs
FEWEST = 4  # other configurations that a factor is taken from

CLASSES = (
    "TP alone",
    "EP",
    "DP attention",  # as simulated
    "DP attention, prompts in turn",
    "DP attention, at once",
    "MTP",
    "MTP and DP attention",
    "MTP and DP attention, prompts in turn",
    "MTP and DP attention, at once",
    "decode pools, TP or EP",
    "decode pools, DP attention",
    "decode pools, MTP",
    "decode pools, MTP and DP attention",
)
SAME = ["hardware", "framework", "precision", "spec_method", "disagg", "isl", "osl"]
SAME += ["decode_tp", "decode_ep", "decode_dp_attention", "decode_num_workers"]
"""What a configuration is: its runs differ in users."""

MARK = "<!-- served layouts -->"


class Predicted(NamedTuple):
    """A run as predicted."""

    tpot_s: float
    prompt_s: float  # of one prompt beside the others' decoding
    output_per_gpu_per_s: float  # [tokens/s]; NaN of a decode pool alone


def main() -> None:
    tell(__doc__, MARK, predicted_runs)


def tell(
    about: str | None,
    mark: str,
    of_runs: Callable[[pd.DataFrame], pd.DataFrame],
    beneath: Callable[[pd.DataFrame], str] | None = None,
    of_table: Callable[[pd.DataFrame], str] | None = None,
) -> None:
    """Print the table of a study of served runs; write it between a page's marks.

    ``beneath``: what stands below it, of the runs of the file. ``of_table``: how the
    runs are told, in place of ``table``.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("file", type=Path)
    parser.add_argument("--docs", type=Path, help="page whose table is written")
    parser.add_argument("--runs", type=Path, help="CSV of all runs to write")
    arguments = parser.parse_args()
    given = pd.read_csv(arguments.file)
    runs = of_runs(given)
    if arguments.runs:
        runs.to_csv(arguments.runs, index=False)
    told = [(of_table or table)(runs), *([beneath(given)] if beneath else [])]
    text = "\n\n".join(told)
    print(text)
    if arguments.docs:
        before, _, rest = arguments.docs.read_text().partition(mark)
        after = rest.partition(mark)[2]
        arguments.docs.write_text(f"{before}{mark}\n{text}\n{mark}{after}")


def predicted_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that have a profile, with measured over predicted of each."""
    kept = []
    for name in ("ttft", "tpot", "e2el"):  # some copies kept medians alone
        means, medians = runs[f"mean_{name}"], runs[f"median_{name}"]
        runs = runs.assign(**{name: means.fillna(medians)})
    of = runs.hardware.isin(GPUS) & runs.framework.isin(ENGINES)
    for run in runs[of].itertuples():
        layout = layout_of(run)
        tables = None if layout is None else tables_of(run, layout)
        if layout is None or tables is None:
            kept.append({**run._asdict(), "left_out": f"no profile of {layout}"})
            continue
        kinds = {kind_of(run, layout): 1}
        if layout.dp > 1 and not run.disagg:
            kind = kind_of(run, layout)
            kinds = {f"{kind}, prompts in turn": 1, f"{kind}, at once": layout.dp}
        for kind, prompts in kinds.items():
            found = predict(run, layout, tables, prompts)
            waited = run.ttft > max(3.0, 4 * found.prompt_s) and not run.disagg
            kept.append(
                {
                    **run._asdict(),
                    "left_out": "queued" if waited else "",
                    "kind": kind,
                    "engine": ENGINES[run.framework],
                    "tpot": run.tpot / found.tpot_s,
                    "output": run.output_tput_per_gpu / found.output_per_gpu_per_s,
                    "predicted": found.output_per_gpu_per_s,
                }
            )
    return pd.DataFrame(kept)


def measured_tpot_s(run) -> float:
    """Return the mean TPOT of a run, or the median where that alone was kept. [s]"""
    return run.mean_tpot if run.mean_tpot > 0 else run.median_tpot


def layout_of(run) -> Layout | None:
    """Return the layout of the workers that decode; None where it is not told."""
    width = int(run.decode_tp)
    dp = width if run.decode_dp_attention else 1
    if run.disagg and not run.decode_num_workers:
        return None
    try:
        return Layout(width // dp, dp, max(1, int(run.decode_ep)))
    except InputError:
        return None


def tables_of(run, layout: Layout) -> RankTables | None:
    """Return the tables of a run's kernels; None where no profile is of its layout."""
    llm, gpu, engine = LLMS[run.precision], GPUS[run.hardware], ENGINES[run.framework]
    # TensorRT-LLM's budget was the prompt and what all users decode (served_loops).
    most = int(run.isl + (1 + drafts(run, layout)) * run.conc) + 64
    sizes = (4096, max(16_384, most))
    if layout == Layout(layout.tp):
        plain = find_profile(llm, gpu, layout.tp)
        return None if plain is None else of_one(plain.tables(*sizes))
    # Pools of SGLang are started with DeepEP, its aggregated engines are not.
    named = "deepep" if run.disagg and layout.dp > 1 and engine == "sglang" else None
    place = f"{gpu}/{llm}/{layout}.{engine}"
    profile = named_rank_profile(place if named is None else f"{place}.{named}")
    if profile is None and named is not None and layout.gpus <= NODE:
        # Within a node an all-gather stands for the DeepEP that was not measured.
        profile = named_rank_profile(place)
    return None if profile is None else profile.rank_tables(*sizes)


def of_one(tables) -> RankTables:
    """Return the tables of a TP group, whose experts are among what it does alone."""
    nothing = np.zeros(len(tables.fused_s) + 3 * len(tables.decode_s))
    return RankTables(tables, 1, nothing, nothing, nothing, nothing)


def drafts(run, layout: Layout) -> int:
    """Return the tokens that a run's engine drafts."""
    if run.spec_method != "mtp":
        return 0
    if ENGINES[run.framework] == "sglang":
        return 2
    return 1 if layout.dp > 1 else 3


def kind_of(run, layout: Layout) -> str:
    """Return the class of a run."""
    pool = "decode pools, " if run.disagg else ""
    if run.spec_method == "mtp":
        kind = "MTP and DP attention" if layout.dp > 1 else "MTP"
    elif layout.dp > 1:
        kind = "DP attention"
    elif run.disagg:
        kind = "TP or EP"
    else:
        kind = "EP" if layout.ep > 1 else "TP alone"
    return pool + kind


def predict(run, layout: Layout, tables: RankTables, prompts: int) -> Predicted:
    """Return a run by mean values, ``prompts`` ranks having one at the same time."""
    prompt, answer = LENGTHS * run.isl, LENGTHS * run.osl
    context = prompt + answer / 2
    k = drafts(run, layout)
    workers = max(1, int(run.decode_num_workers)) if run.disagg else 1
    share = 1 - run.ttft / run.e2el if run.disagg else 1.0
    users = run.conc * share / workers
    of_rank = users / layout.dp
    step_s = between(lambda b: decode_s(tables, b, context, k), of_rank)
    beside_s = between(
        lambda b: prompt_s(tables, b, context, int(prompt), prompts), of_rank
    )
    tpot_s = step_s * (LAYERS + k) / LAYERS / ACCEPTED[k]
    if run.disagg:
        return Predicted(tpot_s, beside_s, float("nan"))
    # The prompts hold up all others once while one of them gets its answer.
    plain_s = between(lambda b: decode_s(tables, b, context, 0), of_rank)
    tpot_s += users / prompts / answer * max(beside_s - plain_s, 0.0)
    request_s = beside_s + (answer - 1) * tpot_s
    return Predicted(tpot_s, beside_s, users * answer / request_s / layout.gpus)


def between(time_s, batch: float) -> float:
    """Return a time of a batch that need not be whole, between two that are."""
    low = max(1, int(batch))
    over = max(batch - low, 0.0)
    return (1 - over) * time_s(low) + over * time_s(low + 1)


def decode_s(tables: RankTables, batch: int, context: float, k: int) -> float:
    """Return the time of a decode with as many requests on every rank. [s]"""
    work = RankWork(batch, batch * context, drafted_tokens=k * batch)
    return tables.iteration_time_s([work] * tables.ranks)


def prompt_s(
    tables: RankTables, batch: int, context: float, tokens: int, prompts: int
) -> float:
    """Return the time of an iteration with a prompt on some of the ranks. [s]"""
    decoding = RankWork(batch, batch * context)
    with_one = decoding._replace(prefill_tokens=tokens, attention=tokens**2 / 2)
    work = [with_one] * prompts + [decoding] * (tables.ranks - prompts)
    return tables.iteration_time_s(work)


def scored(runs: pd.DataFrame) -> Iterator[dict]:
    """Yield a row for each class: errors of configurations, unfitted and left out."""
    used = runs[runs.left_out == ""]
    for kind in CLASSES:
        of = used[used.kind == kind]
        if of.empty:
            continue
        same = [group for _, group in of.groupby(SAME, dropna=False)]
        row = {"class": kind, "runs": len(of), "configurations": len(same)}
        for name in ("tpot", "output"):
            row[f"{name}_ratio"] = np.median([group[name].median() for group in same])
            row[name] = np.median([error(group[name], 1.0) for group in same])
            row[f"{name}_left_out"] = np.median(
                [error(group[name], factor(same, group, name)) for group in same]
            )
        yield row


def error(ratios: pd.Series, factor: float) -> float:
    """Return the median error of a configuration's runs, predicted times a factor."""
    return float((factor / ratios - 1).abs().median())


def factor(same: list[pd.DataFrame], left_out: pd.DataFrame, name: str) -> float:
    """Return the factor of an engine's other configurations; 1 where they are few."""
    others = [
        group[name].median()
        for group in same
        if group is not left_out and group.engine.iloc[0] == left_out.engine.iloc[0]
    ]
    return float(np.median(others)) if len(others) >= FEWEST else 1.0


def orders(runs: pd.DataFrame) -> list[float]:
    """Return Kendall's tau of tokens/s per GPU among the runs of a GPU and shape."""
    used = runs[(runs.left_out == "") & ~runs.disagg & runs.predicted.notna()]
    used = used[~used.kind.str.contains("in turn")]
    same = [*SAME, "conc"]
    columns = ["output_tput_per_gpu", "predicted"]
    medians = used.groupby(same, dropna=False)[columns].median().reset_index()
    return [
        float(kendalltau(*(of[name] for name in columns)).statistic)
        for _, of in medians.groupby(["hardware", "isl", "osl"])
        if len(of) >= 5
    ]


def table(runs: pd.DataFrame) -> str:
    """Return the table of classes in Markdown."""
    lines = [
        "| class | runs (configurations) | TPOT, measured ÷ predicted | error | one "
        "factor, left out | tokens/s per GPU, measured ÷ predicted | error | one "
        "factor, left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in scored(runs):
        cells = [row["class"], f"{row['runs']} ({row['configurations']})"]
        for name in ("tpot", "output"):
            if np.isnan(row[name]):
                cells += ["–"] * 3
                continue
            cells.append(f"{row[f'{name}_ratio']:.2f}")
            cells.append(f"{row[name]:.0%}")
            cells.append(f"{row[f'{name}_left_out']:.0%}")
        lines.append(f"| {' | '.join(cells)} |")
    left = runs[runs.left_out != ""].left_out.value_counts()
    count = ", ".join(f"{name} ({n})" for name, n in left.items())
    tau = orders(runs)
    order = (
        "Kendall's tau of tokens/s per GPU among configurations and users of a GPU and "
        f"pair of lengths: {np.median(tau):.2f} in the median of {len(tau)}, "
        f"{min(tau):.2f} at worst."
    )
    return "\n".join([*lines, "", order, "", f"Left out, with their runs: {count}."])


if __name__ == "__main__":
    main()
