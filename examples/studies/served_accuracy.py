"""Fit the engine's own time to load tests of real engines, and score it on others.

    python examples/studies/served_accuracy.py \
        [--data FOLDER] [--docs FILE] [--out PROFILES]

``FOLDER`` (default ``../shared/data``) holds the files that ``served_sets.py`` names.
Every figure of a sweep comes from fits without its LLM, GPU and version, without its
family of LLMs, or to the other half of what was run. ``--docs``
writes the tables of ``docs/internals/accuracy.md``; ``--out`` writes
``engine_times.yaml`` and the profiles of AMD's GPUs into a folder of profiles. Data
that is absent is named.
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from accuracy_releases import beside, last_release
from measured_engine import measured_rows
from served_fits import (
    Case,
    Found,
    Key,
    Rows,
    cases,
    chosen,
    family_of,
    is_short,
    of_prompts,
    of_vllm,
    on_data_sheets,
    predicted,
    with_general,
)
from served_iterations import table as iteration_table
from served_sets import OTHER_CLUSTER
from served_sweeps import DATA, FAMILIES, Sweep, read_sweeps
from served_tables import (
    between,
    choice_of_tp,
    choices,
    first_tokens,
    goals,
    group_table,
    nvidia,
    prompt_table,
    row_table,
    worst,
)

from capplan.calibration.sweep_fit import fit_engine_time
from capplan.calibration.sweep_score import served_error
from capplan.deployment.replica import replica
from capplan.errors import CapplanError, CapplanWarning
from capplan.files import write_texts
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import list_profiles, load_listed, profile_path
from capplan.latency.engine_rows import SCHEMA, SHIPPED, EngineRow
from capplan.latency.engine_time import EngineTime, ServedError
from capplan.latency.estimate import estimate_from
from capplan.latency.profile_file import save_profile, yaml_text
from capplan.latency.roofline import roofline_profile
from capplan.latency.with_engine import calibrated
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import twins
from capplan.llm.layout import Layout

ENOUGH = (2, 4)
"""Groups or families, and sweeps, from which a row has a spread of its own."""

Scored = list[Found]


def scored_of(found: Iterable[Found]) -> Scored:
    """Return the sweeps that are scored in users."""
    ours = [one for one in found if one.case.sweep.source != OTHER_CLUSTER]
    return [one for one in ours if one.score is not None]


def left_out_of(one: Found) -> object:
    """Return what was left out of the fit that predicted a sweep."""
    sweep = one.case.sweep
    return sweep.group if one.row.llms else family_of(sweep.llm.name)


def error_of(found: Scored) -> ServedError | None:
    """Return the spread over sweeps, each group or family weighing alike."""
    scores = [one.score for one in found if one.score is not None]
    if not scores:
        return None
    error = served_error(scores, [left_out_of(one) for one in found])
    how = "group" if found[0].row.llms else "family"
    return error.model_copy(update={"left_out": how})


def pool(key: Key, found: Scored) -> Scored:
    """Return the sweeps whose errors tell those of a row.

    Those of the same kind of LLM, family of GPUs and engine; fewer than two groups or
    four sweeps say too little, and those of other engines join, then of other GPUs. Of
    rows of LLMs whatever their kernels are.
    """
    families = [f for f, names in FAMILIES.items() if key.family.startswith(names)]
    key = key._replace(family=next(iter(families), key.family))
    its_own = (("kind", "family", "engine"), ("family", "engine"), ("family",))
    names = ("of", "kind", "family", "engine")
    kinds = (names, names[:3], ("of", "kind"), ("kind", "family"), ("kind",))
    for wanted in its_own if key.llms else kinds:
        its = [
            one
            for one in found
            if all(getattr(one.keys[0], n) == getattr(key, n) for n in wanted)
        ]
        groups = {left_out_of(one) for one in its}
        if len(groups) >= ENOUGH[0] and len(its) >= ENOUGH[1]:
            return its
    return list(found)


class Errors(NamedTuple):
    """Sweeps as predicted without what tells the errors of rows."""

    own: Scored  # by a row of their LLM that the other half of its sweeps gives
    kinds: Scored  # without their family, by the row of their kind
    general: Scored  # the same, by the row for GPUs that none names

    def of(self, key: Key, but: object = None) -> ServedError | None:
        """Return the spread of a row's sweeps, but for those of a group or family."""
        found = self.own if key.llms else self.general if not key.family else self.kinds
        return error_of(pool(key, [one for one in found if left_out_of(one) != but]))


def with_errors(rows: Rows, errors: Errors) -> list[tuple[Key, EngineRow]]:
    """Return the rows with the spread of the sweeps that tell theirs."""
    return [
        (key, row.model_copy(update={"served": errors.of(key)}))
        for key, row in rows.rows.items()
    ]


def estimates(its: Sequence[Case], rows: Sequence[EngineRow]) -> dict[str, ServedError]:
    """Return the errors of estimates from other TP degrees and other GPU types.

    With the engine's time of their kind: what is left out here is the profile.
    """
    shipped = [load_listed(listed.path) for listed in list_profiles()]
    errors = {}
    for of in ("other-tp", "other-gpu"):
        found = []
        for case in its:
            sweep = case.sweep
            names = (sweep.llm.name, *twins(sweep.llm))
            known = [p for p in shipped if p.llm in names and p.how == "kernel-sum"]
            here = [p for p in known if p.gpu == sweep.gpu and p.tp != sweep.tp]
            known = here if of == "other-tp" else [p for p in known if p not in here]
            known = [p for p in known if (p.gpu, p.tp) != (sweep.gpu, sweep.tp)]
            row = chosen(rows, case)
            if case.of != "kernel-sum" or len(sweep.points) < 3 or not known or not row:
                continue
            if of == "other-gpu":
                known = [p for p in known if p.gpu != sweep.gpu]
            if not known:
                continue
            made = estimate_from(known, sweep.llm, find_gpu(sweep.gpu), sweep.tp)
            tests = tuple(sweep.served(made))
            loops = tuple(test.simulated(row) for test in tests)
            found.append(Found(case, row, loops))
        error = error_of(scored_of(found))
        if error is not None:
            errors[of] = error
    return errors


def api_rates(its: Sequence[Case], rows: Sequence[EngineRow]) -> dict[str, float]:
    """Return the most requests per second that an engine's API server let through.

    In bursts of requests so short that it limits them.
    """
    rates: dict[str, float] = defaultdict(float)
    for case in its:
        [point, *_] = case.sweep.points
        if is_short(case.sweep) and point.output_tokens_per_s:
            rate = point.output_tokens_per_s / point.mean_osl
            rates[case.sweep.engine] = max(rates[case.sweep.engine], rate)
    return dict(rates)


class Halves(NamedTuple):
    """How calibrations by half of what was run predict the rest."""

    tpot_errors: list[float]
    users: list[float]  # predicted ÷ measured at 1.25×
    other_shapes: list[float]  # the same, of sweeps of other lengths


def halves(found: Sequence[Found]) -> Halves:
    """Calibrate with every other concurrency of each sweep, as ``fit --onto`` does.

    It begins at the row that a plan takes without the sweep's group. The other shapes
    are those of the same engine and TP degree, by a fit to the whole sweep.
    """
    made = Halves([], [], [])
    ours = [one for one in scored_of(nvidia(found)) if len(one.case.tests) >= 4]
    for one in ours:
        points, tests = one.case.sweep.points, one.case.tests
        time = fit_engine_time(tests[::2], one.row.time).time
        loops = [test.simulated(time) for test in tests]
        seen = zip(loops[1::2], points[1::2], strict=True)
        made.tpot_errors.extend(abs(loop.slower(point) - 1) for loop, point in seen)
        made.users.append(_users(one, time))
        others = [
            two for two in ours if _is_other_shape(one.case.sweep, two.case.sweep)
        ]
        if others:
            whole = fit_engine_time(tests, one.row.time, start=time).time
            made.other_shapes.extend(_users(two, whole) for two in others)
    return made


def _users(one: Found, time: EngineTime) -> float:
    """Return predicted ÷ measured users of a sweep by a time."""
    loops = tuple(test.simulated(time) for test in one.case.tests)
    found = one._replace(loops=loops).score
    assert found is not None
    return found.capacity[0]


def _is_other_shape(one: Sweep, two: Sweep) -> bool:
    names = ("source", "group", "tp")
    alike = all(getattr(one, name) == getattr(two, name) for name in names)
    return alike and (one.isl, one.osl) != (two.isl, two.osl)


def by_halves(its: Sequence[Case], rows: Rows) -> list[Found]:
    """Return each sweep as predicted by rows of its LLM that the other half gives.

    Of a group every other sweep is in one half, by TP degree and lengths. Where the
    half gives no row it is that of the kind without the family.
    """
    groups: dict[tuple, list[Case]] = defaultdict(list)
    for case in its:
        groups[case.sweep.group].append(case)
    parts: tuple[list[Case], list[Case]] = ([], [])
    for members in groups.values():
        members.sort(key=lambda c: (c.sweep.tp, c.sweep.isl, c.sweep.osl))
        for number, case in enumerate(members):
            parts[number % 2].append(case)
    found: list[Found] = []
    for one, other in (parts, parts[::-1]):
        own = list(Rows(one, own=True).rows.values())
        for case in other:
            family = family_of(case.sweep.llm.name)
            known = [*own, *rows.kinds_without(family)]
            alike = [c for c in one if c.sweep.group == case.sweep.group]
            found += predicted([*known, *of_prompts(alike, known)], [case])
    return found


def file_of(
    table: Sequence[tuple[Key, EngineRow]],
    measured: Sequence[EngineRow],
    prompts: Sequence[EngineRow],
    errors: Errors,
    rates: dict[str, float],
    estimated: dict[str, ServedError],
) -> str:
    """Return the file of engine times: the rows of each kind, then those for all."""
    plain = []
    rows = [*(row for _, row in table), *measured]
    for row in [*with_general(rows), *prompts]:
        if not (row.gpus or row.llms):
            key = Key(row.of, "", "experts" if row.experts else "dense", (), "vllm", 0)
            row = row.model_copy(update={"served": errors.of(key)})
        content = row.model_dump(exclude_none=True, exclude_defaults=True)
        content = {"of": row.of, "engine": row.engine, **content}
        rate = rates.get(row.engine, 0.0)
        if rate and not row.prompts_only:
            content["api_request_s"] = float(f"{1 / rate:.3g}")
        served = content.pop("served", None)
        plain.append({**content, **({"served": served} if served else {})})
    of_estimates = {of: error.model_dump() for of, error in estimated.items()}
    return yaml_text({"schema": SCHEMA, "times": plain, "estimated": of_estimates})


def calibrate(key: Key, row: EngineRow, folder: Path) -> None:
    """Write the profiles of an LLM on a GPU type of AMD's, at every degree."""
    gpu, llm = find_gpu(row.gpus[0]), find_llm(key.llms[0])
    for tp in (1, 2, 4, 8):
        try:
            base = roofline_profile(llm, gpu, tp)
            replica(llm, gpu, Layout(tp))
        except CapplanError:
            continue  # the LLM cannot be split so, or does not fit
        profile = calibrated(base, row.time).model_copy(
            update={"engine": row.engine, "engine_version": row.engine_version}
        )
        save_profile(profile, profile_path(folder, gpu.name, llm.name, tp))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--docs", type=Path, help="file to write the tables into")
    parser.add_argument("--out", type=Path, help="folder to write profiles into")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", CapplanWarning)
    its = cases(read_sweeps(arguments.data))
    if not its:
        print("No sweeps: nothing to fit or to score.")
        return
    sheets = on_data_sheets(its)
    rows = Rows([*its, *sheets])
    found = list(rows.left_out(its))
    halved = by_halves(its, rows)
    errors = Errors(
        scored_of(one for one in halved if one.row.is_of(one.case.sweep.llm.name) > 1),
        scored_of(rows.families_left_out([*its, *sheets])),
        scored_of(rows.families_left_out(of_vllm([*its, *sheets]), general=True)),
    )
    table = with_errors(rows, errors)
    measured = measured_rows([row for _, row in table])
    with_range = [*(row for _, row in table), *measured]
    prompts = of_prompts(its, with_general([row for _, row in table]))
    estimated = estimates(its, with_range)
    rates = api_rates(its, with_range)
    parts = (
        goals(found, halved, errors, halves(found)),
        first_tokens(halved),
        row_table(table),
        prompt_table(prompts),
        iteration_table(arguments.data / "served" / "2026-07"),
        group_table(found),
        choice_of_tp(choices(scored_of(found))),
        worst(found),
    )
    lines = [line for part in parts for line in (*part, "")]
    caps = ", ".join(f"{rate:.0f}/s ({name})" for name, rate in sorted(rates.items()))
    lines.append(f"Requests that one API server process let through at most: {caps}.")
    print("\n".join(lines))
    if arguments.docs:
        between(arguments.docs, lines)
        page = arguments.docs.read_text(encoding="utf-8")
        with_release = beside(page, *last_release())
        arguments.docs.write_text(with_release, encoding="utf-8")
    if arguments.out:
        for key, row in sorted(table, key=lambda pair: pair[1].versions[1]):
            if key.family.startswith("MI") and key.llms:
                calibrate(key, row, arguments.out)
        text = file_of(table, measured, prompts, errors, rates, estimated)
        write_texts({SHIPPED: text}, arguments.out)


if __name__ == "__main__":
    main()
