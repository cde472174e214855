"""Parameters of which some are left to ``-m slow``."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def rest_slow(values: Iterable[Any], is_run: Callable[[Any], bool]) -> list[Any]:
    """Return parameters; those that are not run each time are marked ``slow``."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=[] if is_run(value) else [pytest.mark.slow],
        )
        for value in values
    ]
