"""The CSV of measured points: appended point by point, safe to kill at any moment."""

import csv
import io
import os
from pathlib import Path
from typing import NamedTuple

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.profiling.scenes import Point


class Row(NamedTuple):
    """A measured point."""

    point: Point
    seconds: float  # median [s]
    spread: float  # interquartile range over the median
    samples: int  # iterations measured
    noisy: bool  # spread stayed above the limit


COLUMNS = (*Point._fields, *Row._fields[1:])


class PointFile:
    """The measured points of one GPU, LLM and TP degree, on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = _read(path)
        self.points = {row.point for row in self.rows}
        self._file = path.open("ab", buffering=0)
        if self._file.tell() == 0:
            self._write(COLUMNS)

    def __enter__(self) -> "PointFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def append(self, *rows: Row) -> None:
        """Add points measured together in one write: a kill leaves all or none."""
        for row in rows:
            if row.point in self.points:
                raise ValueError(f"{row.point} is in {self.path} already")
        self._write(*(_line(row) for row in rows))
        self.rows += rows
        self.points |= {row.point for row in rows}

    def _write(self, *lines: tuple[object, ...]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        os.write(self._file.fileno(), text.getvalue().encode())
        os.fsync(self._file.fileno())


def _line(row: Row) -> tuple[object, ...]:
    measured = f"{row.seconds:.9g}", f"{row.spread:.4f}", row.samples
    return (*row.point, *measured, int(row.noisy))


def _read(path: Path) -> list[Row]:
    """Return the points of a file; an unfinished last line is cut off."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with open(path, "r+b") as file:
            file.truncate(len(whole))
    lines = whole.decode("utf-8").splitlines()
    if lines and tuple(lines[0].split(",")) != COLUMNS:
        raise InputError(
            f"{path}:1: {lines[0]!r} is not the heading of measured points; expected "
            f"{','.join(COLUMNS)}"
        )
    if len(lines) < 2:
        return []
    rows = read_rows(path, text="\n".join(lines))[1]
    return [_row(path, line, list(cells.values())) for line, cells in rows]


def _row(path: Path, number: int, values: list[str]) -> Row:
    try:
        phase, batch, new_tokens, context, seconds, spread, samples, noisy = values
        point = Point(phase, int(batch), int(new_tokens), int(context))
        return Row(point, float(seconds), float(spread), int(samples), bool(int(noisy)))
    except ValueError as error:
        raise InputError(
            f"{path}:{number}: {','.join(values)!r} is not a measured point "
            f"({error}); delete the line to have it measured again"
        ) from error
