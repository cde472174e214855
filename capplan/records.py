"""Read rows of JSON and Parquet files as flat records, with their place.

JSON lines, objects one after the other, an array, an object that wraps a list of rows
(``{"data": [...]}``, OTLP's ``resourceSpans``), and Parquet. A key inside an object
becomes a path, ``usage.prompt_tokens``; a list of ``{"key": …, "value": …}``, as
OpenTelemetry writes attributes, is such an object.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import IO, Any, NamedTuple

from capplan.errors import InputError
from capplan.input_file import (
    DECOMPRESSION_ERRORS,
    MOST_TEXT_BYTES,
    BrokenFileError,
    opened,
    parse_json,
    read_head,
    read_text,
)
from capplan.json_array import iterate_items

WRAPPERS = (
    *("resourceSpans", "scopeSpans", "instrumentationLibrarySpans", "batches"),
    *("spans", "data", "runs", "observations", "requests", "records", "result"),
    *("results", "rows", "items", "logs"),
)
"""Keys of lists that hold the rows of a file, or objects that wrap them."""

UNPACK = {".zst": "unzstd", ".bz2": "bunzip2 -k", ".xz": "unxz -k"}
"""Commands that unpack files and keep them, by their ending."""
_BINARY = {
    "an SQLite database": (b"SQLite format 3", "export its table as CSV"),
    "an Arrow file": (b"ARROW1", "write it as Parquet"),
    "an Excel workbook": (
        rb"PK\x03\x04.*(?:\[Content_Types|xl/)|\xd0\xcf\x11\xe0",
        "save its sheet as CSV UTF-8",
    ),
    "a zip archive": (b"PK\x03\x04", "unzip {}"),
    "text in UTF-16": (b"\xff\xfe|\xfe\xff", "iconv -f UTF-16 -t UTF-8 {} > utf8.csv"),
    "compressed by zstd": (rb"\x28\xb5\x2f\xfd", f"{UNPACK['.zst']} {{}}"),
    "compressed by bzip2": (b"BZh", f"{UNPACK['.bz2']} {{}}"),
    "compressed by xz": (b"\xfd7zXZ", f"{UNPACK['.xz']} {{}}"),
    "an Avro file": (b"Obj\x01", "write it as Parquet"),
    "an ORC file": (b"ORC", "write it as Parquet"),
    "a tar archive": (b".{257}ustar", "tar xf {}"),
}
"""First bytes of files that are no text, and what to do with one."""
_TEXT_AROUND = re.compile(rb"(?s)(?m)(?!\[\s*[{\]])[^{].*^\{\"[^\"\n][^\n]*\}\s*$")
"""Lines of JSON behind one that is none."""
_HEAD_BYTES = 65536
_NO_BLANK = re.compile(r"\S")
_LAST_COMMA = re.compile(r",\s*\]\s*\Z")
_SIMPLE = frozenset((str, int, float, bool, type(None)))
_PARQUET_ROWS = 10_000
_DOT_OR_END = re.compile(r"\.|$")
_MOST_LEVELS = 16
"""Points in a path of a nest; what is deeper stays a value."""
_VALUE_KEYS = re.compile(
    r"(string|int|double|bool|array|kvlist|bytes)Value|\$(date|number\w+)"
)


class Record(NamedTuple):
    """A row of a file; ``place`` goes behind the path of the file in a message."""

    place: str
    fields: dict[str, Any]


def form(path: str | Path) -> str:
    """Return how a file holds rows: ``csv`` (or text), ``json`` or ``parquet``."""
    head = read_head(path, _HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    if head.startswith(b"PAR1"):
        return "parquet"
    for named, (magic, do) in _BINARY.items():
        if re.match(magic, head, re.DOTALL):
            raise InputError(
                f"{path}: is {named}; expected UTF-8 text (CSV, JSON), or Parquet: "
                f"{do.format(quote(str(path)))}"
            )
    if b"\0" in head:
        raise InputError(f"{path}: holds bytes that are no text; expected CSV or JSON")
    if _TEXT_AROUND.match(head.lstrip()):
        raise InputError(f"{path}: text stands among its JSON; {_only_json(path)}")
    return "json" if head.lstrip()[:1] in (b"{", b"[") else "csv"


def records(
    path: str | Path,
    wanted: Collection[str] | None = None,
    wrappers: Collection[str] = WRAPPERS,
    *,
    around: bool = False,
    tops: list[dict[str, Any]] | None = None,
) -> Iterator[Record]:
    """Yield the rows of a JSON or Parquet file, plain or gzipped.

    ``wanted`` are the fields to keep, all by default. Keys of ``wrappers`` that hold
    a list of objects are opened; with ``around`` their rows have its other keys too.
    The first two objects of a JSON file are added to ``tops``, as they stand there.
    """
    is_parquet = form(path) == "parquet"
    of_any = None if wanted is None else _beginnings(wanted)
    for place, item in _parquet(path, of_any) if is_parquet else _json(path):
        if tops is not None and len(tops) < 2 and not is_parquet:
            tops.append(item)
        for where, row in _rows(place, item, wrappers, around):
            if of_any is not None:
                row = {key: row[key] for key in row if key in of_any}
            try:
                fields = flat(row)
            except KeyError as twice:
                raise InputError(
                    f"{path}{where}: {twice.args[0][:60]!r} appears twice; expected "
                    "once"
                ) from None
            if wanted is not None:
                fields = {name: fields[name] for name in wanted if name in fields}
            yield Record(where, fields)


def _beginnings(names: Collection[str]) -> set[str]:
    """Return what paths may begin with: of ``a.b.c`` ``a``, ``a.b`` and itself."""
    return {name[: dot.start()] for name in names for dot in _DOT_OR_END.finditer(name)}


def _json(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    head = read_head(path, _HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    values = _array(path) if head.startswith(b"[") else _lines(path)
    for place, value in values:
        if not isinstance(value, dict):
            raise InputError(f"{path}{place}: no object; expected a request")
        yield place, value


def page(tops: Sequence[dict[str, Any]]) -> str:
    """Return which page of an API's answer the objects of a file are; empty: none."""
    if len(tops) != 1:
        return ""
    told = {k.replace("_", "").lower(): v for k, v in flat(tops[0]).items()}
    told |= {re.sub(r"^(meta|resultinfo)\.", "", k): v for k, v in told.items()}
    page, pages = told.get("page"), told.get("totalpages")
    each, total = told.get("perpage"), told.get("totalcount")
    if type(each) is type(total) is int and each > 0 and pages is None:
        pages = -(-total // each)
    if type(page) is type(pages) is int and pages > 1:
        return f"is page {page:,} of {pages:,}: the rest is not in it"
    if told.get("hasmore") is True or told.get("page.after"):
        return "is a page of several: the rest is not in it"
    return ""


def _array(path: str | Path) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        for number, item in enumerate(iterate_items(path), 1):
            yield f": item {number:,}", item
    except BrokenFileError as broken:
        try:  # NaN and Infinity, or a comma behind the last, which tools write
            text = _LAST_COMMA.sub("]", read_text(path))
            others = parse_json(path, text)[number:]
        except BrokenFileError:
            raise
        except InputError:
            raise BrokenFileError(f"{path}: {broken}") from None
        for further, item in enumerate(others, number + 1):
            yield f": item {further:,}", item


def _lines(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield the object of each line, or of a file whose objects take several."""
    is_first = True
    with opened(path) as file:
        lines = _until_damaged(path, file)
        for number, raw in enumerate(lines, 1):
            if len(raw) == MOST_TEXT_BYTES:
                raise InputError(
                    f"{path}:{number}: a line of more than {MOST_TEXT_BYTES >> 20} MiB;"
                    " expected an object a line"
                )
            if not raw.strip():
                continue
            try:
                value = parse_json(path, raw, number)
            except BrokenFileError as wrong:
                if is_first:
                    break  # its objects may take several lines each
                if not any(map(bytes.strip, lines)):
                    raise  # the last line
                keep = "; {} > rows.jsonl keeps the lines that are whole"
                jq = keep.format(f"zcat -f {quote(str(path))} | jq -cR 'fromjson?'")
                only = jq if raw.startswith(b"{") else f"; {_only_json(path)}"
                raise InputError(f"{wrong}{only}") from None
            is_first = False
            yield f":{number}", value
        else:
            return
    yield from _spread(path)


def _until_damaged(path: str | Path, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; a BrokenFileError where its gzip data end."""
    try:
        yield from iter(lambda: file.readline(MOST_TEXT_BYTES), b"")
    except DECOMPRESSION_ERRORS as error:
        raise BrokenFileError(
            f"{path}: the gzip data are damaged or cut off ({error})"
        ) from None


def _only_json(path: str | Path) -> str:
    """Return the command that takes the lines of objects out of a file."""
    grep = "zgrep" if str(path).endswith(".gz") else "grep"
    return f"{grep} '^{{' {quote(str(path))} > rows.jsonl keeps the lines of JSON"


def _spread(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield objects that take several lines each."""
    text = read_text(path)
    line, end = 1, 0
    while found := _NO_BLANK.search(text, end):
        line += text.count("\n", end, found.start())
        value, end = parse_json(path, text, at=found.start())
        yield f":{line}", value
        line += text.count("\n", found.start(), end)


def _parquet(
    path: str | Path, wanted: Collection[str] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a Parquet file as JSON would have them, of columns wanted."""
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
            tops = [name for name in tops if name in wanted]
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
        if key in item
        and isinstance(rows := item[key], list)
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
        if isinstance(value, dict) and len(value) == 1:
            value = _attribute(value)
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
        and value.keys() - {"type"} == {"key", "value"}  # Jaeger's have a type
        and isinstance(value["key"], str)
    )


def _attribute(value: Any) -> Any:
    """Return a value that OTLP or MongoDB writes by its type: ``{"intValue": "7"}``."""
    while isinstance(value, dict) and len(value) == 1:
        kind, inner = next(iter(value.items()))
        if not _VALUE_KEYS.fullmatch(kind):
            break
        value = inner
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
    with suppress(BrokenFileError):  # said when the rows are read
        for _, fields in records(path):
            for name, value in fields.items():
                if name not in found and value not in (None, ""):
                    found[name] = value
    return found
