"""Fit the engine's own time to iterations of an engine and to what it served.

``capplan profile`` measured iterations of vLLM 0.26 on an H100, and the same engine
served four traces (``examples/studies/h100``). The times are fitted to the mean TPOT of
the runs and to iterations that follow others of their kind, decode alone and prefill of
512 tokens or more; both weigh alike. Each run is predicted by a fit without it.

    python examples/studies/measured_engine.py [--docs docs/internals/accuracy.md]

One LLM on one GPU cannot tell the factor on decode kernels from an iteration's time, so
that factor is the older row's of the kind, as is what a request takes in front of the
engine, which was not measured.
"""

import argparse
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize
from served_tables import between

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.engines.catalog import EngineName
from capplan.errors import CapplanWarning
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import known_profile
from capplan.latency.engine_rows import EngineRow, engine_time
from capplan.latency.engine_time import Basis, EngineTime
from capplan.latency.measurements import PHASES, Points, read_points
from capplan.latency.profile import Profile
from capplan.latency.roofline import roofline_profile
from capplan.llm.catalog import llm as find_llm
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

FOLDER = Path(__file__).parent / "h100"
LLM, GPU, TP = "Llama-3.1-8B", "H100-SXM", 1
VERSION = "0.26.0"
MARKS = ("<!-- measured engine -->", "<!-- end of measured engine -->")
SINCE = "0.14"
"""First version of vLLM that schedules an iteration while the one before runs."""
BLOCKS, SEATS, TOKENS = 28_934, 1_024, 8_192
LEAST_PREFILL = 512
"""Tokens from which a prompt alone takes longer than its kernels' launches."""
_KERNELS: tuple[Basis, ...] = ("kernel-sum", "roofline")
_FITTED = ("prefill_factor", "iteration_s", "per_request_s")
_UNITS = np.array([1.0, 1e-3, 1e-5])
_SOURCE = (
    f"iterations of {LLM} on {GPU} by capplan profile and four served runs, 2026-11; "
    "decode factor and time in front of the engine of "
)


@cache
def base_of(of: Basis) -> Profile:
    """Return the kernels of the LLM, measured or from the data sheet."""
    if of == "roofline":
        return roofline_profile(find_llm(LLM), find_gpu(GPU), TP)
    profile = known_profile(find_llm(LLM), GPU, TP)
    assert profile is not None
    return profile


@cache
def steady_iterations() -> Points:
    """Return the iterations that the times are fitted to."""
    points = read_points(FOLDER / "iterations.csv")
    decodes = points.phase == PHASES.index("decode")
    prompts = points.phase == PHASES.index("prefill")
    return points.where(decodes | (prompts & (points.prefill_tokens >= LEAST_PREFILL)))


def predicted_s(of: Basis, time: EngineTime, points: Points) -> np.ndarray:
    """Return the times of iterations on an engine with a time of its own. [s]"""
    return base_of(of).model_copy(update={"engine_time": time}).predict(points)


@cache
def _requests() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "requests.csv")


def runs() -> list[str]:
    """Return the names of the served runs."""
    return list(_requests()["run"].unique())


def fitted(of: Basis, before: EngineRow, among: Sequence[str]) -> EngineRow:
    """Return a row like the one before, fitted to iterations and some of the runs."""
    points = steady_iterations()
    tests = [served(name) for name in among]

    def time(values: np.ndarray) -> EngineTime:
        update = dict(zip(_FITTED, map(float, values * _UNITS), strict=True))
        return before.time.model_copy(update=update)

    def errors(values: np.ndarray) -> np.ndarray:
        asked = time(values)
        alone = np.log(predicted_s(of, asked, points) / points.seconds)
        of_runs = np.log([error(test, of, asked)["TPOT"] + 1 for test in tests])
        return np.concatenate([each / len(each) ** 0.5 for each in (alone, of_runs)])

    found = optimize.least_squares(
        errors,
        [1.0, 0.5, 0.5],
        bounds=([0.3, 0.0, 0.0], [3.0, 5.0, 10.0]),
        diff_step=0.05,  # smaller ones change which iteration a request joins
        xtol=1e-3,
    )
    values = {
        name: float(f"{value:.3g}") if value > 1e-7 else 0.0
        for name, value in zip(_FITTED, found.x * _UNITS, strict=True)
    }
    source = _SOURCE + before.source
    update = {"engine_version": VERSION, "since": SINCE, "source": source}
    return before.model_copy(update={**values, **update})


def measured_rows(rows: Sequence[EngineRow]) -> list[EngineRow]:
    """Return rows of the engine that was measured, one for each older one of vLLM.

    Those of dense LLMs on its family of GPUs.
    """
    made = []
    for of in _KERNELS:
        alike = [
            row
            for row in rows
            if (row.of, row.engine, row.experts) == (of, "vllm", False)
            and GPU.startswith(tuple(row.gpus))
            and not row.since
        ]
        made += [fitted(of, before, runs()) for before in alike]
    return made


def served(name: str) -> pd.DataFrame:
    """Return the requests of a run, in order of arrival."""
    requests = _requests()
    return requests[requests["run"] == name].sort_values("arrival_s")


def simulated(requests: pd.DataFrame, of: Basis, time: EngineTime) -> pd.DataFrame:
    """Return the times of the same requests in the simulator, engine alone. [s]"""
    alone = time.model_copy(
        update={"request_s": 0.0, "prompt_token_s": 0.0, "api_request_s": 0.0}
    )
    tables = base_of(of).model_copy(update={"engine_time": alone})
    engine = EngineSettings(TOKENS, max_num_seqs=SEATS, kv_blocks=BLOCKS)
    trace = Trace(
        prompt_tokens=requests["prompt_tokens"].to_numpy(),
        output_tokens=requests["output_tokens"].to_numpy(),
        arrival_s=requests["arrival_s"].to_numpy(),
        source="requests.csv",
    )
    configuration = Configuration(engine, tables.tables(SEATS, TOKENS))
    times = simulate(trace, Deployment.of(configuration, 1)).times
    assert times is not None
    return pd.DataFrame({"ttft_s": times.ttft_s, "e2e_s": times.e2e_s})


def figures(times: pd.DataFrame, outputs: np.ndarray) -> dict[str, float]:
    """Return means of a run. [ms]"""
    ttft, e2e = times["ttft_s"].to_numpy(), times["e2e_s"].to_numpy()
    tpot = (e2e - ttft) / (outputs - 1)
    return {
        "TTFT": 1e3 * ttft.mean(),
        "TPOT": 1e3 * tpot.mean(),
        "E2E": 1e3 * e2e.mean(),
    }


def error(requests: pd.DataFrame, of: Basis, time: EngineTime) -> dict[str, float]:
    """Return simulated over served, less 1, of the means of a run."""
    outputs = requests["output_tokens"].to_numpy()
    real = figures(requests, outputs)
    found = figures(simulated(requests, of, time), outputs)
    return {name: found[name] / real[name] - 1 for name in real}


def table(of: Basis, old: EngineRow) -> list[str]:
    """Return what was served against what is simulated, a line per run."""
    lines = [
        f"| {of}: run | served TTFT, TPOT, E2E (ms) | {old.engine_name} | "
        f"vLLM {VERSION}, fitted without the run |",
        "|---|---|---|---|",
    ]
    for name in runs():
        requests = served(name)
        real = figures(requests, requests["output_tokens"].to_numpy())
        others = [other for other in runs() if other != name]
        cells = [f"{real['TTFT']:.0f}, {real['TPOT']:.2f}, {real['E2E']:.0f}"]
        for row in (old, fitted(of, old, others)):
            found = error(requests, of, row.time)
            cells.append(", ".join(f"{value:+.0%}" for value in found.values()))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the fitted rows, their errors, and the served runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, help="file to write the tables into")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", CapplanWarning)
    points = steady_iterations()
    decodes = points.phase == PHASES.index("decode")
    lines = [
        "| kernels | engine | decode | prefill | an iteration | a request |",
        "|---|---|---|---|---|---|",
    ]
    tables: list[str] = []
    for of in _KERNELS:
        old, new = (
            engine_time(of, GPU, LLM, False, wanted=EngineName("vllm", version))
            for version in ("0.13", VERSION)
        )
        assert old is not None
        assert new is not None
        for row in (old, new):
            off = np.abs(predicted_s(of, row.time, points) / points.seconds - 1)
            lines.append(
                f"| {of} | {row.engine_name} | {off[decodes].mean():.1%} | "
                f"{off[~decodes].mean():.1%} | {row.iteration_s * 1e3:.2f} ms | "
                f"{row.per_request_s * 1e6:.0f} µs |"
            )
        tables += ["", *table(of, old)]
    lines += tables
    print("\n".join(lines))
    if arguments.docs:
        between(arguments.docs, lines, MARKS)


if __name__ == "__main__":
    main()
