"""Read load tests that state means, from a file or a tree of folders.

A file holds records; a record is a test whose format (``load_formats``) says where its
quantities stand; tests of the same lengths and load are runs of one point.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np

from capplan.calibration.load_formats import Format, format_of, known_other, unknown
from capplan.calibration.load_point import (
    SATURATED,
    PointReader,
    contradiction,
    failures,
)
from capplan.calibration.load_records import read_tests
from capplan.calibration.load_test import SweepPoint
from capplan.calibration.target import Target
from capplan.csv_file import refuse_outliers
from capplan.engines.catalog import engine_in
from capplan.errors import InputError, warn
from capplan.input_file import BrokenFileError
from capplan.latency.importers.identity import Stated, stated_in
from capplan.latency.measurement_file import as_written
from capplan.records import UNPACK

_SUFFIXES = {".json", ".jsonl", ".csv", ".yaml", ".yml"}
_SHARED = ("tpot_ms", "tpot_s", "ttft_ms", "ttft_s", "output_tokens_per_s")

_MEANS = ("tpot_s", "ttft_s", "output_tokens_per_s")
_COUNTS = ("isl", "osl", "requests")
_ALIKE = 0.02  # relative difference of lengths within which runs are of one point
_REPEATS = 1.25
"""Longest over shortest time of runs of one point, beyond which they are of none."""
_NONE = [(0.0, "")]
_SERVE = re.compile("SERVE--(.*?)(?:-BENCH--|/|$)")
"""Settings of the server in the folders of ``vllm bench sweep serve``."""
_SETTING = re.compile("([A-Za-z_][A-Za-z_.]*)=([^-=]+)")
_NAMES = (
    "max_num_seqs max_num_batched_tokens block_size kv_cache_dtype max_model_len "
    "enable_prefix_caching enable_chunked_prefill async_scheduling attention_backend "
    "gpu_memory_utilization max_running_requests chunked_prefill_size schedule_policy "
    "mem_fraction_static disable_radix_cache max_batch_size max_num_tokens"
)
_OF_A_SERVER = frozenset(_NAMES.split())
"""Settings of a server that records of its tests may have."""
_MOST_TOLD = 5


class Test(NamedTuple):
    """A load test, where it stands, and what its tool says of it."""

    place: str
    kind: Format
    point: SweepPoint
    stated: Stated
    row: tuple[tuple[str, Any], ...]  # what was read: two of the same are copies
    server: Mapping[str, str]  # settings of the server by their names
    fields: Mapping[str, str]  # by which it may be chosen


class Sweep(NamedTuple):
    """The points of a sweep, what their files state, and what is said of them."""

    points: list[SweepPoint]
    stated: Stated
    notes: tuple[str, ...]


class _Told(NamedTuple):
    """What is said of a file's content."""

    wrong: list[tuple[str, str]]  # place and reason
    left_out: list[tuple[str, str]]
    remarks: list[tuple[str, str]]  # how tests are taken
    kinds: list[Format]
    unused: list[tuple[str, str]]
    others: list[str]  # places of tests of another system


def read_sweep(
    path: Path, tp: int, where: dict[str, str], target: Target | None = None
) -> Sweep:
    """Return the load tests of a file or a tree of folders, by lengths and load.

    Throughput that a format states per GPU is taken times ``tp``; ``where`` chooses
    tests by their fields. Tests that say they are of another system than ``target``
    are refused, tests beyond saturation left out; runs of a point are averaged.
    """
    told, found = _Told([], [], [], [], [], []), list[Test]()
    files = _files(path, told)
    for file in files:
        try:
            found += _tests(file, tp, where, target, told, is_alone=files == [path])
        except InputError as error:
            is_left_out = isinstance(error, BrokenFileError) and (found or files[1:])
            (told.left_out if is_left_out else told.wrong).append(("", str(error)))
    if told.wrong:
        choice = _choice(found, told.others, where) if told.others else ""
        choose = f"; or {choice} chooses tests of {target.name if target else ''}"
        raise InputError(_joined(told.wrong) + choose * bool(choice))
    tests = list({test.row: test for test in found}.values())
    _refuse_mixed(path, found, where)
    for name in _SHARED:
        seen = [(test.place, dict(test.row).get(name)) for test in tests]
        refuse_outliers(name, [(place, x) for place, x in seen if x is not None])
    groups, points = list[list[Test]](), list[SweepPoint]()
    remarks = dict(told.remarks)
    for runs in _runs(tests):
        point = _mean(runs)
        if why := contradiction(point, tp):
            for at in (run.place for run in runs):
                remark = remarks.get(at, "")
                told.left_out.append((at, f"{remark}: {why}" if remark else why))
        else:
            groups.append(runs)
            points.append(point)
    least = 1 if target is not None and target.is_planned else 2
    if len({point.load for point in points}) < least:
        raise _too_few(path, len(points), told, where)
    stated: dict[str, tuple[str, str]] = {}
    for aspect, (name, _) in (pair for test in tests for pair in test.stated.items()):
        values = (test.stated[aspect][1] for test in tests if aspect in test.stated)
        stated[aspect] = (name, " and ".join(dict.fromkeys(values)))
    notes = (*_notes(found, tests, groups, told), _system(stated))
    points.sort(key=lambda point: (point.isl, point.osl, *point.load))
    used = ((test.place, failures(dict(test.row))) for runs in groups for test in runs)
    if failed := [pair for pair in used if pair[1]]:
        less = f"{_joined(failed)}; the server was under less load than is stated"
        warn(less)
    return Sweep(points, stated, notes)


def _too_few(path: Path, points: int, told: _Told, where: dict[str, str]) -> InputError:
    chosen = f" with {where}" if where else ""
    said = f"{path}: holds {'one' if points else 'no'} load test to use{chosen}"
    said = "; ".join([said, *_sentences(told)])
    if told.left_out and not points and all("?" in why for _, why in told.left_out):
        return InputError(said)  # its unit is wrong, not its number
    kind = next((kind for kind in told.kinds if kind.again), None)
    again = f"run {kind.tool} with {kind.again}" if kind else "add such tests"
    return InputError(
        f"{said}; expected at least 2 numbers of users or rates, since one does "
        f"not separate a factor from an iteration's own time: {again}, and give the "
        "folder of all files"
    )


def _sentences(told: _Told) -> list[str]:
    """Return what was left out, remarked and not used."""
    out = {place for place, _ in told.left_out}
    remarks = [pair for pair in told.remarks if pair[0] not in out]
    kinds = ("left out", told.left_out), ("note", remarks), ("not used", told.unused)
    return [f"{what}: {_joined(reasons)}" for what, reasons in kinds if reasons]


def _files(path: Path, told: _Told) -> list[Path]:
    """Return the files that may hold load tests; beside a JSON no copy of it."""
    if not path.is_dir():
        return [path]
    files = [
        file
        for file in sorted(filter(Path.is_file, path.rglob("*")))
        if _SUFFIXES & set(file.suffixes[-2:])
        and not any(part[0] == "." for part in file.relative_to(path).parts)
    ]
    copies = [
        file
        for file in files
        if {file.with_suffix(".json"), file.with_suffix("")} & ({*files} - {file})
    ]
    told.unused.extend((f"{file}", "beside its JSON") for file in copies)
    if not files:
        raise InputError(
            f"{path}: holds no .json, .jsonl, .csv or .yaml file of a load test"
        )
    files = [file for file in files if file not in copies]
    if packed := {file.suffix for file in files} & UNPACK.keys():
        end = min(packed)
        raise InputError(
            f"{path}: has files {end}: find {quote(str(path))} -name '*{end}' -exec "
            f"{UNPACK[end]} {{}} + unpacks them; expected .json, .csv, .yaml or .gz"
        )
    return files


def _tests(
    path: Path,
    tp: int,
    where: dict[str, str],
    target: Target | None,
    told: _Told,
    *,
    is_alone: bool,
) -> Iterator[Test]:
    """Yield the tests of a file; what is wrong or left out goes to ``told``."""
    number = -1
    for number, (place, fields) in enumerate(read_tests(path, where)):
        kind = format_of(fields)
        if kind is None:
            if number == 0 and not is_alone:
                none = "no load test" if fields else "holds no record"
                told.unused.append((f"{path}", known_other(fields) or none))
            else:
                told.wrong.append((place, unknown(fields)))
            if number == 0:  # none of its records is a test
                return
            continue
        server = dict(_SETTING.findall("".join(_SERVE.findall(str(path)))))
        fields = server | fields
        if not _is_chosen(fields, where):
            continue
        with as_written(Path(place), kind.tool):
            fields = kind.prepare(path, fields) if kind.prepare else fields
        stated = stated_in(fields)
        reader = PointReader(kind, fields)
        point, why = reader.point(tp)
        if target is not None:
            try:
                target.compare(place, stated)
            except InputError as error:
                told.wrong.append((place, str(error).removeprefix(f"{place}: ")))
                told.others.append(place)
        if not is_alone and reader.has_no_load and kind.no_load:
            # a sum, or a copy, of the tests beside it
            told.unused.append((f"{path}", "without users and rate"))
            continue
        told.kinds.append(kind)
        if reader.unusable:
            told.left_out.append((place, reader.unusable))
            continue
        told.wrong.extend((place, reason) for reason in reader.problems.values())
        if point is None:
            continue
        if why and not (target and target.is_planned and why.endswith(SATURATED)):
            told.left_out.append((place, why))
            continue
        told.remarks.extend((place, remark) for remark in reader.remarks)
        row = tuple(sorted(reader.row.items()))
        for field, value in fields.items():
            name = field.rpartition(".")[2].replace("-", "_")
            if name in _OF_A_SERVER and value not in (None, ""):
                server[name] = str(value).removesuffix(".0")
        stated = {**stated, **{name: (name, value) for name, value in server.items()}}
        name, engine = stated.get("engine", ("", ""))
        server |= {name: engine} if engine_in(engine) else {}
        texts = {k: str(v) for k, v in fields.items() if not isinstance(v, list)}
        yield Test(place, kind, point, stated, row, server, texts)
    if number < 0:
        told.unused.append((f"{path}", "holds nothing"))


def _is_chosen(fields: Mapping[str, Any], where: Mapping[str, str]) -> bool:
    """Return whether fields, by their path or its last name, have the values."""
    return all(
        any(
            str(field) == value
            for path, field in fields.items()
            if path == name or path.endswith(f".{name}")
        )
        for name, value in where.items()
    )


def _refuse_mixed(path: Path, tests: Sequence[Test], where: dict[str, str]) -> None:
    """Refuse tests of two engines, or of a server under two settings."""
    for name in dict.fromkeys(name for test in tests for name in test.server):
        seen = [test.server[name] for test in tests if name in test.server]
        values = {engine_in(value) or value: value for value in reversed(seen)}
        if len(values) > 1:
            choice = _choice(tests, (), where)
            raise InputError(
                f"{path}: {name} is {' and '.join(reversed(values.values()))}; "
                "expected tests of one server, "
                + (f"chosen with {choice}" if choice else "at 2 or more loads")
            )


def _choice(tests: Sequence[Test], others: Sequence[str], where: dict[str, str]) -> str:
    """Return the choice that leaves most loads of one server; nothing without one."""
    servers = defaultdict[tuple[Any, ...], list[Test]](list)
    for test in tests:
        if test.place not in others:
            pairs = {(k, engine_in(v) or v) for k, v in test.server.items()}
            servers[tuple(sorted(pairs))].append(test)
    loads = {key: {t.point.load for t in of} for key, of in servers.items()}
    key = max(loads, key=lambda key: len(loads[key]), default=())
    if len(loads.get(key, ())) < 2:
        return ""
    right, chosen = servers[key], dict(where)
    rest = [test for test in tests if test not in right]
    may_choose = [
        dict([pair])
        for pair in right[0].stated.values()
        if all(_is_chosen(test.fields, dict([pair])) for test in right)
    ]
    while rest:
        left = [[t for t in rest if _is_chosen(t.fields, by)] for by in may_choose]
        least = min(left, key=len, default=rest)
        if len(least) == len(rest):
            return ""
        chosen |= may_choose[left.index(least)]
        rest = least
    return " ".join(f"--where {quote(f'{k}={v}')}" for k, v in chosen.items())


def _runs(tests: Sequence[Test]) -> list[list[Test]]:
    """Return the tests of each point, runs of one with their times alike."""
    groups: list[list[Test]] = []
    for test in tests:
        for group in groups:
            one, other = group[0].point, test.point
            if one.load == other.load and all(
                abs(a / b - 1) <= _ALIKE
                for a, b in ((one.isl, other.isl), (one.osl, other.osl))
            ):
                group.append(test)
                break
        else:
            groups.append([test])
    for group in groups:
        seen = [(x, t.place) for t in group if (x := t.point.tpot_s) is not None]
        (least_s, low), (most_s, high) = min(seen or _NONE), max(seen or _NONE)
        if most_s > _REPEATS * least_s:
            raise InputError(
                f"{high}: TPOT is {most_s * 1e3:.4g} ms where {low} states "
                f"{least_s * 1e3:.4g} ms for the same lengths and load; expected runs "
                "of one engine, chosen with --where FIELD=VALUE"
            )
    return groups


def _mean(runs: Sequence[Test]) -> SweepPoint:
    points = [run.point for run in runs]

    def mean(name: str) -> Any:
        seen = [x for point in points if (x := getattr(point, name)) is not None]
        return None if not seen else float(np.mean(seen))

    means: dict[str, Any] = {name: mean(name) for name in _MEANS}
    means |= {name: round(x) for name in _COUNTS if (x := mean(name)) is not None}
    return points[0]._replace(**means)


def _notes(
    found: Sequence[Test],
    tests: Sequence[Test],
    groups: Sequence[Sequence[Test]],
    told: _Told,
) -> Iterator[str]:
    used = [test for runs in groups for test in runs]
    tools = " and ".join(dict.fromkeys(test.kind.tool for test in used))
    runs = f", each the mean of {len(used) / len(groups):.3g} runs"
    yield (
        f"{len(used)} load tests of {tools} make {len(groups)} points"
        f"{runs if len(used) > len(groups) else ''}."
    )
    if copies := len(found) - len(tests):
        yield f"{copies} copies of them are not counted again."
    if failed := int(sum(dict(test.row).get("failed", 0) for test in used)):
        yield f"{failed:,} of their requests failed and are not in the means."
    for said in _sentences(told):
        yield f"{said[0].upper()}{said[1:]}."


def _system(stated: Stated) -> str:
    asked = ("llm", "gpu", "tp", "precision", "speculation", "engine", "engine_version")
    said = [
        f"{aspect.replace('_', ' ')} {stated[aspect][1]} ({stated[aspect][0]})"
        for aspect in dict.fromkeys((*asked, *stated))
        if aspect in stated
    ]
    silent = ", ".join(name for name in asked if name not in stated).replace("_", " ")
    if not said:
        return "The files do not state what was measured."
    unsaid = f"; they do not state {silent}" if silent else ""
    return f"The files state {', '.join(said)}{unsaid}."


def _joined(reasons: Sequence[tuple[str, str]]) -> str:
    places: dict[str, list[str]] = {}
    for place, reason in reasons:
        places.setdefault(reason, []).append(place)
    told = [
        f"{at[0]}{f' and {len(at) - 1} more' if len(at) > 1 else ''}: {reason}"
        if at[0]
        else reason
        for reason, at in list(places.items())[:_MOST_TOLD]
    ]
    more = len(places) - len(told)
    return "; ".join(told) + (f"; and {more} other reasons" if more else "")
