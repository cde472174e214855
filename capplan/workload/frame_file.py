"""Requests in a DataFrame, as the CSV file that readers take."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from capplan.errors import InputError


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame, of pandas or of what looks like it."""
    return hasattr(value, "to_csv") and hasattr(value, "columns")


def frame_file(frame: Any) -> str:
    """Return the path of a CSV file with the rows and columns of a DataFrame.

    It is named by its content, in the folder of temporary files: a plan made from it
    can be verified as long as it is there.
    """
    if len(frame) == 0:
        raise InputError("trace is a DataFrame without rows; expected requests")
    for name in frame.columns:
        if not isinstance(name, str):
            raise InputError(
                f"trace is a DataFrame whose column {name!r} has no name; expected "
                "arrival_s, prompt_tokens, output_tokens"
            )
    content = frame.to_csv(index=False).encode()
    folder = Path(tempfile.gettempdir()) / f"capplan-{os.getuid()}"
    path = folder / f"dataframe-{hashlib.sha256(content).hexdigest()[:12]}.csv"
    if not path.is_file() or path.read_bytes() != content:
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    return str(path)
