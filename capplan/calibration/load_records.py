"""Read the records of load tests, whatever the form of their file."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from capplan.calibration.load_formats import Fields, format_of
from capplan.csv_file import read_cells, too_long
from capplan.errors import InputError
from capplan.input_file import parse_yaml, read_text
from capplan.latency.importers.identity import Stated, stated_in
from capplan.latency.measurement_file import as_written, table_rows
from capplan.records import flat, form, records

_COMMA = re.compile(r"-?\d[\d.]*,[\d.,]*\d$")
_REQUESTS = ("itls", "requests.successful")
"""Fields of single requests, which vLLM and GuideLLM may save beside means."""


def stated_by_means(path: Path, where: Mapping[str, str]) -> Stated | None:
    """Return what a file of load tests without single requests states; else None."""
    try:
        fields = next(read_tests(path, where))[1]
    except (InputError, StopIteration):
        return None
    is_test = format_of(fields) and not any(name in fields for name in _REQUESTS)
    return stated_in(fields) if is_test else None


def read_tests(path: Path, where: Mapping[str, str]) -> Iterator[tuple[str, Fields]]:
    """Yield the place and the fields of each record of a file."""
    if {".yaml", ".yml"} & set(path.suffixes):
        text = read_text(path)
        if not re.search(r"^benchmarks:", text, re.MULTILINE):
            yield f"{path}", {}  # the settings of a run, say
            return
        content, _ = parse_yaml(path, text)
        with as_written(path, "GuideLLM"):
            tests = content.pop("benchmarks")
            found = [flat(content | test) for test in tests]
        for number, fields in enumerate(found, 1):
            yield f"{path}, benchmarks {number}", fields
    elif form(path) != "csv":
        for at, fields in records(path, wrappers=("benchmarks",), around=True):
            yield f"{path}{at}", fields
    else:
        yield from _table(path, where)


def _table(path: Path, where: Mapping[str, str]) -> Iterator[tuple[str, Fields]]:
    """Yield the rows of a CSV: plain, with a header of three lines, or on its side."""
    lines = read_cells(path)
    first = lines[0][1][0] if lines else ""
    if first == "Metric":
        fields: Fields = {}
        for _, (name, *cells) in lines:
            name, _, unit = name.lower().partition(" (")
            path_of = name.replace(" ", "_")
            fields |= {f"{path_of}.avg": cells[0]} if cells else {}
            fields |= {f"{path_of}.unit": unit.rstrip(")")} if unit else {}
        yield f"{path}", fields
    elif first == "Run Info":
        parts = zip(*(row for _, row in lines[:3]), strict=False)
        names = [".".join(filter(None, part)) for part in parts]
        for line, row in lines[3:]:
            if len(row) > len(names):
                raise InputError(too_long(path, line, row, names))
            yield f"{path}:{line}", dict(zip(names, row, strict=False))
    elif format_of(head := dict.fromkeys(lines[0][1] if lines else (), "")) is None:
        yield f"{path}:1", dict(head)
    else:
        rows = table_rows(path, (), where)
        _read_commas(path, rows)
        for line, fields in rows:
            yield f"{path}:{line}", dict(fields)


def _read_commas(path: Path, rows: Sequence[tuple[int, dict[str, str]]]) -> None:
    """Put decimal points for commas where the numbers of the table show which."""
    at = [(line, row, k) for line, row in rows for k in row if _COMMA.match(row[k])]
    if not at:
        return
    import pandas as pd

    from capplan.workload.readers.cells import parsed
    from capplan.workload.readers.table import better

    numbers = parsed(pd.Series([row[name] for _, row, name in at])).tolist()
    for (line, row, name), number in zip(at, numbers, strict=True):
        if math.isnan(number):
            instead = better(path, row[name], "a number")
            raise InputError(
                f"{path}:{line}: {name} is {row[name]}; expected a number{instead}"
            )
        row[name] = repr(number)
