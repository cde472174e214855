"""Remedies for the reasons for which engines fail to start."""

import re
from pathlib import Path

from capplan.csv_file import read_rows

_ADVICE = Path(__file__).parent / "data/advice.csv"
"""Patterns of reasons, and remedies; the first that is found counts."""


def advice(reason: str) -> str:
    """Return a remedy for the engine's own reason.

    Examples
    --------
    >>> advice("ModuleNotFoundError: No module named 'vllm'")
    'install vLLM in this environment, or use --backend torch'
    """
    for _, row in read_rows(_ADVICE)[1]:
        if re.search(row["reason"], reason, re.IGNORECASE | re.DOTALL):
            return row["remedy"]
    return "read the log beside the profile"
