"""How far served fleets of ranks, whole experts, drafts or two pools were off.

Counted over configurations that were served and simulated, with nothing fitted to them
(``examples/studies/served_capacity.py``).
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from capplan.latency.engine_time import ServedError
from capplan.latency.yaml_file import Strict, read_once, read_yaml
from capplan.llm.layout import Layout
from capplan.shipped import shipped

SCHEMA = "capplan-layout-errors/1"
SHIPPED = "layout_errors.yaml"
"""In the folder of shipped profiles."""


class LayoutError(ServedError):
    """The error of a class of fleets; a sweep is a configuration of one."""

    of: list[str]  # as ``layout_class`` names them
    disaggregated: bool  # two pools, of which this one decodes


class _Table(Strict):
    source: str
    llms: list[str]  # LLMs of the catalog that were served, or are as large
    errors: Annotated[list[LayoutError], Field(min_length=1)]


def layout_class(layout: Layout, *, drafts: bool) -> str:
    """Return what tells fleets apart whose errors differ.

    Examples
    --------
    >>> layout_class(Layout(1, 8, 8), drafts=True)
    'MTP and DP attention'
    """
    if layout.dp > 1:
        return "MTP and DP attention" if drafts else "DP attention"
    if drafts:
        return "MTP"
    return "EP" if layout.ep > 1 else "TP"


def layout_error(
    llm: str, layout: Layout, *, drafts: bool, disaggregated: bool
) -> LayoutError | None:
    """Return how far such fleets of an LLM were off; None where few were served.

    ``drafts``: it verifies those of MTP. ``disaggregated``: ``layout`` decodes.
    """
    table = read_once(shipped("profiles") / SHIPPED, _read)
    if llm not in table.llms:
        return None
    of = layout_class(layout, drafts=drafts)
    found = (e for e in table.errors if e.disaggregated == disaggregated)
    return next((e for e in found if of in e.of), None)


def _read(path: Path) -> _Table:
    return read_yaml(path, _Table, SCHEMA, "a file of errors of layouts")
