"""Counts that stand within or beside others, and calls that stand below others."""

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import reduce
from itertools import chain, combinations
from operator import add
from typing import TYPE_CHECKING

from capplan.workload.readers.cells import parsed
from capplan.workload.readers.table import Table
from capplan.workload.readers.wrong_header import NEEDED, plain

if TYPE_CHECKING:
    import pandas as pd

    from capplan.workload.readers.columns import Columns

_CACHED = tuple(
    f"cache_{kind}_input_{counted}"
    for kind in ("read", "creation", "write")
    for counted in ("tokens", "token_count")
)
"""Tokens that Anthropic and Bedrock count beside ``input_tokens``, not in it."""
_REASONED = re.compile(r"(?:.*_)?(?:reasoning_tokens|thoughts_token_count)")
TOTALS = ("total_tokens", "total_token_count", "total")
_PARENT = re.compile(r"parent_((?:span_|run_|observation_)?id)")


def sibling(counted: str, header: Iterable[str], words: Collection[str]) -> str:
    """Return the name beside a column of counts that is one of some words, if any."""
    parent = counted.rpartition(".")[0] if counted else None
    paths = ((name, *name.rpartition(".")[::2]) for name in header)
    return next((at for at, of, to in paths if of == parent and plain(to) in words), "")


def traced(header: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a call's id and of its parent's in a trace of calls."""
    last = {plain(name.rpartition(".")[2]): name for name in header}
    parent = next(filter(None, map(_PARENT.fullmatch, last)), None)
    if parent is None or "trace_id" not in last:
        return ()
    own = (last[at] for at in (parent[1], "span_id", "id") if at in last)
    return next(((name, last[parent[0]]) for name in own), ())


def details(counted: str, header: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of cached or reasoning tokens below or beside a count."""
    parent, dot, last = counted.rpartition(".")
    inside = [name for name in header if name.startswith(parent + dot)]
    if re.search("output|completion|candidates|generated", plain(last)):
        return tuple(at for at in inside if _REASONED.fullmatch(plain(at)))[:1]
    return tuple(name for name in inside if plain(name.rpartition(".")[2]) in _CACHED)


def beside(counted: str, header: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of tokens that a column of prompts or outputs leaves out.

    Anthropic's ``input_tokens`` and Bedrock's ``inputTokenCount`` leave cached tokens
    out, Langfuse's ``usageDetails`` all that it details; OpenAI's and OpenTelemetry's
    include them.
    """
    parent, _, last = counted.rpartition(".")
    inside = [name for name in header if name.rpartition(".")[0] == parent]
    if plain(parent) == "usage_details" and last in ("input", "output"):
        return tuple(name for name in inside if name.startswith(f"{counted}_"))
    if plain(last) == "candidates_token_count":  # Gemini's leave thoughts out
        return details(counted, header)
    if plain(last) not in ("input_tokens", "input_token_count") or "gen_ai" in counted:
        return ()
    return tuple(name for name in inside if plain(name.rpartition(".")[2]) in _CACHED)


def by_totals(table: Table, columns: "Columns") -> "Columns":
    """Return the columns with the tokens beside others that most totals add up to.

    Cached tokens stand in the prompt or beside it, reasoning in the output or beside
    it: names tell where a file has no totals.
    """
    if not columns.total:
        return columns

    def added(names: Iterable[str]) -> "pd.Series":
        cells = (parsed(table.frame[name], whole=True).fillna(0) for name in names)
        return reduce(add, cells)

    total, details = added([columns.total]), columns.details
    subsets = chain(*(combinations(details, k) for k in range(len(details) + 1)))
    ways = [columns.beside, *({k: details[k] for k in way} for way in subsets)]
    counted = [columns.names[name] for name in NEEDED]
    best = max(
        ways, key=lambda way: (added([*counted, *chain(*way.values())]) == total).sum()
    )
    was, now = ({*chain(*way.values())} for way in (columns.beside, best))
    unread = [name for name in columns.unread if name not in now]
    return replace(columns, beside=best, unread=(*unread, *sorted(was - now)))
