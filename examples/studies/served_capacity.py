"""DeepSeek-R1 as served by ranks, by EP, with MTP and in two pools: their load.

    python examples/studies/served_capacity.py deepseek_r1.csv \\
        --write profiles/layout_errors.yaml

The runs of ``served_loops.py`` and ``served_pools.py``, simulated as there, nothing
fitted. The load that a configuration sustained, in tokens per second and GPU, is held
against the most that its simulation gives within the same TPOT, of all numbers of
users. Runs count whose simulated TPOT is at least 1.25 times that of one user: below,
TPOT tells nothing of the load. A configuration is the median of its runs, and a class
the quantiles 10, 50 and 90 % of its configurations, where there are five. A share above
four is taken as four: one user's TPOT is all that it tells.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import served_loops
import served_pools
import yaml
from served_layouts import LLMS, SAME, layout_of, measured_tpot_s, tables_of

from capplan.errors import InputError
from capplan.latency.capacity import LEVELS
from capplan.latency.layout_errors import SCHEMA

SOURCE = (
    "{runs} runs of DeepSeek-R1 by SGLang and TensorRT-LLM on H200, B200 and GB200 "
    "(InferenceX, frozen in vngcloud/InferenceX-app 7fe6d62a and cac6246)"
)
OF = {"TP or EP": ["TP", "EP"]}  # both have so few pools
LEFT_TO_SWEEPS = "TP alone"  # engine_times.yaml has them
FEWEST = 5  # configurations of a class
MOST = 4.0
PER_DOUBLING = 2  # numbers of users that are simulated
BEYOND = 4  # times the most users of a configuration's runs

Curve = np.ndarray
"""Users, mean TPOT [s] and tokens/s per GPU of simulations, shape (simulations, 3)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", type=Path, help="YAML of the classes to write")
    arguments = parser.parse_args()
    runs = pd.read_csv(arguments.file)
    found = pd.DataFrame([*of_one_pool(runs), *of_two_pools(runs)])
    errors = [
        row
        for (apart, kind), of in found.groupby(["apart", "kind"])
        if kind != LEFT_TO_SWEEPS and (row := error_of(bool(apart), str(kind), of))
    ]
    text = yaml.safe_dump(
        {
            "schema": SCHEMA,
            "source": SOURCE.format(runs=sum(row.pop("runs") for row in errors)),
            "llms": [*LLMS.values(), "DeepSeek-V3", "DeepSeek-V3.1"],
            "errors": errors,
        },
        sort_keys=False,
        default_flow_style=None,
        width=100,
    )
    print(text)
    if arguments.write:
        arguments.write.write_text(text)


def error_of(apart: bool, kind: str, runs: pd.DataFrame) -> dict | None:
    """Return the row of a class, with the number of its runs; None where it has few."""
    loaded = runs[runs.level >= LEVELS[0]]
    same = [group for _, group in loaded.groupby("configuration")]
    if len(same) < FEWEST:
        return None
    quantiles = {
        name: np.quantile(
            [group[name].median() for group in same],
            [0.1, 0.5, 0.9],
            method="inverted_cdf",
        )
        for name in ("tpot", "capacity")
    }
    return {
        "of": OF.get(kind, [kind]),
        "disaggregated": apart,
        "sweeps": len(same),
        **{name: values.round(3).tolist() for name, values in quantiles.items()},
        "runs": len(loaded),
    }


def of_one_pool(runs: pd.DataFrame) -> Iterator[dict]:
    """Yield the runs of one pool."""
    held = served_loops.runs_of_one_pool(runs)
    held = held[held.left_out.isin(["", "queued"])]
    for key, of in held.groupby(SAME, dropna=False):
        first = next(of.itertuples())
        layout = layout_of(first)
        tables = None if layout is None else tables_of(first, layout)
        assert layout is not None
        assert tables is not None

        def at(users, run=first, layout=layout, tables=tables):
            return served_loops.simulated(run._replace(conc=users), layout, tables, 1.0)

        kind = str(first.kind)
        yield from compared(of, at, "output_tput_per_gpu", key, False, kind)


def of_two_pools(runs: pd.DataFrame) -> Iterator[dict]:
    """Yield the runs of two pools whose workers are told."""
    held = served_pools.runs_of_two_pools(runs)
    for key, of in held.groupby(served_pools.SAME, dropna=False):
        first = next(of.itertuples())
        try:
            fleet, kind = served_pools.pools(first)
        except InputError:
            continue

        def at(users, run=first, fleet=fleet):
            return served_pools.simulated(run._replace(conc=users), fleet)

        kind = kind.removeprefix("decode pools, ")
        yield from compared(of, at, "tput_per_gpu", key, True, kind)


def compared(
    runs: pd.DataFrame,
    at: Callable[[int], tuple[float, float]],
    load: str,
    configuration: object,
    apart: bool,
    kind: str,
) -> Iterator[dict]:
    """Yield the runs of a configuration beside its simulations; column ``load``."""
    most = int(runs.conc.max())
    doublings = np.arange(0, np.log2(BEYOND * most), 1 / PER_DOUBLING)
    users = np.unique(np.round(2**doublings).astype(int)).tolist()
    try:
        curve = np.array([(count, *at(count)) for count in users])
    except InputError:  # the engine does not hold a run's lengths
        return
    for run in runs.itertuples():
        tpot_s = measured_tpot_s(run)
        simulated_s = np.interp(run.conc, curve[:, 0], curve[:, 1])
        sustained = within(curve, tpot_s)
        yield {
            "configuration": str(configuration),
            "apart": apart,
            "kind": kind,
            "level": simulated_s / curve[0, 1],
            "tpot": tpot_s / simulated_s,
            "capacity": min(MOST, getattr(run, load) / max(sustained, 1e-9)),
        }


def within(curve: Curve, tpot_s: float) -> float:
    """Return the most tokens/s per GPU within a TPOT; 0 where one user's is above."""
    tpots_s, sustained = np.maximum.accumulate(curve[:, 1:]).T
    if tpot_s < tpots_s[0]:
        return 0.0
    return float(np.exp(np.interp(tpot_s, tpots_s, np.log(sustained))))


if __name__ == "__main__":
    main()
