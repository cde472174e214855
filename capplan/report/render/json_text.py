"""Results as JSON: the same result gives the same bytes."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from capplan.deployment.policy import Policy
from capplan.input_file import CONTROLS


def json_text(values: Mapping[str, Any]) -> str:
    """Return values as JSON; a number that is not finite is null."""
    text = render(plain(values))
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def render(value: Any, indent: str = "") -> str:
    """Return indented JSON with lists of plain values on one line each."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        parts = [
            f"{deeper}{json.dumps(key, ensure_ascii=False)}: {render(item, deeper)}"
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    # A series of 100 numbers takes one line, a list of candidates many.
    if isinstance(value, list) and any(isinstance(row, dict | list) for row in value):
        parts = [f"{deeper}{render(item, deeper)}" for item in value]
        return "[\n" + ",\n".join(parts) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Return dataclasses, tuples and arrays as values that JSON has."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Policy):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value
