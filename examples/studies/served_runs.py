"""Compare the simulator with runs that two GPUs served.

Each folder given (or each in ``../shared/data/measured/vllm_runs``) holds a run of
vLLM: ``requests.jsonl`` (tokens and the engine's own timestamps of each request),
``timeseries.csv`` (running, waiting and KV use, once a second) and ``meta.json`` (the
engine's limits). The iteration time is fitted from the requests that arrived in the
first half of the run; the other half, and the time series, are then predicted.

    python examples/studies/served_runs.py [FOLDER ...]
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

from capplan.calibration.calibrate import NAMES, Calibration, calibrate
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.latency.importers import read_measurements
from capplan.latency.served_run import ServedRun
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

RUNS = Path(__file__).parents[3] / "shared" / "data" / "measured" / "vllm_runs"

PLENTY_OF_BLOCKS = 30_000
"""KV blocks of a run that does not state them: more than 128 requests fill."""


def read_run(folder: Path) -> ServedRun:
    """Return the requests of a run, on the engine's clock."""
    run = read_measurements(folder / "requests.jsonl")
    assert isinstance(run, ServedRun)
    return run


def read_limits(folder: Path) -> EngineSettings:
    """Return the engine's limits; async scheduling and prefix caching are defaults."""
    meta = json.loads((folder / "meta.json").read_text())
    given = meta["engine_kwargs"]
    cache = meta.get("kv_cache", {})
    return EngineSettings(
        max_num_batched_tokens=given["max_num_batched_tokens"],
        max_num_seqs=given["max_num_seqs"],
        block_size=cache.get("block_size", 16),
        kv_blocks=cache.get("num_gpu_blocks", PLENTY_OF_BLOCKS),
        async_scheduling=True,
        prefix_caching=True,
    )


def print_coefficients(calibration: Calibration) -> None:
    """Print each coefficient with its standard error."""
    print(f"  {'coefficient':12} {'[ms]':>12} {'± 1 error':>12}")
    columns = zip(
        NAMES,
        calibration.coefficients_s * 1e3,
        calibration.standard_errors_s * 1e3,
        calibration.identified,
        strict=True,
    )
    for name, value_ms, error_ms, known in columns:
        remark = "" if known else "  not in the data"
        print(f"  {name:12} {value_ms:12.3g} {error_ms:12.2g}{remark}")


def print_times(run: ServedRun, calibration: Calibration) -> None:
    """Print predicted beside measured, for the requests that were not fitted."""
    rest = np.setdiff1d(np.arange(len(run.arrival_s)), calibration.fitted_rows)
    print(f"  {len(rest)} requests not fitted:   measured  predicted   error")
    for name, unit, scale in (("ttft", "s", 1), ("tpot", "ms", 1e3), ("e2e", "s", 1)):
        measured = getattr(run, f"{name}_s")[rest] * scale
        predicted = getattr(calibration.times, f"{name}_s")[rest] * scale
        for label, figure in (("mean", np.nanmean), ("p99", p99)):
            old, new = figure(measured), figure(predicted)
            print(
                f"  {name} {label:5} [{unit:2}] {old:20.2f} {new:10.2f}"
                f" {new / old - 1:+8.1%}"
            )


def p99(values: np.ndarray) -> float:
    """Return the 99th percentile."""
    return float(np.nanquantile(values, 0.99))


def print_series(
    folder: Path, run: ServedRun, engine: EngineSettings, calibration: Calibration
) -> None:
    """Print running, waiting and KV use of the engine beside the simulator's."""
    trace = Trace(run.prompt_tokens, run.output_tokens, run.arrival_s)
    simulation = simulate(
        trace,
        Deployment.of(Configuration(engine, calibration.tables(engine)), 1),
        record_iterations=True,
    )
    assert simulation.iterations is not None
    steps = simulation.iterations.steps
    with (folder / "timeseries.csv").open(newline="") as file:
        measured = list(csv.DictReader(file))
    moments_s = np.array([float(row["t"]) for row in measured])
    last = np.searchsorted(steps["sched_s"], moments_s, side="right") - 1
    busy = moments_s < simulation.times.finish_s.max()
    kv_percent = 100 * (1 - steps["free_blocks"] / (engine.kv_blocks - 1))
    pairs = {
        "running": steps["running"][last] * busy,
        "waiting": steps["waiting"][last] * busy,
        "kv_cache_pct": kv_percent[last] * busy,
    }
    print("  at [s]         " + "".join(f"{name:>26}" for name in pairs))
    for k in range(4, len(measured), max(1, len(measured) // 12)):
        cells = (
            f"{float(measured[k][name]):16.0f} →{pairs[name][k]:8.0f}" for name in pairs
        )
        print(f"  {moments_s[k]:6.0f}         " + "".join(cells))
    for name, predicted in pairs.items():
        engine = np.array([float(row[name]) for row in measured])
        if not engine.any():
            print(f"  {name}: the run's log holds only zeros")
            continue
        off = np.abs(predicted - engine).mean()
        print(f"  {name}: mean {engine.mean():.1f}, mean absolute error {off:.1f}")


def main() -> None:
    """Fit and compare every run."""
    folders = [Path(text) for text in sys.argv[1:]]
    if not folders and RUNS.is_dir():
        folders = sorted(path for path in RUNS.iterdir() if path.is_dir())
    if not folders:
        print(f"No runs in {RUNS}; name a folder with requests.jsonl and meta.json.")
    for folder in folders:
        run, engine = read_run(folder), read_limits(folder)
        first_half = np.arange(len(run.arrival_s) // 2)
        calibration = calibrate(run, engine, rows=first_half)
        print(
            f"{folder.name}: {len(first_half)} of {len(run.arrival_s)} requests fitted"
        )
        print_coefficients(calibration)
        print_times(run, calibration)
        print(f"  preemptions, predicted: {calibration.times.preemptions.sum()}")
        print_series(folder, run, engine, calibration)


if __name__ == "__main__":
    main()
