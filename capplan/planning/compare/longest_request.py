"""The longest request that a system is set up for, and what it refuses beyond.

Systems that reserve KV for a request, or do not cut its prompt, are set up for requests
of ``max_model_len`` tokens, and their servers answer a longer one with an error. By
default here that is all but a tenth of the requests that may miss the SLO, so that no
single request decides the room of all. Those refused count as missed.
"""

import math
from dataclasses import replace

import numpy as np

from capplan.errors import InputError
from capplan.workload.slo import Slo, base_classes
from capplan.workload.trace import Trace

_REFUSED = 0.1
"""Share refused of the requests that may miss the SLO."""


def room_tokens(trace: Trace, slo: Slo) -> int:
    """Return the longest request that a system is set up for, by default. [tokens]

    The quantile at a tenth of what each group of classes may miss; of groups the
    longest.
    """
    tokens = trace.prompt_tokens + trace.output_tokens
    of = slo.group_of(trace.request_class, trace.class_names)
    room = 1
    for k, group in enumerate(slo.groups(trace.class_names)):
        ascending = np.sort(tokens[of == k])
        if len(ascending):
            refused = math.floor(len(ascending) * _REFUSED * (1 - group.target) + 1e-9)
            room = max(room, int(ascending[-1 - refused]))
    return room


def slo_of_rest(slo: Slo, trace: Trace, kept: np.ndarray) -> Slo:
    """Return the SLO that requests must meet when the others are refused.

    ``kept`` says which are not, shape (n,), bool. What was refused counts as missed:
    where 0.5 % are, 99 % of all are 99.5 % of the rest.
    """
    of = slo.group_of(trace.request_class, trace.class_names)
    targets = dict(slo.targets)
    attainment = slo.attainment
    for k, group in enumerate(slo.groups(trace.class_names)):
        if not (of == k).any():
            continue
        share = float(kept[of == k].mean())
        if share < group.target:
            whose = f" of {', '.join(group.names)}" if len(slo.by_class) else ""
            raise InputError(
                f"{100 * (1 - share):.2f} % of requests{whose} are longer than it "
                f"takes, and {100 * (1 - group.target):.2f} % may miss"
            )
        alone = slo.each_class and (
            group.names[0] in slo.by_class or group.names[0] in slo.targets
        )
        if alone:
            targets[group.names[0]] = group.target / share
        else:
            attainment = group.target / share
    return replace(slo, attainment=attainment, targets=targets)


def kept_by_class(trace: Trace, kept: np.ndarray) -> dict[str, float]:
    """Return the share of each class that is not refused, by its name."""
    names, base = base_classes(trace.class_names)
    of = base[trace.request_class]
    return {
        name: float(kept[of == k].mean())
        for k, name in enumerate(names)
        if (of == k).any()
    }
