"""Number sessions, which sources name by texts or numbers of any kind."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_UNKNOWN = -1
"""Number of a session that is not known, and a text that some sources have for it."""


def column_sessions(
    column: "pd.Series", numbers: dict[str, int] | None = None
) -> np.ndarray:
    """Return the session of each cell of a categorical column, shape (n,).

    Empty cells and -1 have none. ``numbers`` has those of the rows before; new names
    are added to it.
    """
    known: dict[str, int] = {} if numbers is None else numbers
    of_label = [
        known.setdefault(name, len(known)) if name != str(_UNKNOWN) else _UNKNOWN
        for name in map(str, column.cat.categories)
    ]
    # A cell without a category has the code -1, which is the last of these.
    return np.array([*of_label, _UNKNOWN], np.int64)[column.cat.codes.to_numpy()]
