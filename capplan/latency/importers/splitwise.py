"""Splitwise's ``perf_model.csv``: prompt and token times of whole runs.

Patel et al., "Splitwise: Efficient generative LLM inference using phase splitting",
ISCA 2024; the table of its simulator.
"""

from pathlib import Path

from capplan.csv_file import cell_number, refuse_outliers
from capplan.errors import InputError, warn
from capplan.latency.importers import ImportOptions
from capplan.latency.measurement_file import table_rows
from capplan.latency.measurements import Points, merge_duplicates, points_from_rows

_NUMBERS = ("prompt_size", "batch_size", "token_size", "prompt_time", "token_time")
_ALIAS = {"tp": "tensor_parallel", "gpu": "hardware", "llm": "model"}

PointRow = tuple[str, float, float, float, float]


def read(path: Path, options: ImportOptions) -> Points:
    """Return a prefill and a decode point of each run.

    ``token_time`` is the mean over the run, so its context is that in the middle of the
    output, prompt + tokens / 2.
    """
    where = {_ALIAS.get(name, name): value for name, value in options.where.items()}
    rows: list[PointRow] = []
    places = []
    for line, row in table_rows(path, _NUMBERS, where):
        prompt, batch, tokens, prompt_ms, token_ms = (
            cell_number(path, line, name, row[name]) for name in _NUMBERS
        )
        if not min(prompt, batch, prompt_ms, token_ms) > 0:
            raise InputError(f"{path}:{line}: sizes and times must be > 0")
        places.append(f"{path}:{line}")
        rows.append(("prefill", batch, batch * prompt, 0, prompt_ms / 1e3))
        middle = prompt + tokens / 2
        rows.append(("decode", batch, batch, middle, token_ms / 1e3))
    for first, name in enumerate(("prompt_time", "token_time")):
        times_ms = [row[-1] * 1e3 for row in rows[first::2]]
        refuse_outliers(name, zip(places, times_ms, strict=True))
    return merge_duplicates(points_from_rows(_plausible(path, rows)), str(path))


def _plausible(path: Path, rows: list[PointRow]) -> list[PointRow]:
    """Leave out prefills that take less than half the time of one with fewer tokens."""
    prefill = [row for row in rows if row[0] == "prefill"]
    wrong = {
        row
        for row in prefill
        if any(less[2] < row[2] and less[4] > 2 * row[4] for less in prefill)
    }
    if wrong:
        sizes = sorted({f"{row[1]:g} prompts, {row[2]:g} tokens" for row in wrong})
        warn(
            f"{path}: prompt_time of {'; '.join(sizes)} is less than half of what "
            "fewer tokens take; left out"
        )
    return [row for row in rows if row not in wrong]
