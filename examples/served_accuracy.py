"""Fit the engine's own time to sweeps of real engines, and score it on others.

    python examples/served_accuracy.py [--data FOLDER] [--docs FILE] [--out PROFILES]

``FOLDER`` (default ``../shared/data``) holds ``served/sweeps.csv`` and
``iteration_times/silicon_end_to_end.csv``. Every figure of a sweep comes from a fit to
the other sweeps. ``--docs`` writes the tables of ``docs/accuracy.md``; ``--out`` writes
``engine_times.yaml`` and the calibrated profiles into a folder of profiles. Data that
is absent is named.
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from served_sweeps import DATA, FAMILIES, Sweep, quiet_tests, read_sweeps
from served_tables import (
    Result,
    TtftScore,
    between,
    choice_of_tp,
    choices,
    goals,
    request_s,
    table,
    ttft_table,
    worst,
)

from capplan.calibration.sweep_fit import Served, SweepFit, fit_engine_time
from capplan.calibration.sweep_profile import calibrated as with_time
from capplan.calibration.sweep_score import (
    SweepScore,
    score,
    served_error,
)
from capplan.deployment import replica
from capplan.errors import CapplanError, CapplanWarning
from capplan.files import write_texts
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import (
    known_profile,
    list_profiles,
    load_listed,
    profile_path,
)
from capplan.latency.engine_time import SCHEMA, SHIPPED, EngineTime
from capplan.latency.estimate import estimate_from
from capplan.latency.profile import Profile
from capplan.latency.profile_file import save_profile, yaml_text
from capplan.latency.roofline import roofline_profile
from capplan.llm.catalog import twins

CALIBRATED = ("gpt-oss-120b", "DeepSeek-R1")
"""LLMs whose profiles are calibrated on every GPU with sweeps; others on CDNA only."""

ENOUGH = 4
"""Sweeps of an LLM on a GPU type from which their own spread is taken."""

PRIOR = EngineTime(source="", iteration_s=7e-4, per_request_s=4e-5)


def kernels_of(sweep: Sweep) -> Profile | None:
    """Return the shipped profile of kernels of a sweep, or None."""
    profile = known_profile(sweep.llm, sweep.gpu, sweep.tp)
    if profile is not None and profile.kernels_from == "kernel-sum":
        return profile
    return None


def left_out(
    sweeps: Sequence[Sweep],
    profiles: Sequence[Profile],
    groups: Sequence[object],
    **fit: bool,
) -> list[SweepScore]:
    """Return the score of each sweep by the fit to the other groups' sweeps."""
    tests = [sweep.served(at) for sweep, at in zip(sweeps, profiles, strict=True)]
    scores: dict[int, SweepScore] = {}
    for group in dict.fromkeys(groups):
        others = [
            test
            for tests_of, its in zip(tests, groups, strict=True)
            if its != group
            for test in tests_of
        ]
        time = fit_engine_time(others, PRIOR, **fit).time if others else PRIOR
        for at, its in enumerate(groups):
            if its == group:
                scores[at] = scored(sweeps[at], tests[at], time)
    return [scores[at] for at in range(len(sweeps))]


def scored(sweep: Sweep, tests: Sequence[Served], time: EngineTime) -> SweepScore:
    """Return the score of a sweep by an engine's time."""
    return score(
        [point.concurrency for point in sweep.points],
        [point.tpot_s or 0.0 for point in sweep.points],
        [test.simulated(time).tpot_s for test in tests],
    )


def result(
    name: str,
    sweeps: Sequence[Sweep],
    profiles: Sequence[Profile],
    groups: Sequence[object],
    keys: dict[str, object],
    **fit: bool,
) -> Result:
    """Fit an engine's time to sweeps, and score each by a fit without its group."""
    scores = left_out(sweeps, profiles, groups, **fit)
    tests = [
        test
        for sweep, profile in zip(sweeps, profiles, strict=True)
        for test in sweep.served(profile)
    ]
    fitted = fit_engine_time(tests, PRIOR, **fit)
    kinds = sorted({f"{sweep.llm.name} on {sweep.gpu}" for sweep in sweeps})
    time = fitted.time.model_copy(
        update={
            "engine": " and ".join(sorted({sweep.engine for sweep in sweeps})),
            "engine_version": "–".join(
                dict.fromkeys(sorted({s.version for s in sweeps if s.version}))
            ),
            "source": f"{len(sweeps)} sweeps of {', '.join(kinds)} "
            f"({'; '.join(sorted({sweep.source for sweep in sweeps}))})",
            "served": served_error(scores, groups),
        }
    )
    return Result(name, rounded(time, fitted), tuple(sweeps), tuple(scores), keys)


def rounded(time: EngineTime, fitted: SweepFit) -> EngineTime:
    """Return the time to three digits, which is more than the sweeps determine."""
    names = ("factor", "iteration_s", "per_request_s")
    values = {name: float(f"{getattr(fitted.time, name):.3g}") for name in names}
    least = 1e-7  # of a second: nothing
    return time.model_copy(
        update={name: value if value > least else 0.0 for name, value in values.items()}
    )


def kernel_sums(sweeps: Sequence[Sweep]) -> Iterator[Result]:
    """Yield the engine's time over sums of kernels, by family of GPUs and kind of LLM.

    Of the oldest engines that the sweeps have; gpt-oss stands for mixtures of experts.
    """
    found = [
        (sweep, profile)
        for sweep in sweeps
        if sweep.engine == "vllm" and (profile := kernels_of(sweep)) is not None
    ]
    for family, gpus in FAMILIES.items():
        for kind in ("dense", "experts"):
            pairs = [p for p in found if (p[0].family, p[0].kind) == (family, kind)]
            if len(pairs) < 3:
                continue
            its, profiles = zip(*pairs, strict=True)
            yield result(
                f"kernel sums, {kind}, {family}",
                its,
                profiles,
                range(len(its)),
                {"of": "kernel-sum", "gpus": list(gpus), "experts": kind == "experts"},
                fixed_factor=True,
            )


def rooflines(sweeps: Sequence[Sweep]) -> Iterator[Result]:
    """Yield the time over data sheets alone; an LLM on a GPU type is left out whole."""
    for family, gpus in FAMILIES.items():
        for kind in ("dense", "experts"):
            its = [s for s in sweeps if (s.family, s.kind) == (family, kind)]
            if not its:
                continue
            groups: list[object] = [(sweep.gpu, sweep.llm.name) for sweep in its]
            if len(set(groups)) < 2:
                groups = list(range(len(its)))
            yield result(
                f"data sheets, {kind}, {family}",
                its,
                [roofline_profile(s.llm, find_gpu(s.gpu), s.tp) for s in its],
                groups,
                {"of": "roofline", "gpus": list(gpus), "experts": kind == "experts"},
            )


def estimates(sums: Sequence[Result]) -> Iterator[Result]:
    """Yield the errors of estimates from other TP degrees and other GPU types.

    Each sweep is predicted with the engine's time of its kind, which was fitted to it
    among others: what is left out here is the profile.
    """
    shipped = [load_listed(listed.path) for listed in list_profiles()]
    for of in ("other-tp", "other-gpu"):
        its: list[Sweep] = []
        scores: list[SweepScore] = []
        for sums_of in sums:
            for sweep in sums_of.sweeps:
                known = _others(sweep, shipped, of)
                if known:
                    at = find_gpu(sweep.gpu)
                    made = estimate_from(known, sweep.llm, at, sweep.tp)
                    its.append(sweep)
                    scores.append(scored(sweep, sweep.served(made), sums_of.time))
        if not scores:
            continue
        error = served_error(scores, [(s.gpu, s.llm.name) for s in its])
        for sums_of in sums:
            yield Result(
                f"estimates from another {of.removeprefix('other-').upper()}",
                sums_of.time.model_copy(update={"served": error}),
                tuple(its),
                tuple(scores),
                {**sums_of.keys, "of": of},
            )


def _others(sweep: Sweep, shipped: Sequence[Profile], of: str) -> list[Profile]:
    """Return the kernel sums of the sweep's LLM at other degrees or on other GPUs."""
    names = (sweep.llm.name, *twins(sweep.llm))
    kernels = [p for p in shipped if p.llm in names and p.kernels_from == "kernel-sum"]
    if of == "other-tp":
        return [p for p in kernels if p.gpu == sweep.gpu and p.tp != sweep.tp]
    return [p for p in kernels if p.gpu != sweep.gpu]


def calibrated(sweeps: Sequence[Sweep]) -> list[Result]:
    """Return the time of each LLM and GPU type whose profiles are calibrated.

    Few sweeps say little of their own spread: those take that of all calibrated on the
    same family of GPUs.
    """
    by_pair: dict[tuple[str, str], list[Sweep]] = defaultdict(list)
    for sweep in sweeps:
        if sweep.llm.name in CALIBRATED or sweep.family == "CDNA":
            by_pair[sweep.gpu, sweep.llm.name].append(sweep)
    results = []
    for (gpu, llm), its in by_pair.items():
        bases = [
            kernels_of(s) or roofline_profile(s.llm, find_gpu(gpu), s.tp) for s in its
        ]
        name = f"{llm} on {gpu}"
        keys: dict[str, object] = {"gpu": gpu, "llm": llm}
        results.append(result(name, its, bases, range(len(its)), keys))
    return [_with_spread(one, results) for one in results]


def _with_spread(one: Result, results: Sequence[Result]) -> Result:
    """Return a result of few sweeps with the errors of its family's."""
    if len(one.sweeps) >= ENOUGH:
        return one
    alike = [
        other
        for other in results
        if other.sweeps[0].family == one.sweeps[0].family and len(other.sweeps) > 1
    ]
    scores = [found for other in alike for found in other.scores]
    error = served_error(scores, [other.name for other in alike for _ in other.scores])
    return one._replace(time=one.time.model_copy(update={"served": error}))


def front_end(tests: Sequence[Sweep], sums: Sequence[Result]) -> list[TtftScore]:
    """Return simulated and measured TTFT where no queue forms."""
    times = {(one.sweeps[0].family, one.sweeps[0].kind): one.time for one in sums}
    scores = []
    for sweep in tests:
        profile = kernels_of(sweep)
        if profile is not None:
            [test] = sweep.served(profile)
            found = test.simulated(times[sweep.family, sweep.kind])
            scores.append(
                TtftScore(
                    sweep.llm.name,
                    sweep.gpu,
                    sweep.kind,
                    sweep.isl,
                    found.ttft_s,
                    test.point.ttft_s or 0.0,
                )
            )
    return scores


def halves(sweeps: Sequence[Sweep]) -> list[float]:
    """Return the errors of TPOT at every other concurrency, fitted to the rest."""
    errors = []
    for sweep in sweeps:
        if len(sweep.points) < 5:
            continue
        base = kernels_of(sweep)
        base = base or roofline_profile(sweep.llm, find_gpu(sweep.gpu), sweep.tp)
        tests = sweep.served(base)
        time = fit_engine_time(tests[::2], PRIOR).time
        errors += [abs(t.simulated(time).slower(t.point) - 1) for t in tests[1::2]]
    return errors


def rows_of(results: Iterable[Result], added_s: dict[str, float]) -> str:
    """Return the file of engine times: the row of each kind, then those for all."""
    rows = []
    for one in results:
        time = one.time.model_dump(exclude_none=True, exclude={"served"})
        time["request_s"] = added_s["experts" if one.keys["experts"] else "dense"]
        served = one.time.served
        rows.append({**one.keys, **time, "served": served and served.model_dump()})
    # A GPU that no sweep is of gets the first family's time and the widest error.
    for of in ("kernel-sum", "other-tp", "other-gpu", "roofline"):
        for experts in (False, True):
            its = [r for r in rows if r["of"] == of and r["experts"] == experts]
            if its:
                widest = max(its, key=lambda row: row["served"]["tpot"][2])
                source = f"no sweep of this GPU type; {its[0]['source']}"
                row = {**its[0], "source": source, "served": widest["served"]}
                rows.append({k: v for k, v in row.items() if k != "gpus"})
    return yaml_text({"schema": SCHEMA, "times": rows})


def calibrate(one: Result, added_s: dict[str, float], folder: Path) -> None:
    """Write the calibrated profiles of an LLM on a GPU type, at every degree."""
    gpu, llm = find_gpu(str(one.keys["gpu"])), one.sweeps[0].llm
    for tp in (1, 2, 4, 8):
        sweep = one.sweeps[0]._replace(tp=tp)
        try:
            base = kernels_of(sweep) or roofline_profile(llm, gpu, tp)
            replica(llm, gpu, tp)
        except CapplanError:
            continue  # the LLM cannot be split so, or does not fit
        time = one.time.model_copy(update={"request_s": added_s[one.sweeps[0].kind]})
        profile = with_time(base, time).model_copy(
            update={
                "llm": llm.name,
                "engine": time.engine,
                "engine_version": time.engine_version,
            }
        )
        save_profile(profile, profile_path(folder, gpu.name, llm.name, tp))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--docs", type=Path, help="file to write the tables into")
    parser.add_argument("--out", type=Path, help="folder to write profiles into")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", CapplanWarning)
    sweeps = read_sweeps(arguments.data)
    if not sweeps:
        print("No sweeps: nothing to fit or to score.")
        return
    sums, pairs = list(kernel_sums(sweeps)), calibrated(sweeps)
    others, sheets = list(estimates(sums)), list(rooflines(sweeps))
    quiet = front_end(quiet_tests(arguments.data), sums)
    added_s = {
        kind: request_s([one for one in quiet if one.kind == kind])
        for kind in ("dense", "experts")
    }
    told = [one for one in pairs if len(one.sweeps) > 1]  # one has no other to tell it
    seen = [*sums, *told, *dict((r.name, r) for r in others).values(), *sheets]
    used = [*sums, *told]
    parts = (
        goals(used, seen[len(used) :], quiet, halves(sweeps)),
        table(seen),
        ttft_table(quiet),
        choice_of_tp(choices(used)),
        worst(used),
    )
    lines = [line for part in parts for line in (*part, "")]
    lines.append(
        "The API server's time is "
        + " and ".join(f"{s * 1e3:g} ms ({kind})" for kind, s in added_s.items())
        + " a request."
    )
    print("\n".join(lines))
    if arguments.docs:
        between(arguments.docs, lines)
    if arguments.out:
        for one in pairs:
            calibrate(one, added_s, arguments.out)
        times = rows_of([*sums, *others, *sheets], added_s)
        write_texts({SHIPPED: times}, arguments.out)


if __name__ == "__main__":
    main()
