"""Limits that requests bring with them, as classes of the trace."""

from collections.abc import Mapping

import numpy as np

from capplan.errors import InputError
from capplan.workload.slo import LIMITS
from capplan.workload.trace import COLUMNS


def limited_classes(
    source: str,
    class_names: tuple[str, ...],
    request_class: np.ndarray | None,
    limits_s: Mapping[str, np.ndarray],
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return a class for each class and combination of limits that occurs.

    ``limits_s`` are the requests' own by the names of LIMITS, NaN where the class's
    holds, shape (n,) each. A class is called ``chat/ttft=0.5s,e2e=20.0s``, as ``Slo``
    reads it, or keeps its name without limits of its own.
    """
    kinds = [name for name in LIMITS if name in limits_s]
    n = len(limits_s[kinds[0]])
    of_request = np.zeros(n) if request_class is None else request_class
    # Infinity stands for none here: NaN is not equal to itself.
    own_s = [np.nan_to_num(limits_s[name], nan=np.inf) for name in kinds]
    rows, row = np.unique(
        np.column_stack([of_request, *own_s]), axis=0, return_inverse=True
    )
    most = int(COLUMNS["request_class"].high)
    if len(rows) > most:
        raise InputError(
            f"{source}: requests have {len(rows):,} different combinations of class "
            f"and limits; expected at most {most:,}: round them"
        )
    names = []
    for index, *values_s in rows.tolist():
        own = zip(kinds, values_s, strict=True)
        text = ",".join(f"{kind}={x!r}s" for kind, x in own if np.isfinite(x))
        names.append(class_names[int(index)] + (f"/{text}" if text else ""))
    return tuple(names), row.reshape(-1).astype(np.int16)
