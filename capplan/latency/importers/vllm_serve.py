"""``vllm bench serve --save-result --save-detailed``: the requests of a served run."""

from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.latency.importers import ImportOptions
from capplan.latency.measurement_file import need, one_run
from capplan.latency.served_run import Row, ServedRun, served_run

_DETAIL = ("input_lens", "output_lens", "ttfts", "itls", "start_times")


def read(path: Path, options: ImportOptions) -> ServedRun:
    """Return the completed requests of the last run, or of ``index=N`` from 1."""
    content = one_run(path, (), options.where)
    if "itls" not in content:
        raise InputError(
            f"{path}: holds no times of single requests; run vllm bench serve with "
            "--save-result --save-detailed, or calibrate a profile with its means: "
            "--onto GPU/LLM/tpN"
        )
    columns = need(path, content, *_DETAIL)
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(
            f"{name} {len(column)}"
            for name, column in zip(_DETAIL, columns, strict=True)
        )
        raise InputError(f"{path}: lists differ in length: {counts}")
    rows: list[Row | None] = []
    for prompt, output, ttft_s, gaps_s, start_s in zip(*columns, strict=True):
        if not output or not ttft_s:
            rows.append(None)
            continue
        e2e_s = ttft_s + float(np.asarray(gaps_s, np.float64).sum())
        rows.append((start_s, prompt, output, ttft_s, e2e_s))
    model = content.get("model_id", "an unnamed model")
    source = f"vllm bench serve, {model}"
    return served_run(rows, source=source, path=path)
