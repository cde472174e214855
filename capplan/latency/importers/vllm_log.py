"""vLLM's log with ``--enable-logging-iteration-details``: a line per iteration.

A line has requests, tokens and the elapsed time; the context of the decoding requests
follows from the KV usage and the KV capacity, which is logged once. KV that a
prefill-only iteration holds beyond its new tokens is its cached prefix; in a mixed
iteration it cannot be separated and counts as context of the decoding requests.
"""

import re
from pathlib import Path

import numpy as np

from capplan.errors import InputError, warn
from capplan.input_file import read_text
from capplan.latency.importers import ImportOptions
from capplan.latency.measurements import Points, merge_duplicates, points_from_rows

_ITERATION = re.compile(
    r"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, "
    r"(\d+) generation requests, (\d+) generation tokens, "
    r"iteration elapsed time: ([\d.]+) ms( \(dummy\))?"
    r"(?:, \S+ KV cache usage: ([\d.]+)%)?"
)
_CAPACITY = re.compile(r"KV cache size: ([\d,]+) tokens")


def read(path: Path, options: ImportOptions) -> Points:
    """Return the iterations of the log, those of the same kind averaged."""
    text = read_text(path)
    matches = list(_ITERATION.finditer(text))
    if not matches:
        raise InputError(
            f"{path}: holds no line of an iteration; start vLLM with "
            "--enable-logging-iteration-details"
        )
    capacity = _CAPACITY.search(text)
    kv_tokens = options.kv_tokens or (
        int(capacity.group(1).replace(",", "")) if capacity else None
    )
    if kv_tokens is None:
        raise InputError(
            f"{path}: has no KV cache size; give --kv-tokens as vLLM "
            "printed it at start"
        )
    rows = []
    for match in matches:
        _, prompts, new, decoding, decoded, elapsed_ms, dummy, usage = match.groups()
        kv_used = float(usage or "nan") / 100 * kv_tokens
        row = _row(int(prompts), int(new), int(decoding), kv_used)
        # More tokens than requests is speculative decoding, which is not modelled.
        plain = not dummy and decoded == decoding and float(elapsed_ms) > 0
        if plain and row is not None:
            rows.append((*row, float(elapsed_ms) / 1e3))
    if skipped := len(matches) - len(rows):
        warn(
            f"{path}: {skipped} of {len(matches)} iterations are empty, dummy, "
            "speculative or of an unknown context, and were left out"
        )
    if not rows:
        raise InputError(f"{path}: no iteration is left to fit")
    return merge_duplicates(points_from_rows(rows), str(path))


def _row(
    prompts: int, new: int, decoding: int, kv_used: float
) -> tuple[str, float, float, float] | None:
    """Return phase, batch, new tokens and context; None when the context is unknown."""
    if prompts and not decoding:
        prefix = max(kv_used - new, 0.0) if np.isfinite(kv_used) else 0.0
        # Usage is rounded to blocks and 0.1 %: a small remainder is not a prefix.
        known = prefix / prompts if prefix > 0.5 * new else 0.0
        return "prefill", prompts, new, round(known)
    if not np.isfinite(kv_used) or not decoding:
        return None
    context = max(kv_used - (new if prompts else 0), decoding) / decoding
    if prompts:
        return "mixed", decoding, new + decoding, round(context)
    return "decode", decoding, decoding, round(context)
