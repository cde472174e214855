"""Tables of how predictions meet sweeps of real engines, for docs/accuracy.md.

``served_accuracy.py`` fills them; run alone it prints what they hold.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from served_sweeps import Sweep

from capplan.calibration.sweep_score import SweepScore, users_within
from capplan.files import write_texts
from capplan.latency.capacity import LEVELS
from capplan.latency.engine_time import EngineTime

CAUTIOUS = 0.9
"""Quantile of the engines' times that estimates are planned with."""

SHORT = 1024
"""Longest prompt from which the front end's time is taken: longer ones take longer than
their kernels too. [tokens]"""


class TtftScore(NamedTuple):
    """TTFT of a load test where no queue forms."""

    llm: str
    gpu: str
    kind: str  # dense or a mixture of experts
    isl: int
    simulated_s: float  # without the front end
    measured_s: float


class Result(NamedTuple):
    """An engine's time, what it is for, and the sweeps it was left out of."""

    name: str
    time: EngineTime
    sweeps: tuple[Sweep, ...]
    scores: tuple[SweepScore, ...]
    keys: dict[str, object]  # of its row in the file of engine times


def request_s(scores: Sequence[TtftScore]) -> float:
    """Return the front end's time: what short prompts wait beyond their iterations."""
    short = [one for one in scores if one.isl <= SHORT]
    if not short:
        return 0.0
    waits_s = [one.measured_s - one.simulated_s for one in short]
    return round(float(np.median(waits_s)), 3)


def ttft_table(scores: Sequence[TtftScore]) -> Iterator[str]:
    """Yield TTFT with the front end's time found on other LLMs or GPUs of the kind."""
    yield "| TTFT at up to 8 users | prompt | runs | without | with, left out |"
    yield "|---|---|---|---|---|"
    for llm in sorted({one.llm for one in scores}):
        for isl in sorted({one.isl for one in scores if one.llm == llm}):
            its = [one for one in scores if (one.llm, one.isl) == (llm, isl)]
            without, added = (
                np.median(
                    [
                        (s.simulated_s + more * _others_s(s, scores)) / s.measured_s
                        for s in its
                    ]
                )
                for more in (0, 1)
            )
            yield f"| {llm} | {isl:,} | {len(its)} | {without:.2f} | {added:.2f} |"


def _others_s(one: TtftScore, scores: Sequence[TtftScore]) -> float:
    """Return the front end's time without the LLM on that GPU."""
    return request_s(
        [
            s
            for s in scores
            if s.kind == one.kind and (s.llm, s.gpu) != (one.llm, one.gpu)
        ]
    )


class Choice(NamedTuple):
    """TP degrees of an LLM on a GPU type compared within one TPOT."""

    gpu: str
    llm: str
    lengths: str
    limit_s: float
    measured: int  # degree with the most users per GPU
    predicted: int


def choices(results: Sequence[Result]) -> list[Choice]:
    """Return the best degrees of all groups of sweeps that differ in it."""
    groups: dict[tuple, dict[int, tuple[np.ndarray, ...]]] = defaultdict(dict)
    for one in results:
        for sweep, found in zip(one.sweeps, one.scores, strict=True):
            key = (sweep.source, sweep.gpu, sweep.llm.name, sweep.isl, sweep.osl)
            users = np.array([p.concurrency for p in sweep.points], np.float64)
            measured_s = np.array([p.tpot_s for p in sweep.points])
            groups[key][sweep.tp] = (users, measured_s, measured_s * found.ratios)
    rows = []
    for (_, gpu, llm, isl, osl), by_tp in groups.items():
        if len(by_tp) > 1:
            limit_s = 1.25 * max(measured.min() for _, measured, _ in by_tp.values())
            best = (_best(by_tp, at, limit_s) for at in (1, 2))
            rows.append(Choice(gpu, llm, f"{isl}/{osl}", limit_s, *best))
    return rows


def choice_of_tp(rows: Sequence[Choice]) -> Iterator[str]:
    """Yield whether the degree that serves most users per GPU is predicted."""
    yield "| GPU | LLM | in/out | limit | best measured | best predicted |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row.gpu} | {row.llm} | {row.lengths} | {row.limit_s * 1e3:.3g} ms | "
            f"TP {row.measured} | TP {row.predicted} |"
        )


def goals(
    used: Sequence[Result],
    guessed: Sequence[Result],
    quiet: Sequence[TtftScore],
    halves: Sequence[float],
) -> Iterator[str]:
    """Yield the goals of the predictions, and what was found."""
    yield "| | goal | found, left out |"
    yield "|---|---|---|"
    for family, kind, goal in (
        ("Hopper", "dense", "median 0.95 to 1.05, 80 % within 0.85 to 1.15"),
        ("Blackwell", "dense", "0.9 to 1.1"),
    ):
        users = np.array(
            [
                found.capacity[0]
                for one in used
                for sweep, found in zip(one.sweeps, one.scores, strict=True)
                if (sweep.family, sweep.kind) == (family, kind)
            ]
        )
        if len(users):
            near = np.mean(np.abs(users - 1) <= 0.15)
            yield (
                f"| users at 1.25×, {kind}, {family} ({len(users)} sweeps) | {goal} | "
                f"{np.median(users):.2f}, {near:.0%} within |"
            )
    yield from _tpot_goals(used)
    short, long = (
        [
            (one.simulated_s + _others_s(one, quiet)) / one.measured_s - 1
            for one in quiet
            if (one.isl <= SHORT) is is_short
        ]
        for is_short in (True, False)
    )
    for name, errors in (("up to 1,024", short), ("longer", long)):
        if errors:
            yield (
                f"| TTFT where no queue forms, prompts {name} | ≤ 10 % | "
                f"{np.median(errors):+.0%} in the median |"
            )
    for one in guessed:
        slower = one.time.served.slowdown(CAUTIOUS) if one.time.served else 1.0
        promised = np.array([1 / (found.tpot * slower) for found in one.scores])
        yield (
            f"| {one.name}: tokens/s promised ÷ measured | ≤ 1 in nine of ten, ≥ 0.6 | "
            f"{np.mean(promised <= 1.005):.0%} and {np.mean(promised >= 0.6):.0%} |"
        )
    if len(halves):
        yield (
            "| half of a sweep predicts the other users | ≤ 3 % in the median, ≤ 8 % | "
            f"{np.median(halves):.1%}, {np.quantile(halves, 0.9):.1%} in nine of ten, "
            f"{max(halves):.0%} at worst |"
        )
    rows = choices(used)
    right = sum(row.measured == row.predicted for row in rows)
    yield f"| choice of TP | 8 of 10 groups | {right} of {len(rows)} |"


def _tpot_goals(used: Sequence[Result]) -> Iterator[str]:
    for name, families in (
        ("all", ("Hopper", "Blackwell", "CDNA")),
        ("NVIDIA", ("Hopper", "Blackwell")),
        ("AMD", ("CDNA",)),
    ):
        found = {
            sweep[:-1]: score
            for one in used
            for sweep, score in zip(one.sweeps, one.scores, strict=True)
            if sweep.engine == "vllm" and sweep.family in families
        }
        if found:
            error = np.median([score.tpot_error for score in found.values()])
            bias = np.mean([score.tpot for score in found.values()]) - 1
            yield (
                f"| TPOT of vLLM, {name} ({len(found)} sweeps) | ≤ 5 % in the median, "
                f"bias within 2 % | {error:.1%}, bias {bias:+.1%} |"
            )


def _best(by_tp: dict[int, tuple[np.ndarray, ...]], column: int, limit_s: float) -> int:
    """Return the degree with the most users per GPU within a TPOT."""
    return max(
        by_tp,
        key=lambda tp: users_within(by_tp[tp][0], by_tp[tp][column], limit_s) / tp,
    )


def table(results: Sequence[Result]) -> Iterator[str]:
    """Yield a row for each result."""
    heads = ("TPOT", "error", *(f"users at {level:g}×" for level in LEVELS))
    yield (
        "| predicted ÷ measured | sweeps | "
        + " | ".join(heads)
        + " | 80 % | cautious |"
    )
    yield "|---|---|" + "---|" * (len(heads) + 2)
    for one in results:
        tpots = np.array([found.tpot for found in one.scores])
        error = np.median([found.tpot_error for found in one.scores])
        carried = np.array([s.capacity for s in one.scores])
        low, high = np.quantile(carried[:, 0], [0.1, 0.9])
        users = " | ".join(f"{value:.2f}" for value in np.median(carried, axis=0))
        served = one.time.served
        # Tokens per second at the same users, planned with the cautious quantile.
        promised = 1 / (tpots * (served.slowdown(CAUTIOUS) if served else 1.0))
        least, most = np.quantile(promised, [0.1, 0.9])
        yield (
            f"| {one.name} | {len(one.sweeps)} | {np.median(tpots):.3f} | "
            f"{error:.1%} | {users} | {low:.2f} to {high:.2f} | "
            f"{least:.2f} to {most:.2f} |"
        )


def worst(results: Sequence[Result]) -> Iterator[str]:
    """Yield every sweep that a plan's own profile predicts, the worst first."""
    yield (
        "| GPU | LLM | TP | in/out | engine | by | points | TPOT | error | "
        + " | ".join(f"users at {level:g}×" for level in LEVELS)
        + " |"
    )
    yield "|---|---|---|---|---|---|---|---|---|" + "---|" * len(LEVELS)
    rows = {}
    for one in results:
        for sweep, found in zip(one.sweeps, one.scores, strict=True):
            rows[sweep[:-1]] = (one, sweep, found)  # calibrated before kernel sums
    for one, sweep, found in sorted(
        rows.values(), key=lambda row: -abs(np.log(row[2].capacity[0]))
    ):
        users = " | ".join(f"{value:.2f}" for value in found.capacity)
        yield (
            f"| {sweep.gpu} | {sweep.llm.name} | {sweep.tp} | "
            f"{sweep.isl}/{sweep.osl} | "
            f"{sweep.engine} {sweep.version} | "
            f"{'kernel sum' if 'of' in one.keys else 'calibrated'} | "
            f"{len(found.ratios)} | "
            f"{found.tpot:.2f} | {found.tpot_error:.1%} | {users} |"
        )


MARKS = ("<!-- tables -->", "<!-- end of tables -->")


def between(path: Path, lines: Sequence[str]) -> None:
    """Write the tables between the two marks of a document."""
    before, _, rest = path.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    parts = (before + MARKS[0], "", *lines, "", MARKS[1] + after)
    write_texts({path.name: "\n".join(parts)}, path.parent)


if __name__ == "__main__":
    print(__doc__)
