"""Print how far estimates are from shipped kernel sums that they did not see.

Each profile is estimated from the others of its LLM: from other TP degrees on its GPU
type, then with all profiles of this GPU type left out, then those of its architecture,
then from data sheets alone.
Errors are signed: below 0 the estimate is too fast. Each profile counts once per phase,
with the median over the batch sizes, contexts and prompts below that it was measured
for:

    python examples/studies/estimate_errors.py
    python examples/studies/estimate_errors.py --by gpu
    python examples/studies/estimate_errors.py --docs docs/internals/latency.md
"""

import argparse
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capplan.errors import CapplanWarning, InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import list_profiles, load_listed
from capplan.latency.estimate import estimate_from, nearest
from capplan.latency.measurements import Points, points_from_rows
from capplan.latency.profile import Profile
from capplan.llm.catalog import llm as find_llm

BATCHES = (1, 8, 32, 128)
CONTEXTS = (1000, 4000)
PROMPTS = (512, 2048, 8192)
PHASES = ("decode", "prefill", "mixed")

KINDS = (
    "between TP degrees",
    "beyond TP degrees",
    "another GPU, same architecture",
    "another architecture",
    "data sheets alone",
)
"""Kinds of estimates, from the nearest to the farthest."""

TABLE = re.compile(r"\| estimate \(profiles\),.*?(?=\n\n)", re.DOTALL)

Row = tuple[str, str, dict[str, float]]
"""Kind of estimate, GPU estimated, median signed error by phase."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--by", choices=["gpu"], help="split by the GPU estimated")
    parser.add_argument("--docs", type=Path, help="file to write the table into")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", CapplanWarning)
    text = table(arguments.by == "gpu")
    print(text)
    if arguments.docs is not None:
        page = arguments.docs.read_text(encoding="utf-8")
        arguments.docs.write_text(TABLE.sub(lambda _: text, page), encoding="utf-8")


def table(by_gpu: bool = False) -> str:
    """Return the errors as a Markdown table: range (RMS) of each phase, in percent."""
    errors = defaultdict(list)
    for kind, gpu, error in estimates():
        name = f"{kind}, of {gpu}" if by_gpu else kind
        for phase in PHASES:
            errors[name, phase].append(error[phase])
    names = dict.fromkeys(name for name, _ in errors)
    rows = [
        "| estimate (profiles), 10th to 90th percentile (RMS), % "
        f"| {' | '.join(PHASES)} |",
        "|---|---|---|---|",
    ]
    for name in sorted(names, key=lambda name: (_place(name), name)):
        cells = []
        for phase in PHASES:
            values = 100 * np.array(errors[name, phase])
            low, high = np.quantile(values, [0.1, 0.9])
            rms = np.sqrt(np.mean(values**2))
            cells.append(f"{low:+.0f} to {high:+.0f} ({rms:.0f})")
        count = len(errors[name, PHASES[0]])
        rows.append(f"| {name} ({count}) | {' | '.join(cells)} |")
    return "\n".join(rows)


def _place(name: str) -> int:
    return [name.startswith(kind) for kind in KINDS].index(True)


def estimates() -> Iterator[Row]:
    """Yield a row for each profile and each way to estimate it."""
    by_llm = defaultdict(list)
    for listed in list_profiles():
        profile = load_listed(listed.path)
        if profile.how == "kernel-sum":
            by_llm[profile.llm].append(profile)
    for name, profiles in by_llm.items():
        try:
            llm = find_llm(name)
        except InputError:
            continue
        for truth in profiles:
            gpu, tp = find_gpu(truth.gpu), truth.tp
            for known in left_out(profiles, truth):
                estimate = estimate_from(known, llm, gpu, tp)
                yield kind_of(known, truth), truth.gpu, errors_of(estimate, truth)


def left_out(profiles: list[Profile], truth: Profile) -> Iterator[list[Profile]]:
    """Yield the profiles to estimate from; none for the data sheets alone."""
    here = [p for p in profiles if p.gpu == truth.gpu and p.tp != truth.tp]
    if here:
        yield here
    architecture = find_gpu(truth.gpu).architecture
    elsewhere = [p for p in profiles if p.gpu != truth.gpu]
    foreign = [p for p in elsewhere if find_gpu(p.gpu).architecture != architecture]
    if elsewhere and elsewhere != foreign:
        yield elsewhere
    if foreign:
        yield foreign
    yield []


def kind_of(known: list[Profile], truth: Profile) -> str:
    """Return what an estimate of ``truth`` from known profiles rests on."""
    source = nearest(known, find_gpu(truth.gpu), truth.tp)
    if source is None:
        return "data sheets alone"
    if source.gpu == truth.gpu:
        degrees = [profile.tp for profile in known]
        within = min(degrees) < truth.tp < max(degrees)
        return "between TP degrees" if within else "beyond TP degrees"
    gpu, other = find_gpu(truth.gpu), find_gpu(source.gpu)
    alike = gpu.architecture == other.architecture
    return "another GPU, same architecture" if alike else "another architecture"


def errors_of(estimate: Profile, truth: Profile) -> dict[str, float]:
    """Return the median signed error of each phase."""
    points = points_within(truth)
    error = estimate.predict(points) / truth.predict(points) - 1
    return {
        name: float(np.median(error[rows])) for name, rows in points.phases().items()
    }


def points_within(truth: Profile) -> Points:
    """Return the iterations to compare, of batch sizes that were measured."""
    assert truth.validity.decode
    most = truth.validity.decode.batch[1]
    rows = [("prefill", 1, prompt, 0, 1.0) for prompt in PROMPTS]
    for batch in (size for size in BATCHES if size <= most):
        rows += [("decode", batch, batch, context, 1.0) for context in CONTEXTS]
        rows += [("mixed", batch, p + batch, CONTEXTS[0], 1.0) for p in PROMPTS[:2]]
    return points_from_rows(rows)


if __name__ == "__main__":
    main()
