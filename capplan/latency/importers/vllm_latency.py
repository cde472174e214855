"""``vllm bench latency --output-json``: end-to-end times of one batch, repeated."""

from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.input_file import parse_json, read_text
from capplan.latency.importers import ImportOptions
from capplan.latency.measurement_file import need
from capplan.latency.served_run import ServedRun, served_run


def read(path: Path, options: ImportOptions) -> ServedRun:
    """Return the batch as requests that arrive together, without TTFT.

    The file does not hold the batch size and the lengths; they are options.
    """
    [latencies] = need(path, parse_json(path, read_text(path)), "latencies")
    shape = (options.batch, options.input_tokens, options.output_tokens)
    if None in shape:
        raise InputError(
            f"{path}: vllm bench latency does not save the shape of its batch; give "
            "--batch, --input-len and --output-len as the benchmark was given"
        )
    batch, prompt, output = (int(value or 0) for value in shape)
    times = np.asarray(latencies, np.float64)
    if times.size == 0 or not (np.isfinite(times) & (times > 0)).all():
        raise InputError(f"{path}: latencies must be times > 0, at least one")
    e2e_s = float(np.median(times))
    rows = [(0.0, prompt, output, np.nan, e2e_s)] * batch
    return served_run(rows, source="vllm bench latency", path=path)
