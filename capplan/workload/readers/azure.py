"""Azure's LLM inference traces, read by column name.

https://github.com/Azure/AzurePublicDataset: 2023 (code, conversation), 2024 (a week
of each) and the multimodal trace of 2025 with ``NumImages``. Stamps may lack a zone
or a fraction; all are taken as UTC.
"""

from dataclasses import replace
from pathlib import Path

from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, answered, ordered_trace
from capplan.workload.readers.table import first_names, read_table
from capplan.workload.trace import Trace

_REQUIRED = {"TIMESTAMP": str, "ContextTokens": None, "GeneratedTokens": None}


def sniff(head: bytes) -> bool:
    """Return whether the header has Azure's columns."""
    return set(_REQUIRED) <= first_names(head)


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of an Azure trace; the first arrives at 0 s.

    Requests without output tokens are left out with a note: they do not decode and
    cannot be told from failures.
    """
    table = read_table(path, {**_REQUIRED, "NumImages": None})
    table.require_columns(_REQUIRED, "Azure")
    notes = Notes(path)
    output_tokens = table.tokens("GeneratedTokens", least=0)
    expected = "a time such as 2023-11-16 18:15:46.6805900"
    stamp_ns = table.stamps_ns("TIMESTAMP", expected)
    kept = answered(notes, output_tokens)
    prompt_tokens = table.tokens("ContextTokens", least=0)
    table.require((prompt_tokens > 0) | ~kept, "ContextTokens", "at least 1 token")
    if "NumImages" in table.frame:
        images = table.tokens("NumImages", least=0)[kept]
        if images.any():
            notes.add(
                f"{images.sum():,} images in {(images > 0).sum():,} requests count "
                "only as far as ContextTokens holds their tokens"
            )
    stamp_ns = stamp_ns[kept]
    first_ns = stamp_ns.min()
    trace = ordered_trace(
        notes,
        (stamp_ns - first_ns) / 1e9,
        prompt_tokens=prompt_tokens[kept],
        output_tokens=output_tokens[kept],
    )
    return replace(trace, clock_s=first_ns / 1e9 + table.zone_s("TIMESTAMP"))
