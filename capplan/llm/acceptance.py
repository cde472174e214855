"""How many drafted tokens an LLM accepts, as measured, and what its draft adds."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from capplan.llm.architecture import Architecture
from capplan.llm.dtypes import UNQUANTIZED_BYTES

_DATA = Path(__file__).parent / "data" / "acceptance.yaml"


class Acceptance(NamedTuple):
    """Rates of an acceptance table, by position, and what it was measured on."""

    rates: tuple[float, ...]  # how often all drafts up to a position are accepted
    measured_on: str
    run: int
    is_own: bool  # of this LLM; else the most cautious of its family

    @property
    def source(self) -> str:
        """Where the rates are from."""
        return f"SPEED-Bench coding on {self.measured_on}, InferenceX run {self.run}"


@cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(_DATA.read_text(encoding="utf-8"))
    return found


def pooled(values: list[float]) -> tuple[float, ...]:
    """Return values that do not rise, by pooling neighbours that do into their mean.

    Examples
    --------
    >>> pooled([0.8, 0.2, 0.4, 0.1])
    (0.8, 0.3, 0.3, 0.1)
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-1][0] / pools[-1][1] > (
            pools[-2][0] / pools[-2][1]
        ):
            (last, n), (before, m) = pools.pop(), pools.pop()
            pools.append((before + last, m + n))
    return tuple(
        round(min(max(total / n, 0.0), 1.0), 9) for total, n in pools for _ in range(n)
    )


def rates_of_lengths(lengths: list[float]) -> tuple[float, ...]:
    """Return the rates by position of the mean tokens with 1, 2, … drafted tokens.

    Examples
    --------
    >>> rates_of_lengths([1.79, 2.27, 2.49])
    (0.79, 0.48, 0.22)
    """
    before = [1.0, *lengths[:-1]]
    return pooled([now - last for now, last in zip(lengths, before, strict=True)])


def _family(name: str) -> str | None:
    for family, prefixes in _data()["families"].items():
        if name.startswith(tuple(prefixes)):
            return str(family)
    return None


def measured_acceptance(llm: str, method: str, drafts: int) -> Acceptance | None:
    """Return the acceptance of an LLM with so many drafts; None where none is known.

    The most cautious table is the one with the fewest tokens in an iteration.
    """
    family = _family(llm)
    if family is None:
        return None
    kind = "eagle3" if method == "eagle" else method
    found = []
    for row in _data()["tables"]:
        if row["method"] == kind and _family(row["llm"]) == family:
            rates = rates_of_lengths(row["lengths"])[:drafts]
            is_own = row["llm"] == llm
            found.append(Acceptance(rates, row["measured_on"], row["run"], is_own))
    own = [row for row in found if row.is_own] or found
    return min(own, key=lambda row: sum(row.rates), default=None)


def has_mtp_layer(llm: str) -> bool:
    """Return whether checkpoints of the LLM have a layer that drafts."""
    return llm.startswith(tuple(_data()["mtp_layer"]))


def drafted_llm(llm: Architecture, method: str) -> Architecture:
    """Return the shapes of an LLM with the layer of its draft, for weights and KV.

    MTP's is a layer like its others, EAGLE's one without experts. The projection that
    joins hidden state and embedding is left out, as is EAGLE's own output head where
    it has one.
    """
    more = replace(llm, layers=llm.layers + 1)
    if method == "mtp" or not llm.experts:
        return more
    active = llm.experts_per_token * llm.expert_ffn + llm.shared_ffn
    return replace(
        more, dense_layers=llm.dense_layers + 1, dense_ffn=llm.dense_ffn or active
    )


def draft_share(llm: Architecture, method: str, dtype: str) -> float:
    """Return the time of a draft pass over that of a decode iteration.

    By the weights that a token reads: those of the draft's layer and of the output head
    over those of the LLM with its head.
    """
    own_bytes = llm.active_bytes(dtype)
    layer_bytes = drafted_llm(llm, method).active_bytes(dtype) - own_bytes
    head_bytes = llm.vocab * llm.hidden * UNQUANTIZED_BYTES
    return (layer_bytes + head_bytes) / own_bytes
