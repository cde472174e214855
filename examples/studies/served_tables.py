"""Tables of how predictions meet load tests of real engines.

They stand in docs/internals/accuracy.md; ``served_accuracy.py`` fills them from
sweeps predicted without their group.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from served_fits import Found, Key, family_of
from served_sets import DUMP, OTHER_CLUSTER

from capplan.calibration.sweep_score import users_within
from capplan.engines.catalog import title_of
from capplan.files import write_texts
from capplan.latency.capacity import LEVELS
from capplan.latency.engine_rows import EngineRow
from capplan.latency.engine_time import WIDE

if TYPE_CHECKING:
    from served_accuracy import Errors, Halves

LONG = 1024
"""Prompts longer than this are long. [tokens]"""
HEAVY = 1900
"""Prompts from which a burst with short answers is prompt-heavy. [tokens]"""
MANY_USERS, FEWEST_TTFT = 64, 8
"""Users from which TTFT is told apart, and runs from which it is told at all."""
MANY = 4
"""Groups from which a version's goal is judged."""


def ratios(found: Sequence[Found], metric: str) -> list[float]:
    """Return predicted ÷ measured of a metric, over load tests.

    ``tpot``, ``short_ttft`` and ``long_ttft`` of closed loops, and ``heavy_tokens`` per
    second of bursts of long prompts.
    """
    values = []
    for one in found:
        for point, loop in zip(one.case.sweep.points, one.loops, strict=True):
            is_long = point.mean_isl > LONG
            if metric == "tpot" and point.tpot_s and not point.is_burst:
                values.append(loop.tpot_s / point.tpot_s)
            elif metric == "heavy_tokens" and _is_heavy(one, point):
                measured = point.output_tokens_per_s or 0.0
                values.append(loop.output_tokens_per_s / measured)
            elif (
                metric == ("long_ttft" if is_long else "short_ttft")
                and point.ttft_s
                and not point.is_burst
            ):
                values.append(loop.ttft_s / point.ttft_s)
    return values


def _is_heavy(one: Found, point) -> bool:
    return bool(
        point.is_burst
        and point.output_tokens_per_s
        and one.case.sweep.isl >= HEAVY
        and one.case.sweep.osl <= one.case.sweep.isl / 4
    )


def users(found: Sequence[Found]) -> np.ndarray:
    """Return predicted ÷ measured users at the lowest level, of each sweep scored."""
    scores = [one.score for one in found]
    return np.array([score.capacity[0] for score in scores if score is not None])


def nvidia(found: Sequence[Found]) -> list[Found]:
    """Return the sweeps on NVIDIA's GPUs, one cluster left out that is slower."""
    return [
        one
        for one in found
        if one.case.sweep.family != "CDNA" and one.case.sweep.source != OTHER_CLUSTER
    ]


NEAR, FAR = 0.15, 1.15
"""Errors of users within which a prediction is right, and above which it promises too
many."""


def goals(
    found: Sequence[Found],
    halved: Sequence[Found],
    errors: "Errors",
    half: "Halves",
) -> Iterator[str]:
    """Yield what was to be reached, and what was.

    ``found`` is predicted without its group, ``halved`` by the other half.
    """
    yield "| | goal | reached |"
    yield "|---|---|---|"
    heavy = [heavy_tokens(each) for each in (halved, found)]
    halved = [one for one in halved if one.score is not None]
    ours = nvidia(halved)
    vllm = [one for one in ours if one.case.sweep.engine == "vllm"]
    trtllm = [one for one in ours if one.case.sweep.engine == "trtllm"]
    amd = [one for one in halved if one.case.sweep.family == "CDNA"]
    hopper, blackwell = (of_gpus(vllm, name) for name in ("Hopper", "Blackwell"))
    yield (
        "| NVIDIA vLLM within 15 % of users, half by half | 85 % (Hopper 90, "
        f"Blackwell 75) | {near(vllm)} (Hopper {near(hopper)}, "
        f"Blackwell {near(blackwell)}) |"
    )
    yield (
        f"| all NVIDIA engines; AMD | 75 %; 65 % | {near(ours)} (TensorRT-LLM "
        f"{near(trtllm)}); {near(amd)} (groups left out: {near(nvidia(found))}; "
        f"{near([one for one in found if one.case.sweep.family == 'CDNA'])}) |"
    )
    new = [one for one in halved if one.case.sweep.source == DUMP and one.row.llms]
    yield (
        f"| LLMs of 2026 with a row, half by half: mean error factor | 1.3 | "
        f"{factor(new)}, NVIDIA {factor(nvidia(new))} |"
    )
    unknown = [one for one in errors.kinds if is_new(one)]
    yield (
        "| LLMs without a row: promises more than 1.15 × the measured | 2 in 10 by the "
        f"cautious count | {promises(unknown, errors)} |"
    )
    held = {
        name: ranges(its, errors)
        for name, its in (
            ("all", ours),
            ("Hopper, vLLM", hopper),
            ("Blackwell, vLLM", blackwell),
            ("TensorRT-LLM", trtllm),
            ("AMD", amd),
            ("AMD, vLLM", [one for one in amd if one.case.sweep.engine == "vllm"]),
            ("AMD, SGLang", [one for one in amd if one.case.sweep.engine == "sglang"]),
        )
    }
    told = ", ".join(
        f"{name} {np.mean([is_in for is_in, _ in its]):.0%} "
        f"× {np.median([width for _, width in its]):.2f}"
        for name, its in held.items()
        if its
    )
    yield (
        "| printed ranges hold the other half; median width | 75 to 90 %; Hopper "
        f"≤ × 1.45, Blackwell ≤ × 3.5 | {told} |"
    )
    yield (
        "| prompt-heavy tokens/s within 20 %, half by half | 75 % | "
        f"{heavy[0]} (groups left out: {heavy[1]}) |"
    )
    yield (
        f"| counts within one of 7 | 7 of 8; new LLMs 7 of 10 | {counts(ours)}; "
        f"without their family {counts(unknown)} |"
    )
    if half.other_shapes:
        told = np.mean(np.abs(np.array(half.other_shapes) - 1) <= NEAR)
        yield (
            "| `fit --onto`, other lengths, within 15 % | 80 % | "
            f"{told:.0%} ({len(half.other_shapes)}) |"
        )
    late = np.array(ratios(nvidia(found), "long_ttft"))
    if len(late):
        yield (
            f"| TTFT, prompts above {LONG:,} tokens ({len(late)} runs) | – | "
            f"{np.median(np.abs(late - 1)):.0%}, ratio {np.median(late):.2f} |"
        )
    rows = choices(nvidia(found))
    if rows:
        right = np.mean([row.served_share >= 0.95 for row in rows])
        yield (
            f"| choice of TP ({len(rows)} groups): ≥ 95 % of the best served | – | "
            f"{right:.0%} |"
        )


def is_new(one: Found) -> bool:
    """Return whether a sweep is of an LLM of 2026, on what a plan takes."""
    return one.case.sweep.source == DUMP and not one.case.is_unknown


def first_tokens(halved: Sequence[Found]) -> Iterator[str]:
    """Yield how TTFT is met by the other half, by engine and users."""
    yield "| TTFT, half by half | runs | predicted ÷ measured | 80 % | within 20 % |"
    yield "|---|---|---|---|---|"
    of: dict[str, list[float]] = defaultdict(list)
    for one in halved:
        sweep = one.case.sweep
        for point, loop in zip(sweep.points, one.loops, strict=True):
            if not point.ttft_s or point.is_burst or sweep.source == OTHER_CLUSTER:
                continue
            engine = title_of(sweep.engine)
            users = point.concurrency or 0
            told = "medians" if point.median else "means"
            for name in (
                f"{engine}, {told}",
                f"{engine}, {MANY_USERS} users and more" if users >= MANY_USERS else "",
                f"{sweep.llm.name} on {sweep.gpu}, {engine}",
            ):
                of[name].append(loop.ttft_s / point.ttft_s)
    for name in sorted(of):
        values = np.array(of[name])
        if name and len(values) >= FEWEST_TTFT:
            low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
            share = np.mean(np.abs(values - 1) <= 0.2)
            yield (
                f"| {name} | {len(values)} | {middle:.2f} | {low:.2f} to {high:.2f} | "
                f"{share:.0%} |"
            )


def of_gpus(found: Sequence[Found], family: str) -> list[Found]:
    """Return the sweeps on a family of GPUs."""
    return [one for one in found if one.case.sweep.family == family]


def near(found: Sequence[Found]) -> str:
    """Return the share of sweeps whose users are predicted within 15 %."""
    its = users(found)
    if not len(its):
        return "–"
    return f"{np.mean(np.abs(its - 1) <= NEAR):.0%} of {len(its)}"


def factor(found: Sequence[Found]) -> str:
    """Return the mean factor by which users are missed, and the median ratio."""
    its = users(found)
    if not len(its):
        return "–"
    mean = np.exp(np.abs(np.log(its)).mean())
    return f"{mean:.2f} ({len(its)} sweeps, median {np.median(its):.2f})"


def heavy_tokens(found: Sequence[Found]) -> str:
    """Return the share of bursts of long prompts whose tokens/s are within 20 %."""
    its = np.array(ratios(nvidia(found), "heavy_tokens"))
    if not len(its):
        return "none"
    share = np.mean(np.abs(its - 1) <= 0.2)
    return f"{share:.0%} of {len(its)}, median {np.median(its):.2f}"


def counts(found: Sequence[Found]) -> str:
    """Return how many counts are within one of 7 replicas that the measured need."""
    if not found:
        return "none"
    its = np.ceil(7 / users(found) - 1e-9)
    return f"{np.mean(np.abs(its - 7) <= 1):.0%} of {len(its)}"


def promises(found: Sequence[Found], errors: "Errors") -> str:
    """Return how often a count promises too much: the median's, and the cautious."""
    middle, low = [], []
    for one, ratio in zip(found, users(found), strict=True):
        family = family_of(one.case.sweep.llm.name)
        error = errors.of(one.keys[0]._replace(llms=()), but=family)
        assert error is not None
        middle.append(ratio)
        slower = [
            loop._replace(tpot_s=max(1.0, error.tpot[2]) * loop.tpot_s)
            for loop in one.loops
        ]
        low += users([one._replace(loops=tuple(slower))]).tolist()
    if not found:
        return "none"
    told = [np.mean(np.array(each) > FAR) for each in (low, middle)]
    return f"{told[0]:.0%} of {len(low)}; the median's {told[1]:.0%}"


def ranges(found: Sequence[Found], errors: "Errors") -> list[tuple[bool, float]]:
    """Return whether the range of the other groups holds each sweep, and its width."""
    made = []
    for one, ratio in zip(found, users(found), strict=True):
        key = one.keys[-1]
        error = errors.of(key, but=one.case.sweep.group)
        if error is not None:
            low, _, high = error.capacity
            made.append((bool(low <= 1 / ratio <= high), high / low))
    return made


def by(found: Sequence[Found], name: Callable) -> dict[str, list[Found]]:
    """Return sweeps by a name of theirs, in order."""
    groups: dict[str, list[Found]] = defaultdict(list)
    for one in found:
        groups[name(one.case.sweep)].append(one)
    return {key: groups[key] for key in sorted(groups)}


def row_table(rows: Sequence[tuple[Key, EngineRow]]) -> Iterator[str]:
    """Yield what was fitted: the times of each row, and its range."""
    yield (
        "| kernels | GPUs | LLMs | engine | decode | prefill | iteration | a request "
        "in it | front end | a prompt token | users in 80 %, measured ÷ predicted |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for key, row in rows:
        served = row.served
        text = "–"
        if served is not None:
            low, _, high = served.capacity
            text = f"{low:.2f} to {high:.2f} ({served.sweeps} sweeps)"
            if not row.llms and high >= WIDE * low:
                text = f"none: {text}"
        more = ""
        if row.prefill_iteration_s:
            more = f", with prefill {row.prefill_iteration_s * 1e3:.1f} ms more"
        yield (
            f"| {key.of} | {key.family} | {', '.join(key.llms) or key.kind} | "
            f"{row.engine_name} | × {row.decode_factor:.2f} | "
            f"× {row.prefill_factor:.2f} | {row.iteration_s * 1e3:.2f} ms{more} | "
            f"{row.per_request_s * 1e6:.0f} µs | {row.request_s * 1e3:.0f} ms | "
            f"{row.prompt_token_s * 1e6:.0f} µs | {text} |"
        )


def prompt_table(rows: Sequence[EngineRow]) -> Iterator[str]:
    """Yield what bursts tell of LLMs without a row of their own on a GPU type."""
    yield "| GPU | LLM | engine | kernels | prefill, of bursts alone |"
    yield "|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row.gpus[0]} | {row.llms[0]} | {row.engine_name} | {row.of} | "
            f"× {row.prefill_factor:.2f} |"
        )


def group_table(found: Sequence[Found]) -> Iterator[str]:
    """Yield every group as predicted without it."""
    yield (
        "| LLM | GPU | engine | source | by | runs | TPOT | users at 1.25× | within "
        "15 % | TTFT to 1,024 | TTFT longer | tokens/s, prompt-heavy |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    groups: dict[tuple, list[Found]] = defaultdict(list)
    for one in found:
        groups[(*one.case.sweep.group, one.case.sweep.source, one.case.of)].append(one)
    for (llm, gpu, engine, source, of), its in sorted(groups.items()):
        scored = users(its)
        near = f"{np.mean(np.abs(scored - 1) <= 0.15):.0%}" if len(scored) else "–"
        middles = [
            _middle(ratios(its, name))
            for name in ("tpot", "short_ttft", "long_ttft", "heavy_tokens")
        ]
        row = its[0].row
        kind = "own" if row.llms else "kind"
        runs = sum(len(one.loops) for one in its)
        yield (
            f"| {llm} | {gpu} | {engine} | {source} | {of}, {kind} of "
            f"{row.engine_name} | {runs} | {middles[0]} | {_middle(scored)} | {near} | "
            f"{' | '.join(middles[1:])} |"
        )


def _middle(values: Sequence[float] | np.ndarray) -> str:
    return f"{np.median(values):.2f}" if len(values) else "–"


class Choice(NamedTuple):
    """TP degrees of an LLM on a GPU type compared within one TPOT."""

    gpu: str
    llm: str
    engine: str
    lengths: str
    limit_s: float
    measured: int  # degree with the most users per GPU
    predicted: int
    served_share: float  # users per GPU of the predicted over those of the measured


def choices(found: Sequence[Found]) -> list[Choice]:
    """Return the best degrees of all groups of sweeps that differ in it."""
    groups: dict[tuple, dict[int, tuple[np.ndarray, ...]]] = defaultdict(dict)
    for one in found:
        if one.score is None:
            continue
        sweep = one.case.sweep
        key = (sweep.source, *sweep.group, sweep.isl, sweep.osl)
        at = np.array([point.concurrency for point in sweep.points], np.float64)
        measured_s = np.array([point.tpot_s for point in sweep.points])
        groups[key][sweep.tp] = (at, measured_s, measured_s * one.score.ratios)
    rows = []
    for (_, llm, gpu, engine, isl, osl), by_tp in groups.items():
        if len(by_tp) > 1:
            limit_s = 1.25 * max(measured.min() for _, measured, _ in by_tp.values())
            served = {
                tp: [users_within(at[0], at[row], limit_s) / tp for row in (1, 2)]
                for tp, at in by_tp.items()
            }
            best = max(served, key=lambda tp: served[tp][0])
            pick = max(served, key=lambda tp: served[tp][1])
            share = served[pick][0] / served[best][0]
            lengths = f"{isl}/{osl}"
            rows.append(Choice(gpu, llm, engine, lengths, limit_s, best, pick, share))
    return rows


def choice_of_tp(rows: Sequence[Choice]) -> Iterator[str]:
    """Yield what the degree predicted best serves of what the best one does."""
    yield "| GPU | LLM | engine | in/out | limit | best | predicted | serves |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row.gpu} | {row.llm} | {row.engine} | {row.lengths} | "
            f"{row.limit_s * 1e3:.3g} ms | TP {row.measured} | TP {row.predicted} | "
            f"{row.served_share:.0%} |"
        )


def worst(found: Sequence[Found]) -> Iterator[str]:
    """Yield every sweep scored in users, the worst first."""
    yield (
        "| GPU | LLM | TP | in/out | engine | points | TPOT | error | "
        + " | ".join(f"users at {level:g}×" for level in LEVELS)
        + " |"
    )
    yield "|---|---|---|---|---|---|---|---|" + "---|" * len(LEVELS)
    scored = [(one.case.sweep, one.score) for one in found if one.score is not None]
    for sweep, score in sorted(
        scored, key=lambda pair: -abs(np.log(pair[1].capacity[0]))
    ):
        levels = " | ".join(f"{value:.2f}" for value in score.capacity)
        yield (
            f"| {sweep.gpu} | {sweep.llm.name} | {sweep.tp} | {sweep.isl}/{sweep.osl} "
            f"| {sweep.engine} {sweep.version} | {len(score.ratios)} | "
            f"{score.tpot:.2f} | {score.tpot_error:.1%} | {levels} |"
        )


MARKS = ("<!-- tables -->", "<!-- end of tables -->")


def between(path: Path, lines: Sequence[str], marks: tuple[str, str] = MARKS) -> None:
    """Write the tables between the two marks of a document."""
    before, _, rest = path.read_text(encoding="utf-8").partition(marks[0])
    after = rest.partition(marks[1])[2]
    parts = (before + marks[0], "", *lines, "", marks[1] + after)
    write_texts({path.name: "\n".join(parts)}, path.parent)


if __name__ == "__main__":
    print(__doc__)
