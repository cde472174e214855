"""What is said of a header without the requests' columns, and of a folder."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.input_file import read_head

NEEDED = ("prompt_tokens", "output_tokens")
TIMES = {"time", "date", "at", "when", "timestamp", "ts", "start", "created", "epoch"}
_MAY_BE = (
    TIMES,
    {"prompt", "input", "in", "context", "ctx"},
    {"completion", "output", "out", "generated", "gen", "response"},
)
"""Words of names that are proposed for arrivals, prompts and outputs."""


def _hints(when: str) -> dict[str, str]:
    """Return what ``data/hints.csv`` says of a file by a column that it has."""
    rows = read_rows(Path(__file__).parent / "data/hints.csv")[1]
    return {row["column"]: row["says"] for _, row in rows if row["when"] == when}


_HINTS, _WITHOUT_COUNTS = _hints("always"), _hints("no counts")
"""What a file is, where its requests are not found, or one of the counts is not."""
_SUMS = _hints("sums")
"""Columns that only sums of many requests have."""
_OF_MANY = re.compile(r"\s*(?:sum|count|avg|mean|rate|irate|increase)\s*\(", re.I)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\d{4}-\d\d-\d\d.*")
_COUNTS = re.compile(r"""(?s)\s*\{.*token\w*["']?\s*:\s*\d""", re.I)
_PATH = re.compile(r"[\w.]+")
_COUNT = re.compile(r"\s*\d|$")
_NAME = re.compile(r"(?:\S{1,40}[ ]?){1,4}")
_MOST_SHOWN = 60
"""Characters of a name; what is longer is text of a log or of its users."""
_OF_SERVEGEN = re.compile(r"chunk-\d+-(?:trace\.csv|dataset\.json)")
_END = re.compile(r"(?:\.[A-Za-z]\w*)?(?:\.(?:gz|zst|bz2|xz))?$")
_CATS = {".gz": "zcat", ".zst": "zstdcat", ".bz2": "bzcat", ".xz": "xzcat"}
_CATS |= {"": "awk 1"}  # which ends the last line of each file
_OF_ARRAYS = " | jq -c 'if type == \"array\" then .[] else . end'"
_ONE_HEADER = " | awk 'NR == 1 {h = $0} NR == 1 || $0 != h'"
_MOST_FILES = 10_000


def refuse_folder(path: Path) -> None:
    """Refuse a folder, with the command that makes a file of its files."""
    if any(path.glob("chunk-*-trace.csv")) or _OF_SERVEGEN.fullmatch(path.name):
        folder = quote(str(path if path.is_dir() else path.parent))
        raise InputError(f"{path}: is of ServeGen's clients; give --workload {folder}")
    if not path.is_dir():
        return
    files = list(islice(filter(Path.is_file, path.rglob("[!.]*")), _MOST_FILES))
    folder = quote(str(path))
    ends = Counter(_END.findall(file.name)[0] for file in files)
    end = max(ends, key=lambda end: (ends[end], end.count(".") < 2), default="")
    first = next((file for file in files if file.name.endswith(end)), None)
    packed = next((of for of in _CATS if of and end.endswith(of)), "")
    kind = end.removesuffix(packed)
    do = f"find {folder} -name '*{end}' -exec {_CATS[packed]} {{}} +"
    if kind == ".csv":
        do += _ONE_HEADER
    elif (kind == ".json" and packed not in ("", ".gz")) or (
        first and read_head(first, 1) == b"["
    ):
        do += _OF_ARRAYS
    do += f" > all{kind}"
    if kind == ".parquet":
        code = f"import pandas; all = pandas.read_parquet({str(path)!r}); "
        do = "python -c " + quote(code + "all.to_parquet('all.parquet')")
    many = f"{len(files):,} file{'s' * (len(files) != 1)}"
    raise InputError(f"{path}: is a folder of {many}; expected one file: {do}")


def refuse_no_requests(
    place: str, header: Sequence[str], given: Collection[str]
) -> None:
    """Refuse sums of requests, tables by columns, logs of texts and lacking headers."""
    sums = [f"{name} ({_SUMS[name]})" for name in header if name in _SUMS]
    sums += [name for name in header if _OF_MANY.match(name)]
    if "spend" in header and any(name.startswith("models.") for name in header):
        _refuse(place, "these are LiteLLM's sums by day: ask with summarize=false")
    if sums:
        _refuse(place, f"each row is a sum of requests: it has {listed(sums, 3)}")
    by_columns = len(header) > 1 and all(re.search(r"\.\d+$", at) for at in header)
    if by_columns or {"columns", "index", "data"} == {*header}:
        raise InputError(
            f"{place}: this is a table by columns; expected a row for each request, as "
            "pandas' to_json(orient='records', lines=True) writes"
        )
    if any("Received request " in name for name in header):
        _refuse(place, "this is vLLM's log, which has no lengths of answers")
    if place.endswith(":1") and not {*header} & {*given}:
        values = [name for name in header if _NUMBER.fullmatch(name)]
        if len(values) > 1 and 2 * len(values) >= len(header):
            raise InputError(
                f"{place}: looks like values: no header; expected names above them, "
                "as (echo arrival_s,prompt_tokens,output_tokens; cat "
                f"{quote(place[:-2])}) > new.csv writes, in the order of the file"
            )


def _refuse(place: str, what: str) -> NoReturn:
    raise InputError(f"{place}: {what}; expected a row for each request")


def refusal(
    place: str,
    wrong: Sequence[str],
    arrival: str,
    names: Mapping[str, str],
    header: Sequence[str],
    first: Mapping[str, Any],
) -> str:
    """Return what is wrong with a header, and the command that would work.

    ``first`` has a value of each column that has one.
    """
    said = {column: names.get(column, "") for column in (arrival, *NEEDED)}
    for column, words in zip(said, _MAY_BE, strict=True):
        free = (name for name in header if name not in said.values() and _is_name(name))
        may_be = (name for name in free if words & {*plain(name).split("_")})
        if column in NEEDED:
            may_be = (name for name in may_be if _COUNT.match(str(first.get(name, 0))))
        said[column] = said[column] or next(may_be, "")
    counts = [said[column] for column in NEEDED if said[column]]
    known = _HINTS | (_WITHOUT_COUNTS if len(counts) < len(NEEDED) else {})
    hints = dict.fromkeys(hint for name, hint in known.items() if name in header)
    if len(header) == 1 and place.endswith(":1"):
        hints["this is no table: expected names with , ; tab or | between"] = None
    has = f"{place}: {'; '.join([*hints, *wrong])}; the file has {listed(header)}"
    if hints:
        return has
    if not counts and (opens := _opens_texts(first)):
        return f"{has}; JSON is a text in it: {opens} {quote(place)} > rows.jsonl"
    if len(counts) < len(NEEDED):
        none = "" if counts else ": no token counts"
        return f"{has}{none}; --columns says which, if some are meant"
    named = (f"{column}={name}" for column, name in said.items() if name)
    command = quote(",".join(named))
    return f"{has}: say which are which, as with --columns {command}"


def _opens_texts(first: Mapping[str, Any]) -> str:
    """Return what opens texts that hold the JSON of token counts; empty without any."""
    if {"log", "stream"} <= {*first}:
        return "jq -rj .log"  # Docker cuts a long line into several
    opens = "walk(fromjson? // .)"
    of_lists = [at for at, value in first.items() if isinstance(value, list)]
    for name in (*of_lists, *first):  # rows around a list, as MLflow's, are its sums
        if any(map(_COUNTS.match, _texts(first[name]))):
            rows = f".{name}[] | " * (name in of_lists and bool(_PATH.fullmatch(name)))
            return f"jq -c '{rows}{opens}'"
    return ""


def _texts(value: Any, levels: int = 9) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and levels:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner, levels - 1)


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names in a line, the first of many, and how many are texts."""
    shown = [name for name in names if _is_name(name)]
    more = len(shown) - most
    texts = len(names) - len(shown)
    parts = [", ".join(shown[:most]) + f" and {more} more" * (more > 0)] * bool(shown)
    parts += [f"{texts} long text{'s' * (texts > 1)}"] * bool(texts)
    return " and ".join(parts)


def _is_name(text: str) -> bool:
    return len(text) <= _MOST_SHOWN and _NAME.fullmatch(text) is not None


def plain(name: str) -> str:
    """Return a name in small letters with underlines.

    Examples
    --------
    >>> plain("startTime"), plain("usage.Prompt Tokens")
    ('start_time', 'usage_prompt_tokens')
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")
