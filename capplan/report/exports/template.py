"""Documents of deployments, filled from their templates."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from capplan.input_file import parse_yaml, read_text

_NAME = re.compile(r"[$*]\w+")


@cache
def _templates() -> dict[str, Any]:
    path = Path(__file__).with_name("templates.yaml")
    found: dict[str, Any] = parse_yaml(path, read_text(path))[0]
    return found


def filled(template: str, **values: Any) -> dict[str, Any]:
    """Return the document of a template with its values, see ``templates.yaml``."""
    document: dict[str, Any] = _filled(_templates()[template], values)
    return document


def _filled(part: Any, values: dict[str, Any]) -> Any:
    if isinstance(part, dict):
        found: dict[str, Any] = {}
        for key, inner in part.items():
            is_all = _NAME.fullmatch(key) is not None
            found |= _filled(key, values) if is_all else {key: _filled(inner, values)}
        return found
    if isinstance(part, list):
        items: list[Any] = []
        for item in part:
            several = isinstance(item, str) and item.startswith("*")
            items += _filled(item, values) if several else [_filled(item, values)]
        return items
    if isinstance(part, str) and _NAME.fullmatch(part):
        name = part[1:]
        return values[name] if name in values else _filled(_templates()[name], values)
    return part
