"""Disaggregated prefill and decode: runs of DeepSeek-R1 as served, and as simulated.

    python examples/studies/served_apart.py deepseek_r1.csv

The file is InferenceX's (frozen API copies in vngcloud/InferenceX-app, 7fe6d62a and
cac6246): of its runs with two pools those without expert parallelism, data-parallel
attention and speculation, whose workers are told. Each is simulated with as many users
as it had, ten requests for each and at least twenty, lengths uniform from 0.8 to 1 of
what it says, SGLang's engine times. MI355X has a link of 50 GB/s (400 Gb/s a GPU).
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from capplan.cli.main import app

GPUS = {
    "b200": "B200-SXM",
    "gb200": "GB200",
    "gb300": "GB300",
    "h200": "H200-SXM",
    "mi355x": "MI355X",
}
AMD_LINK = "50"  # [GB/s]


def plain(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of two pools that need nothing else."""
    is_plain = runs.disagg.astype(str).str.lower() == "true"
    is_plain &= runs.spec_method.fillna("none").astype(str) == "none"
    for pool in ("prefill", "decode"):
        is_plain &= runs[f"{pool}_ep"].fillna(1) <= 1
        attention = runs[f"{pool}_dp_attention"].astype(str).str.lower()
        is_plain &= attention != "true"
        is_plain &= runs[f"{pool}_num_workers"] >= 1
    return runs[is_plain]


def model(run: pd.Series) -> str:
    """Return the checkpoint of a run."""
    if run.precision == "fp8":
        return "DeepSeek-R1"
    return "DeepSeek-R1-MXFP4" if run.hardware == "mi355x" else "DeepSeek-R1-NVFP4"


def tokens_per_gpu_per_s(run: pd.Series, folder: Path) -> float:
    """Return the prompt and output tokens of each GPU per second as simulated."""
    users = int(run.conc)
    count = max(10 * users, 20)
    rng = np.random.default_rng(0)
    prompts, outputs = (
        rng.integers(int(0.8 * most), int(most) + 1, count)
        for most in (run.isl, run.osl)
    )
    trace = folder / "requests.csv"
    columns = {"prompt_tokens": prompts, "output_tokens": outputs}
    pd.DataFrame(columns).to_csv(trace, index=False)
    flags = {
        "--llm": model(run),
        "--gpu": GPUS[run.hardware],
        "--tp": int(run.decode_tp),
        "--prefill-tp": int(run.prefill_tp),
        "--prefill-replicas": int(run.prefill_num_workers),
        "--decode-replicas": int(run.decode_num_workers),
        "--trace": trace,
        "--users": users,
        "--think": "0s",
        "--max-num-seqs": users,
        "--engine": "sglang",
        "--out": folder,
    }
    if run.hardware.startswith("mi"):
        flags["--link-gb-per-s"] = AMD_LINK
    words = [str(word) for flag in flags.items() for word in flag]
    result = CliRunner().invoke(app, ["simulate", *words, "--no-extend"])
    if result.exit_code:
        raise SystemExit(result.output)
    found = json.loads((folder / "simulation.json").read_text(encoding="utf-8"))
    gpus = sum(
        int(run[f"{pool}_tp"] * run[f"{pool}_num_workers"])
        for pool in ("prefill", "decode")
    )
    share = (prompts.sum() + outputs.sum()) / outputs.sum()
    return float(found["output_tokens_per_s"] * share / gpus)


def main(path: str) -> None:
    """Print a row for each run."""
    print("| GPU | weights | prompts | decoding | lengths | users | measured ÷ ours |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    with TemporaryDirectory() as folder:
        for _, run in plain(pd.read_csv(path)).iterrows():
            ratio = run.tput_per_gpu / tokens_per_gpu_per_s(run, Path(folder))
            ratios.append(ratio)
            pools = (
                f"{run[f'{pool}_num_workers']:.0f} × TP {run[f'{pool}_tp']:.0f}"
                for pool in ("prefill", "decode")
            )
            cells = (
                GPUS[run.hardware],
                run.precision,
                *pools,
                f"{run.isl:,.0f} + {run.osl:,.0f}",
                f"{run.conc:.0f}",
                f"{ratio:.2f}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    low, middle, high = np.percentile(ratios, (10, 50, 90))
    print(f"\nmedian {middle:.2f}, 80 % from {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
