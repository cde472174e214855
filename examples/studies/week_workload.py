"""Make the workload azure-week-like from the recipe in its YAML.

    python examples/studies/week_workload.py --out week.csv.gz
    python examples/studies/week_workload.py --rate-per-s 5 --out week.csv.gz
    python examples/studies/week_workload.py --fit hourly.txt

The first makes the file that ships, the second a busier week of the same shape. The
last prints the curves fitted to 168 hourly rates from Monday 00:00, one per line.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from capplan.files import new_file
from capplan.shipped import shipped
from capplan.workload.arrivals import parse_arrivals
from capplan.workload.catalog import read_yaml
from capplan.workload.days import DAY_S
from capplan.workload.week_curve import WEEKEND, harmonics, share_of_rate

HOUR_S = 3600.0
WEEK_S = 7 * DAY_S
HARMONICS = 4
"""Of a day: 24, 12, 8 and 6 hours. More hardly bring the fit nearer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file to write the requests to")
    parser.add_argument("--rate-per-s", type=float, help="mean rate of the week")
    parser.add_argument("--fit", type=Path, help="file of 168 rates to fit curves to")
    arguments = parser.parse_args()
    if arguments.fit:
        for name, curve in fitted(np.loadtxt(arguments.fit)).items():
            print(f"{name}: {curve}")
    if arguments.out:
        recipe = week_recipe()
        if arguments.rate_per_s:
            recipe["rate_per_s"] = arguments.rate_per_s
        lines = csv_lines(recipe)
        with new_file(arguments.out) as stream:
            stream.write("\n".join(lines) + "\n")
        print(f"{arguments.out}: {len(lines) - 1:,} requests")


def week_recipe() -> dict[str, Any]:
    """Return the recipe of azure-week-like, with the lengths it takes by name."""
    recipe: dict[str, Any] = read_yaml(shipped("workloads") / "azure-week-like.yaml")
    recipe = recipe["recipe"]
    named = read_yaml(shipped("workloads") / f"{recipe['lengths']}.yaml")
    return recipe | {"lengths": named["recipe"]}


def csv_lines(recipe: Mapping[str, Any]) -> list[str]:
    """Return the lines of the CSV that a recipe makes."""
    rng = np.random.default_rng(recipe["seed"])
    arrival_s = arrivals_s(recipe, rng)
    lengths = lengths_tokens(recipe["lengths"], len(arrival_s), rng)
    rows = zip(arrival_s.tolist(), *lengths.tolist(), strict=True)
    return ["arrival_s,prompt_tokens,output_tokens"] + [
        f"{at_s:.3f},{prompt},{output}" for at_s, prompt, output in rows
    ]


def arrivals_s(recipe: Mapping[str, Any], rng: np.random.Generator) -> np.ndarray:
    """Return the arrivals of a week, shape (n,). [s]

    A process at the rate of the busiest minute, of which each request stays with the
    share of that rate at its time (Lewis and Shedler 1979).
    """
    curves = recipe["share_of_rate"]
    peak = share_of_rate(curves, np.arange(0, WEEK_S, 60.0)).max()
    peak_per_s = recipe["rate_per_s"] * peak
    enough = int(1.1 * peak_per_s * WEEK_S) + 1000
    process = parse_arrivals(recipe["arrivals"])
    at_s = process.arrivals_s(enough, peak_per_s, rng)
    assert at_s[-1] >= WEEK_S, "the process is too uneven for one tenth more"
    at_s = at_s[at_s < WEEK_S]
    return at_s[rng.random(len(at_s)) * peak < share_of_rate(curves, at_s)]


def lengths_tokens(
    mixture: Mapping[str, Any], n: int, rng: np.random.Generator
) -> np.ndarray:
    """Return prompt and output tokens of bivariate lognormals, shape (2, n)."""
    parts = mixture["components"]
    weights = np.array([part["weight"] for part in parts])
    chosen = rng.choice(len(parts), n, p=weights / weights.sum())
    normal = rng.standard_normal((n, 2))
    mean = np.array([part["mean_log"] for part in parts])[chosen]
    var_prompt, covariance, var_output = np.array(
        [part["covariance_log"] for part in parts]
    )[chosen].T
    slope = covariance / var_prompt
    prompt = mean[:, 0] + np.sqrt(var_prompt) * normal[:, 0]
    output = mean[:, 1] + slope * (prompt - mean[:, 0])
    output += np.sqrt(var_output - slope * covariance) * normal[:, 1]
    bounds = (mixture["prompt_bounds_tokens"], mixture["output_bounds_tokens"])
    return np.stack(
        [
            np.clip(np.rint(np.exp(log)), *bound).astype(np.int64)
            for log, bound in zip((prompt, output), bounds, strict=True)
        ]
    )


def fitted(hourly_rate_per_s: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return the curves nearest to 168 hourly rates from Monday, by least squares."""
    share = hourly_rate_per_s / hourly_rate_per_s.mean()
    at_s = HOUR_S * (np.arange(168) + 0.5)
    weekend = np.isin(at_s // DAY_S, WEEKEND)
    curves = {}
    for name, hours in (("weekday", ~weekend), ("weekend", weekend)):
        mean, *waves = np.linalg.lstsq(harmonics(at_s[hours], HARMONICS), share[hours])[
            0
        ].tolist()
        waves = [round(wave, 4) for wave in waves]
        curves[name] = {
            "mean": round(mean, 4),
            "cos": waves[:HARMONICS],
            "sin": waves[HARMONICS:],
        }
    return curves


if __name__ == "__main__":
    main()
