"""Fields of a Hugging Face ``config.json``, checked as they are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan.errors import InputError
from capplan.input_file import parse_yaml, read_text

_MOST = 10**8
"""More than any shape of an LLM."""
_MOST_LAYERS = 10_000


_DATA = Path(__file__).parent / "data" / "config_names.yaml"
NAMES: Mapping[str, Any] = parse_yaml(_DATA, read_text(_DATA))[0]
"""What a config calls what, see the file."""


class Fields:
    """Fields of a config, checked as they are read."""

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self._config, self.source = config, source

    def get(self, name: str) -> Any:
        """Return a field as it is; None where it is missing."""
        return self._config.get(name)

    def inside(self, name: str) -> "Fields":
        """Return the fields of an object; none where it is missing."""
        nested = self._config.get(name)
        return Fields(nested if isinstance(nested, Mapping) else {}, self.source)

    def flag(self, name: str, otherwise: bool) -> bool:
        """Return whether a field holds."""
        value = self._config.get(name)
        return otherwise if value is None else bool(value)

    def whole(self, name: str, otherwise: int | None = None) -> int:
        """Return a whole number >= 0; refuse a missing one without ``otherwise``."""
        value = self._config.get(name)
        if value is None:
            if otherwise is None:
                raise InputError(f"{self.source}: {name} is missing")
            return otherwise
        known = isinstance(value, int) and not isinstance(value, bool)
        most = _MOST_LAYERS if name == "num_hidden_layers" else _MOST
        if not (known and 0 <= value <= most):
            raise InputError(
                f"{self.source}: {name} is {repr(value)[:40]}; expected a whole number "
                f"from 0 to {most:,}"
            )
        return int(value)

    def shapes(self, kind: str) -> dict[str, Any]:
        """Return the whole numbers of a kind of layers, by the names of shapes."""
        names = NAMES["shapes"][kind]
        return {ours: self.whole(theirs) for ours, theirs in names.items()}

    def several(self, name: str) -> list[Any]:
        """Return a list; an empty one where it is missing."""
        value = self._config.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise InputError(f"{self.source}: {name} is {value!r}; expected a list")
        return value

    def first(self, *names: str) -> int:
        """Return the first of several fields that is more than 0; else 0."""
        return next((n for name in names if (n := self.whole(name, 0))), 0)
