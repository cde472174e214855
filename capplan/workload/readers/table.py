"""Read and check columns of a CSV, JSON or Parquet file; errors name the place.

Values are parsed in bulk; after an error the file is read again, row by row, to
find the place of the wrong value.
"""

import json
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from reprlib import Repr
from shlex import quote
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np

from capplan.csv_file import cell, header, longer_than_header, separator, texts
from capplan.errors import InputError
from capplan.input_file import BrokenFileError, from_windows, opened
from capplan.records import WRAPPERS, Record, first_values, flat, form, page, records
from capplan.workload.readers.cells import (
    DECIMAL_COMMA,
    FIRST_YEAR,
    LAST_YEAR,
    dates,
    in_years,
    parsed,
)
from capplan.workload.readers.ordering import Notes
from capplan.workload.trace import MAX_TOKENS, MOST_REQUESTS

if TYPE_CHECKING:
    import pandas as pd  # where it is used: it takes 0.3 s

_BLOCK_BYTES = 2**20
_MAX_LINE_BYTES = 2**26
_MISSING = ["", "-", "NA", "N/A", "n/a", "NaN", "nan", "NaT", "NULL", "null", "None"]
"""Texts of a number that is missing; a class may be called so."""
_ROWS_AT_ONCE = 100_000
_FIRST_ROWS = 1000
_MAY_NEST = re.compile("usage|attributes", re.IGNORECASE)
_SHOWN = Repr()  # of any depth and length
_SHOWN.maxstring = 60
_MOST_SHOWN = 3
_GROUPED_BY_POINTS = r"[1-9]\d{0,2}(?:\.\d{3})+"
_SLASHED = r"\d\d?/\d\d?/\d{4}\b.*"
_MONTH_FIRST = r"s#([0-9]+)/([0-9]+)/([0-9]{4})#\3-\1-\2#"
_ONE_DAY = r's/(^|[,;|\t"])([0-9]{2}:[0-9]{2}:[0-9]{2})/\12000-01-01 \2/'
_TOO_MANY = (
    "{path}: more than {most:,} requests, the most that are held at once; expected "
    "fewer, or capplan simulate --stream"
)


@dataclass(frozen=True)
class Table:
    """Some rows of a file as pandas holds them."""

    path: str | Path
    # a column with text in it holds strings; its index counts rows of the file
    frame: "pd.DataFrame"

    def __len__(self) -> int:
        return len(self.frame)

    def tokens(self, column: str, least: int = 1) -> np.ndarray:
        """Return a column of token counts, shape (n,), int64. [tokens]"""
        return self.whole(column, least, MAX_TOKENS)

    def whole(
        self, column: str, least: float, most: float, expected: str = ""
    ) -> np.ndarray:
        """Return a column of whole numbers in a range, shape (n,), int64."""
        expected = expected or f"a whole number from {least} to {most}"
        values = parsed(self.frame[column], whole=True).to_numpy()
        right = np.isfinite(values) & (values >= least) & (values <= most)
        self.require(right & (values == np.floor(values)), column, expected)
        return values.astype(np.int64)

    def stamps_ns(self, column: str, expected: str) -> tuple[np.ndarray, float]:
        """Return a column of dates in ns since 1970, shape (n,), int64.

        And how far the clock of the first is ahead of UTC. [s]
        """
        stamps, other, zone_s = dates(self.frame[column])
        right = (in_years(stamps) & (stamps == other)).to_numpy()
        self.require(right, column, f"{expected}, of {FIRST_YEAR} to {LAST_YEAR}")
        return stamps.astype("datetime64[ns, UTC]").astype("int64").to_numpy(), zone_s

    def select(self, rows: np.ndarray) -> "Table":
        """Return the table of some rows, shape (n,), bool."""
        frame = self.frame[rows]
        named = frame.select_dtypes("category")
        used = {str(k): named[k].cat.remove_unused_categories() for k in named}
        return Table(self.path, frame.assign(**used))

    def require(self, right: np.ndarray, column: str, expected: str) -> None:
        """Raise an InputError for the first row that is not ``right``, and its like."""
        if right.all():
            return
        wrong = (
            self.frame[column][~right].head(_FIRST_ROWS).astype(object).fillna("empty")
        )
        kinds = {re.sub(r"\d+", "0", text := _text(cell)): text for cell in wrong[::-1]}
        others = [*kinds.values()][-2::-1][:_MOST_SHOWN]
        also = f"; in other rows it is {' and '.join(others)}" * bool(others)
        self.refuse(int(np.argmin(right)), column, expected, also)

    def refuse(self, row: int, column: str, expected: str, also: str = "") -> NoReturn:
        """Raise an InputError that shows the place and its value."""
        place, value = _cell(self.path, int(self.frame.index[row]), column)
        expected += better(self.path, value, expected)
        raise InputError(
            f"{self.path}{place}: {column} is {_text(value) or 'empty'}; expected "
            f"{expected}{also}"
        )


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else _SHOWN.repr(value)
    return " ".join(text.split())[:60]


def better(path: str | Path, value: Any, expected: str) -> str:
    """Return how a number or date that is not sure would be, and what makes it so."""
    if not isinstance(value, str):
        return ""
    edited = f"sed -E '{{}}' {quote(str(path))} > new.csv"
    if re.fullmatch(_SLASHED, value):
        return f"; where the month stands first: {edited.format(_MONTH_FIRST)}"
    if re.fullmatch(r"\d\d:\d\d:\d\d.*", value):
        return f"; where it is the time of one day: {edited.format(_ONE_DAY)}"
    if re.fullmatch(_GROUPED_BY_POINTS, value) and "whole" in expected:
        return ", without points between thousands"
    if not re.fullmatch(DECIMAL_COMMA, value):
        return ""
    is_free = form(path) == "csv" and separator(path) != "," and "whole" not in expected
    do = f": where it is the decimal one {edited.format('s/,/./g')}" * is_free
    return f", with a decimal point and no comma{do}"


def _cell(path: str | Path, row: int, column: str) -> tuple[str, Any]:
    """Return the place and the value of a cell; rows count from 0."""
    if form(path) == "csv":
        line, text = cell(path, row, _holder(column, header(path)))
        return f":{line}", text
    place, fields = next(islice(records(path, [column]), row, None))
    return place, fields.get(column, "")


def column_names(path: str | Path) -> dict[str, Any]:
    """Return the columns of a file with a value, of a CSV one of its first rows.

    Cells of a CSV may hold objects of usage or attributes, as Langfuse writes them.
    """
    if form(path) != "csv":
        return first_values(path)
    found: dict[str, Any] = dict.fromkeys(header(path), "")
    nests: set[str] = set()
    for number, row in enumerate(texts(path)):
        if number >= _FIRST_ROWS and not nests:
            break
        nests |= {k for k, v in row.items() if v[:1] == "{" and _MAY_NEST.search(k)}
        new = {name: text for name, text in row.items() if not found[name]}
        for name in nests:
            new |= _nested(name, row.get(name, ""))
        found |= {name: text for name, text in new.items() if not found.get(name)}
    return {name: text for name, text in found.items() if name not in nests}


def _nested(name: str, text: str) -> dict[str, Any]:
    """Return what an object in a cell holds, by paths."""
    try:
        return flat({name: json.loads(text)})
    except (ValueError, KeyError, RecursionError):
        return {}


def _holder(column: str, names: Sequence[str]) -> str:
    """Return the column of a CSV in whose cells one is, itself where it is none."""
    inside = (name for name in names if column.startswith(f"{name}."))
    return column if column in names else next(inside, "")


def whole_records(
    notes: Notes,
    salvage: bool,
    wanted: Collection[str] | None = None,
    wrappers: Collection[str] = WRAPPERS,
) -> Iterator[Record]:
    """Yield the records of a file, of a broken one with ``salvage`` those before."""
    count, tops = 0, list[dict[str, Any]]()
    try:
        for record in records(notes.path, wanted, wrappers, tops=tops):
            yield record
            count += 1
        with suppress(KeyError):  # a key that appears twice is none of a page
            if said := page(tops):
                notes.add(said)
                notes.remarks.append(said)
    except BrokenFileError as broken:
        said = f"{broken}, after {count:,} whole records"
        if not salvage or not count:
            keep = ", or keep these with --salvage" * (count > 0)
            raise InputError(f"{said}; get the whole file{keep}") from None
        notes.add(f"{said.removeprefix(f'{notes.path}: ')}, which are kept")


def read_table(notes: Notes, wanted: Mapping[str, Any], *, salvage: bool) -> Table:
    """Return all rows of a file, plain or gzipped.

    ``wanted`` has the pandas dtype of each column to read, None to infer it.
    ``salvage`` keeps the rows before the end of a broken file.
    """
    import pandas as pd

    path = notes.path
    at_once = None if form(path) == "csv" else _ROWS_AT_ONCE
    if at_once is None:
        _refuse_too_many(path)
    tables: list[Table] = []
    for table in iterate_tables(notes, at_once, wanted, salvage=salvage):
        tables.append(table)
        if sum(map(len, tables)) > MOST_REQUESTS:
            raise InputError(_TOO_MANY.format(path=path, most=MOST_REQUESTS))
    if not tables or not len(tables[0]):
        raise InputError(f"{path}: no requests under the header; expected some")
    if len(tables) == 1:
        return tables[0]
    frame = pd.concat([table.frame for table in tables])
    named = {name: "category" for name in wanted if wanted[name] == "category"}
    return Table(path, frame.astype(named))


def _refuse_too_many(path: str | Path) -> None:
    """Refuse a file of more rows than are held at once; a small .gz may have them."""
    rows = line_bytes = 0
    with opened(path) as file:
        while block := file.read(_BLOCK_BYTES):
            rows += block.count(b"\n")
            ends = block.rfind(b"\n")
            line_bytes = len(block) - ends - 1 + (line_bytes if ends < 0 else 0)
            if line_bytes > _MAX_LINE_BYTES:
                raise InputError(
                    f"{path}:{rows + 1}: a line of more than {_MAX_LINE_BYTES:,} "
                    "bytes; expected a CSV"
                )
            if rows > MOST_REQUESTS + 1:
                raise InputError(_TOO_MANY.format(path=path, most=MOST_REQUESTS))


def iterate_tables(
    notes: Notes, chunk_rows: int | None, wanted: Mapping[str, Any], *, salvage: bool
) -> Iterator[Table]:
    """Yield a file as tables of at most ``chunk_rows`` rows; their index counts on."""
    path = notes.path
    if form(path) == "csv":
        with opened(path) as file:
            yield from _tables(path, file, chunk_rows, wanted)
        return
    rows, first = whole_records(notes, salvage, wanted), 0
    while batch := [fields for _, fields in islice(rows, chunk_rows)]:
        yield table_of(path, batch, range(first, first + len(batch)), wanted)
        first += len(batch)


def table_of(
    path: str | Path,
    rows: Sequence[Mapping[str, Any]],
    index: "list[int] | range | pd.Index",
    wanted: Mapping[str, Any],
) -> Table:
    """Return a table of rows; ``index`` has the row of the file of each."""
    import pandas as pd

    columns = {
        name: pd.Series([_value(row.get(name), dtype) for row in rows], index, dtype)
        for name, dtype in wanted.items()
    }
    return Table(path, pd.DataFrame(columns, index))


def _value(value: Any, dtype: Any) -> Any:
    if dtype == "category":
        if isinstance(value, list):
            return ";".join(map(str, value)) or None
        return None if value in (None, "") else str(value)
    return None if isinstance(value, str) and value in _MISSING else value


def _tables(
    path: str | Path, file: IO[bytes], chunk_rows: int | None, wanted: Mapping[str, Any]
) -> Iterator[Table]:
    import pandas as pd

    # Every digit of an arrival counts in a replay; pandas 3.1 reads them by default.
    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    exact: Any = "round_trip" if version < (3, 1) else None
    names = header(path)
    tops = {name: _holder(name, names) for name in wanted if name not in names}
    nests = {*tops.values()} - {""}
    columns = [name for name in names if name in wanted or name in nests]
    missing = {
        name: [""] if wanted.get(name) == "category" else _MISSING for name in names
    }
    dtypes = {name: wanted[name] for name in columns if wanted.get(name) is not None}
    # pandas only warns of a row longer than the header, and with usecols does not:
    # so all columns are parsed.
    with _refusals(path):
        frames = pd.read_csv(
            file,
            header=0,
            names=names,  # without the blanks around them
            dtype=dtypes,
            keep_default_na=False,
            na_values=missing,
            index_col=False,
            encoding="utf-8-sig",
            sep=separator(path),
            float_precision=exact,
            low_memory=False,
            skipinitialspace=True,
            iterator=True,
            chunksize=chunk_rows,
        )
    with frames:
        while True:
            with _refusals(path):
                frame = next(frames, None)
            if frame is None or not len(frame):
                return
            for nest in nests:
                cells = [_nested(nest, str(text)) for text in frame[nest]]
                inner = {name: wanted[name] for name in tops if tops[name] == nest}
                of = table_of(path, cells, frame.index, inner).frame
                frame = frame.drop(columns=nest).join(of)
            yield Table(path, frame[[name for name in wanted if name in frame]])


@contextmanager
def _refusals(path: str | Path) -> Iterator[None]:
    """Turn pandas' errors about a malformed file into an InputError."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            yield
        except (
            pd.errors.EmptyDataError,
            pd.errors.ParserError,
            pd.errors.ParserWarning,
        ) as error:
            longer = longer_than_header(path)
            raise InputError(longer or f"{path}: not a CSV ({error})") from None
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}: byte {error.object[error.start]:#04x} is not UTF-8; expected "
                "text in UTF-8; where it is of Windows: "
                f"{from_windows(path, 'utf8.csv')}"
            ) from None
