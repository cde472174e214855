"""LLMServingSim's ``requests.jsonl``: vLLM's own timestamps of each request."""

from pathlib import Path
from typing import Any

from capplan.errors import InputError
from capplan.latency.importers import ImportOptions
from capplan.latency.measurement_file import need
from capplan.latency.served_run import Row, ServedRun, served_run
from capplan.records import records

_COLUMNS = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")


def read(path: Path, options: ImportOptions) -> ServedRun:
    """Return the completed requests, arriving when the engine queued them."""
    rows = [
        _row(where := Path(f"{path}{at}"), need(where, fields, *_COLUMNS))
        for at, fields in records(path, wrappers=())
    ]
    return served_run(rows, source="LLMServingSim's bench", path=path)


def _row(where: Path, values: list[Any]) -> Row | None:
    """Return the row of a request; None for one without output."""
    if None in values or not values[1]:
        return None
    for name, value in zip(_COLUMNS, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{where}: {name} is {value!r}; expected a number")
    prompt, output, queued_s, first_s, last_s = values
    return queued_s, prompt, output, first_s - queued_s, last_s - queued_s
