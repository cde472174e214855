"""Users against real engines: a dashboard's sweeps, run again as they were run.

Each ran ten requests for each user, at most so many at once, lengths uniform in 0.8 to
1.0 of the longest, with a seat for each user; the file's README says so.
"""

import csv
from pathlib import Path

import numpy as np
import pytest

from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.settings.plan import SimulateSettings

SWEEPS = Path(__file__).parents[4] / "shared/data/served/sweeps.csv"
GPUS = {"h100": "H100-SXM", "h200": "H200-SXM", "b200": "B200-SXM"}
# With 16-bit KV these ran fewer requests at once: the README leaves them out.
SHORT_OF_KV = ("h100", "2", "64")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not SWEEPS.exists(), reason="the served runs are not here"),
]


def sweeps():
    with SWEEPS.open() as stream:
        for row in csv.DictReader(stream):
            is_llama = row["model"].startswith("Llama") and row["precision"] == "fp8"
            short = (row["hw"], row["tp"], row["conc"]) == SHORT_OF_KV
            if (
                is_llama
                and row["hw"] in GPUS
                and not (short and "8k" in row["sequence"])
            ):
                yield row


def served(row):
    """Return Little's ratio, simulated and measured, and the throughputs' ratio."""
    users, isl, osl = (int(row[name]) for name in ("conc", "isl", "osl"))
    lengths = ",".join(
        f"{name}=uniform(low={int(0.8 * longest)},high={longest})"
        for name, longest in (("prompt", isl), ("output", osl))
    )
    run = simulate_deployment(
        SimulateSettings(
            llm="Llama-3.1-70B-FP8",
            gpu=GPUS[row["hw"]],
            tp=int(row["tp"]),
            engine="vllm@0.10",
            kv_cache_dtype="fp8",
            prefix_caching=False,
            max_num_seqs=users,
            users=users,
            workload=f"synthetic:{lengths},n={10 * users}",
            extend=False,
        )
    )
    # With the first answers and the last ones, as the runs were measured.
    totals = run.simulation.totals
    per_s = totals.output_tokens / totals.makespan_s
    measured_per_s = float(row["out_tput_gpu"]) * int(row["tp"])
    stay_s = float(np.median(run.simulation.table.e2e_s))
    return (
        per_s * stay_s / (osl * users),
        measured_per_s * float(row["median_e2e_s"]) / (osl * users),
        per_s / measured_per_s,
    )


@pytest.mark.filterwarnings("ignore")
def test_users_of_real_engines_keep_littles_law_and_the_throughput():
    simulated, measured, ratio = np.array([served(row) for row in sweeps()]).T

    assert len(ratio) > 50
    # 0.874 ± 0.021 over the whole file.
    assert np.abs(simulated - 0.874).max() < 2 * 0.021
    assert simulated.mean() == pytest.approx(measured.mean(), abs=0.021)
    assert np.median(ratio) == pytest.approx(1.0, abs=0.05)
    assert np.quantile(ratio, [0.1, 0.9]) == pytest.approx([1.0, 1.0], abs=0.15)
