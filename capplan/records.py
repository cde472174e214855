"""Read rows of JSON and Parquet files as flat records, with their place.

JSON lines, objects one after the other, an array, an object that wraps a list of rows
(``{"data": [...]}``, OTLP's ``resourceSpans``), and Parquet. A key inside an object
becomes a path, ``usage.prompt_tokens``; a list of ``{"key": …, "value": …}``, as
OpenTelemetry writes attributes, is such an object.
"""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from capplan.errors import InputError
from capplan.input_file import (
    MOST_TEXT_BYTES,
    opened,
    parse_json,
    read_head,
    read_text,
)
from capplan.json_array import BrokenArrayError, iterate_items

WRAPPERS = (
    *("resourceSpans", "scopeSpans", "instrumentationLibrarySpans", "batches"),
    *("spans", "data", "runs", "observations", "requests", "records", "result"),
    *("results", "rows", "items", "logs"),
)
"""Keys of lists that hold the rows of a file, or objects that wrap them."""

_MAGIC = {
    b"PAR1": "Parquet",
    b"SQLite format 3": "an SQLite database",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"Obj\x01": "an Avro file",
    b"ORC": "an ORC file",
}
"""First bytes of files that are no text."""
_HEAD_BYTES = 65536
_NO_BLANK = re.compile(r"\S")
_SIMPLE = frozenset((str, int, float, bool, type(None)))
_PARQUET_ROWS = 10_000
_MOST_LEVELS = 16
"""Points in a path of a nest; what is deeper stays a value."""
_VALUE_KEYS = re.compile("(string|int|double|bool|array|kvlist|bytes)Value")


class Record(NamedTuple):
    """A row of a file; ``place`` goes behind the path of the file in a message."""

    place: str
    fields: dict[str, Any]


def form(path: str | Path) -> str:
    """Return how a file holds rows: ``csv`` (or text), ``json`` or ``parquet``."""
    head = read_head(path, _HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    for magic, named in _MAGIC.items():
        if head.startswith(magic):
            if named == "Parquet":
                return "parquet"
            raise InputError(
                f"{path}: is {named}; expected UTF-8 text (CSV, JSON), or Parquet"
            )
    if b"\0" in head:
        raise InputError(f"{path}: holds bytes that are no text; expected CSV or JSON")
    return "json" if head.lstrip()[:1] in (b"{", b"[") else "csv"


def records(
    path: str | Path,
    wanted: Collection[str] | None = None,
    wrappers: Collection[str] = WRAPPERS,
    *,
    around: bool = False,
) -> Iterator[Record]:
    """Yield the rows of a JSON or Parquet file, plain or gzipped.

    ``wanted`` are the fields to keep, all by default. Keys of ``wrappers`` that hold
    a list of objects are opened; with ``around`` their rows have its other keys too.
    """
    read = _parquet(path, wanted) if form(path) == "parquet" else _json(path)
    for place, item in read:
        for where, row in _rows(place, item, wrappers, around):
            try:
                fields = flat(row)
            except KeyError as twice:
                raise InputError(
                    f"{path}{where}: {twice.args[0][:60]!r} stands twice; expected once"
                ) from None
            if wanted is not None:
                fields = {name: fields[name] for name in wanted if name in fields}
            yield Record(where, fields)


def _json(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file with their places."""
    head = read_head(path, _HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    values = _array(path) if head.startswith(b"[") else _lines(path)
    for place, value in values:
        if not isinstance(value, dict):
            raise InputError(f"{path}{place}: no object; expected a request")
        yield place, value


def _array(path: str | Path) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        for number, item in enumerate(iterate_items(path), 1):
            yield f": item {number:,}", item
    except BrokenArrayError as broken:
        try:  # NaN and Infinity, which Python's tools write and JSON does not have
            others = parse_json(path, read_text(path))[number:]
        except InputError:
            raise BrokenArrayError(f"{path}: {broken}") from None
        for further, item in enumerate(others, number + 1):
            yield f": item {further:,}", item


def _lines(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield the object of each line, or of a file whose objects take several."""
    is_first = True
    with opened(path) as file:
        lines = iter(lambda: file.readline(MOST_TEXT_BYTES), b"")
        for number, raw in enumerate(lines, 1):
            if len(raw) == MOST_TEXT_BYTES:
                raise InputError(
                    f"{path}:{number}: a line of more than {MOST_TEXT_BYTES >> 20} MiB;"
                    " expected an object a line"
                )
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise InputError(f"{path}:{number}: is not UTF-8 text") from None
            if not text.strip():
                continue
            try:
                value = parse_json(path, text, number)
            except InputError:
                if is_first:
                    break  # its objects may take several lines each
                raise
            is_first = False
            yield f":{number}", value
        else:
            return
    yield from _spread(path)


def _spread(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield objects that take several lines each."""
    text = read_text(path)
    line, at = 1, 0
    while found := _NO_BLANK.search(text, at):
        start = found.start()
        line += text.count("\n", at, start)
        try:
            _, at = json.JSONDecoder().raw_decode(text, start)
        except json.JSONDecodeError as error:
            where = line + text.count("\n", start, error.pos)
            raise InputError(f"{path}:{where}: not JSON: {error.msg}") from None
        except RecursionError:
            raise InputError(f"{path}:{line}: not JSON: nested too deeply") from None
        except ValueError as error:  # a number of thousands of digits
            raise InputError(f"{path}:{line}: not JSON: {error}") from None
        yield f":{line}", parse_json(path, text[start:at], line)
        line += text.count("\n", start, at)


def _parquet(
    path: str | Path, wanted: Collection[str] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a Parquet file as JSON would have them."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{path}: is Parquet, which needs the package pyarrow; pip install "
            "'capplan[parquet]', or give a CSV or JSON lines"
        ) from None
    try:
        file = parquet.ParquetFile(path)
        tops = file.schema_arrow.names
        if wanted is not None:
            used = {name.partition(".")[0] for name in wanted} | set(wanted)
            tops = [name for name in tops if name in used]
        number = 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=tops):
            for row in batch.to_pylist():
                number += 1
                yield f": row {number:,}", row
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"{path}: not a whole Parquet file ({reason})") from None


def _rows(
    place: str,
    item: dict[str, Any],
    wrappers: Collection[str],
    around: bool,
    depth: int = 0,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows that an object wraps, or itself."""
    wrapped = [
        key
        for key in wrappers
        if isinstance(rows := item.get(key), list)
        and rows
        and all(isinstance(row, dict) for row in rows)
    ]
    if not wrapped or depth > _MOST_LEVELS or "usage" in item:  # a response's data
        yield place, item
        return
    others = {k: v for k, v in item.items() if k not in wrapped} if around else {}
    for key in wrapped:
        for number, row in enumerate(item[key], 1):
            at = f"{place}, {key} {number:,}"
            yield from _rows(at, others | row, wrappers, around, depth + 1)


def flat(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its nested keys as paths; a KeyError where two meet."""
    fields: dict[str, Any] = {}
    _flatten(item, "", fields)
    return fields


def _flatten(item: dict[str, Any], prefix: str, fields: dict[str, Any]) -> None:
    """Put what is in an object into ``fields`` by its path."""
    for key, value in item.items():
        name = f"{prefix}{key}"
        if type(value) not in _SIMPLE:
            if isinstance(value, list) and value and all(map(_is_pair, value)):
                value = {pair["key"]: _attribute(pair["value"]) for pair in value}
            if isinstance(value, dict) and name.count(".") < _MOST_LEVELS:
                _flatten(value, f"{name}.", fields)
                continue
            value = _plain(value)
        if name in fields:
            raise KeyError(name)
        fields[name] = value


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"key", "value"}
        and isinstance(value["key"], str)
    )


def _attribute(value: Any) -> Any:
    """Return the value of an attribute as OTLP writes it, ``{"intValue": "7"}``."""
    if isinstance(value, dict) and len(value) == 1:
        kind, inner = next(iter(value.items()))
        if _VALUE_KEYS.fullmatch(kind):
            return inner
    return value


def _plain(value: Any) -> Any:
    """Return a value of JSON for one of ijson's or pyarrow's types."""
    if isinstance(value, list | dict):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return float(value) if hasattr(value, "as_integer_ratio") else str(value)


def first_values(path: str | Path) -> dict[str, Any]:
    """Return the fields that have a value in some row, with the first such value."""
    found: dict[str, Any] = {}
    for _, fields in records(path):
        for name, value in fields.items():
            if name not in found and value not in (None, ""):
                found[name] = value
    return found
