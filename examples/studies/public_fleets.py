"""φ of public fleets by LLM, GPU and tier: ``public_fleets.py FOLDER [--docs PAGE]``.

The folder has ``metrics/`` (AIPerf), ``requests/`` and ``engine_log/`` of runs, as
ajith-sirra-amd/InferenceMAX_Rocm_Team has them. Runs that failed are left out.
"""

import argparse
import gzip
import re
import shutil
import tempfile
import warnings
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np

from capplan.errors import CapplanWarning, InputError
from capplan.planning.backtest.backtest import backtest, observed_of
from capplan.planning.backtest.by_requests import FLEET
from capplan.planning.backtest.settings import BacktestSettings

NAMES = {
    "kimik2.5": "Kimi-K2.5",
    "minimaxm2.5": "MiniMax-M2.5",
    "glm5.1": "GLM-5.1-NVFP4",
    "mi355x": "MI355X",
    "b200": "B200-SXM",
}
FAILED = {
    **{("Kimi-K2.5", "B200-SXM", "lmcache", users): 1 for users in (16, 32, 36)},
    **{("GLM-5.1-NVFP4", "MI355X", "hicache", users): 1 for users in (4, 8, 16, 32)},
    ("MiniMax-M2.5", "MI355X", "lmcache", 1): 1,
}
STEM = re.compile(
    r"agentic_([a-z]+[\d.]+)_tp(\d)_conc(\d+)_offload([a-z]+)_.*_(mi355x|b200)-"
)
MARK = "<!-- public fleets -->"


def runs(folder):
    """Yield what a run is, and its settings."""
    for metrics in sorted((folder / "metrics").iterdir()):
        llm, tp, users, tier, gpu = STEM.search(metrics.name).groups()
        key = NAMES[llm], NAMES[gpu], tier, int(users)
        if key in FAILED:
            continue
        stem = metrics.name.removesuffix(".csv.gz")
        given = {"llm": key[0], "gpu": key[1], "tp": tp, "kv_cache_dtype": "fp8"}
        given |= {"max_num_seqs": int(users)}
        given |= {"engine": "sglang" if "sglang" in stem else "vllm"}
        command = folder / "engine_log" / f"{stem}.vllm_command.txt.gz"
        text = (
            gzip.decompress(command.read_bytes()).decode() if command.exists() else ""
        )
        if "--no-async-scheduling" in text:
            given["async_scheduling"] = False
        if found := re.search(r"--max-num-seqs[ =](\d+)", text):
            given["max_num_seqs"] = int(found[1])
        requests = folder / "requests" / metrics.name
        if requests.exists() and given["engine"] == "vllm":
            given["requests"] = str(requests)
        yield key, stem, given


def looked_at(folder):
    """Yield each run with its backtest, and the pace under a factor."""
    for key, stem, given in runs(folder):
        with tempfile.TemporaryDirectory() as both:
            for kind, end in (("metrics", ".csv.gz"), ("engine_log", ".engine.log.gz")):
                if (file := folder / kind / f"{stem}{end}").exists():
                    shutil.copy(file, both)
            settings = BacktestSettings(**given, metrics=both)
            try:
                found, (_, observed, _) = backtest(settings), observed_of(settings)
            except InputError as error:
                yield key, str(error), None, None
                continue
        measured = np.mean(observed.paces_s(observed.windows))
        yield key, found, measured, observed


def table(folder):
    """Return the lines of the table."""
    lines = [
        "| LLM, GPU, tier | users: φ | mean φ, spread | TPOT at the next load, "
        "predicted / measured | saturated: throughput |",
        "|---|---|---|---|---|",
    ]
    rows = sorted(looked_at(folder), key=lambda row: row[0])
    for which, group in groupby(rows, lambda row: row[0][:3]):
        of = list(group)
        for key, why, measured, _ in of:
            if measured is None:
                print(*key, why)
        known = [row for row in of if row[2] is not None]
        light = [row for row in known if row[1].phi]
        shown = [f"{users(row)}: {row[1].phi.value:.2f}" for row in light]
        following = [
            f"{users(row)}: {row[3].pace_s(before[1].phi.value, 1.0) / row[2]:.2f}"
            for before, row in pairwise(light)
        ]
        full = [
            f"{users(row)}: {row[1].throughput_ratio or float('nan'):.2f}"
            for row in known
            if not row[1].phi
        ]
        told = (shown, [_spread([row[1].phi.value for row in light])], following, full)
        lines.append(f"| {', '.join(which)} | {' | '.join(map('; '.join, told))} |")
    return lines


def users(row):
    """Return the users of a run, marked where its requests are not known."""
    of_requests = row[3].parts[0].windows[0].of.replica == FLEET
    return f"{row[0][3]}{'' if of_requests or not row[1].phi else 'ᵐ'}"


def _spread(phis):
    if not phis:
        return "–"
    mean = float(np.exp(np.mean(np.log(phis))))
    low, high = (100 * (end(phis) / mean - 1) for end in (min, max))
    return f"{mean:.2f}" + f", {low:+.0f} to {high:+.0f} %" * (len(phis) > 1)


def main():
    """Print the table, or write it between its marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", CapplanWarning)
    text = "\n".join(table(asked.folder))
    if asked.docs is None:
        print(text)
        return
    before, _, after = asked.docs.read_text(encoding="utf-8").split(MARK)
    page = f"{before}{MARK}\n{text}\n{MARK}{after}"
    asked.docs.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
