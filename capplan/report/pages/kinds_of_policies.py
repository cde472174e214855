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


def policy_kind(
    flag: str, meaning: str, package: Any, table: Mapping[str, str]
) -> Kind:
    """Return the kind of the policies in a table of a package."""
    return Kind(flag, meaning, table, partial(_policies, package, table), NAMED)


_FAMILIES = {
    "schedulers": ("--scheduler", "schedulers of a replica", schedulers),
    "routers": ("--router", "routers of arrivals", routers),
    "dispatchers": ("--dispatcher", "dispatchers, in place of a router", dispatchers),
    "rebalancers": ("--rebalancer", "rebalancers between replicas", rebalancers),
    "hand-offs": (
        "--hand-off",
        "hand-offs between pools for prompts and for decoding",
        hand_offs,
    ),
    "autoscalers": ("--policies", "autoscalers", autoscalers),
}
POLICIES: Mapping[str, Kind] = {
    kind: policy_kind(*row, getattr(row[-1], kind.upper().replace("-", "_")))
    for kind, row in _FAMILIES.items()
}
