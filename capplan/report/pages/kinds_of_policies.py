"""Policies by name, and the readers of traces: each is a file of its own."""

import ast
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from capplan.report.pages.kind import NAMED, Kind, summary
from capplan.simulator import (
    autoscalers,
    dispatchers,
    hand_offs,
    rebalancers,
    routers,
    schedulers,
)


def _policies(package: Any, table: Mapping[str, str]) -> list[dict[str, str]]:
    """Return each policy with the first sentence of its file, which is not imported.

    To import one compiles it.
    """
    rows = []
    for name, module in table.items():
        spec = find_spec(f"{package.__name__}.{module}")
        assert spec is not None
        assert spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        rows.append({"name": name, "what": summary(ast.get_docstring(tree))})
    return rows


def policy_kind(package: Any, table: Mapping[str, str]) -> Kind:
    """Return the kind of the policies in a table of a package."""
    return Kind(table, partial(_policies, package, table), NAMED)


POLICIES: Mapping[str, Kind] = {
    "schedulers": policy_kind(schedulers, schedulers.SCHEDULERS),
    "routers": policy_kind(routers, routers.ROUTERS),
    "dispatchers": policy_kind(dispatchers, dispatchers.DISPATCHERS),
    "rebalancers": policy_kind(rebalancers, rebalancers.REBALANCERS),
    "hand-offs": policy_kind(hand_offs, hand_offs.HAND_OFFS),
    "autoscalers": policy_kind(autoscalers, autoscalers.AUTOSCALERS),
}
