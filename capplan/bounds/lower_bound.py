"""Fewest replicas with which any scheduler could meet the SLO of a trace.

``docs/internals/bounds.md`` has the proof and measures how tight the bound is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capplan.bounds.asked import Asked
from capplan.bounds.prices import (
    EngineBounds,
    IterationPrices,
    engine_bounds,
    fit_prices,
    prove_prefill_price,
)
from capplan.bounds.window import Window, busiest_window
from capplan.bounds.work import Requests, Work, request_work
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.units import format_duration

# Shares x, y, z of the fixed time, and what then limits how many share it.
_MIXES = {
    (1.0, 0.0, 0.0): "TPOT allows",
    (0.0, 1.0, 0.0): "max_num_seqs allows",
    (0.0, 0.0, 1.0): "the KV cache allows",
    (0.5, 0.0, 0.5): "TPOT and the KV cache allow",
}
_CONTEXT_CAPS = (2.0, 3.0, 1e6)
"""Multiples of the mean context above which a request spreads no fixed time."""
_SAMPLE = 1000
"""Requests whose work ranks the prices."""

BUSIEST = "busiest window"


class SearchEffort(NamedTuple):
    """How many prices are tried; every choice gives a valid bound."""

    prefill_slopes: tuple[float, ...]
    proofs: int
    token_step: float
    pieces: int


QUICK = SearchEffort((0.5, 0.85), 2, 1.05, 2)
THOROUGH = SearchEffort((0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9), 8, 1.01, 6)

_MORE = 1 + 1e-12
"""Of two bounds one counts as higher if it is by more than rounding."""
_ROUNDING = 1e-9
"""Bounds are rounded up only when they exceed a whole number by more than this."""


class Pricing(NamedTuple):
    """All that the work of a request depends on, besides the replica."""

    prices: IterationPrices
    mix: tuple[float, float, float]  # x, y, z of capplan.bounds.work
    context_cap: float  # contexts above it spread no fixed time [tokens]

    def work(self, requests: Requests, engine: EngineSettings) -> Work:
        """Return the work of each request."""
        return request_work(requests, self.prices, engine, self.mix, self.context_cap)

    def proven(
        self, tables: LatencyTables, engine: EngineSettings, effort: SearchEffort
    ) -> "Pricing":
        """Return the same with a price of prompts that is below every iteration."""
        prices = prove_prefill_price(
            tables,
            engine_bounds(engine),
            self.prices,
            self.mix[0],
            self.context_cap,
            token_step=effort.token_step,
            pieces=effort.pieces,
        )
        return self._replace(prices=prices)


@dataclass(frozen=True)
class Bound:
    """A lower bound on replicas, with what proves it.

    ``replica_count`` is ``work_s`` over the length of the window, rounded up.
    ``method`` is "busiest window"; "none" when no request has a deadline; "unreachable"
    when too many miss their SLO even alone on a replica, so that no number of replicas
    is enough.
    """

    replica_count: int  # no scheduler meets the SLO with fewer; at least 1
    window_start_s: float  # [s]
    window_end_s: float  # [s]
    work_s: float  # in the window, without the costliest that may miss [s]
    requests_in_window: int  # released and due inside it, all their work in it
    method: str
    note: str  # how the figures combine, for the reader
    prices: tuple[float, ...] = ()  # proven, :class:`IterationPrices`
    # shares of fixed time spread by TPOT, largest batch and KV: x, y, z of work.py
    mix: tuple[float, float, float] = (1.0, 0.0, 0.0)
    context_cap: float = 0.0  # context above which no fixed time is spread [tokens]
    droppable: int = 0  # may miss their SLO and were left out [requests]

    @property
    def pricing(self) -> Pricing:
        """What it was proven with."""
        return Pricing(IterationPrices(*self.prices), self.mix, self.context_cap)

    @property
    def reachable(self) -> bool:
        """Whether some number of replicas may meet the SLO."""
        return self.method != "unreachable"


def lower_bound(
    columns: Mapping[str, np.ndarray],
    attainment: float | Sequence[float],
    tables: LatencyTables,
    engine: EngineSettings,
    *,
    thorough: bool = False,
) -> Bound:
    """Return a lower bound on the replicas that any scheduler needs.

    With fewer than ``replica_count`` replicas, less than ``attainment`` of the requests
    (of one group at least: see :class:`Asked`) meet their limits, whatever the routing,
    batching, chunking and preemption. Leave out a warm-up: it can only add work.
    ``thorough`` tries more prices: about 2 % closer, ten times slower.
    """
    asked = Asked.of(columns, attainment, tables.request_s)
    requests, droppable = asked.requests, asked.droppable
    tables.check(engine.max_num_seqs, engine.max_num_batched_tokens)
    effort = THOROUGH if thorough else QUICK
    best: tuple[Window, Pricing] | None = None
    for pricing in proven_pricings(requests, tables, engine, effort, effort.proofs):
        work = pricing.work(requests, engine)
        impossible = asked.by_group(~work.possible)
        if (impossible > droppable).any():
            return _unreachable(impossible, droppable)
        # Work that must be done within a window, over its length, are replicas.
        window = busiest_window(
            requests.release_s, work.deadline_s, work.work_s, droppable, asked.group
        )
        if window and (best is None or window.replicas > best[0].replicas * _MORE):
            best = window, pricing
    if best is None:
        return Bound(1, 0.0, 0.0, 0.0, 0, "none", "no request has a deadline")
    return _bound(*best, int(droppable.sum()))


def proven_pricings(
    requests: Requests,
    tables: LatencyTables,
    engine: EngineSettings,
    effort: SearchEffort,
    most: int,
) -> Iterator[Pricing]:
    """Yield pricings that are proven for all iterations, the best first.

    Prices for several mixes of iterations are ranked by what they are worth, as they
    come from a sample of iterations; only the best are proven, which is slow.
    """
    for pricing in ranked_pricings(requests, tables, engine, effort)[:most]:
        yield pricing.proven(tables, engine, effort)


def prefill_prices_s(
    tables: LatencyTables, bounds: EngineBounds, slopes: Sequence[float]
) -> list[float]:
    """Return prices of a prompt token that are tried. [s]

    None is above the mean one of a full iteration, of which ``slopes`` are shares.
    """
    highest_s = float(tables.fused_s[bounds.tokens]) / bounds.tokens
    growth_s = float(tables.fused_s[bounds.tokens] - tables.fused_s[1])
    least_s = max(growth_s, 0.0) / max(bounds.tokens - 1, 1)
    return [*(slope * highest_s for slope in slopes), least_s]


def ranked_pricings(
    requests: Requests,
    tables: LatencyTables,
    engine: EngineSettings,
    effort: SearchEffort,
) -> list[Pricing]:
    """Return candidate pricings, the one with the most estimated work first."""
    bounds = engine_bounds(engine)
    stride = -(-len(requests.release_s) // _SAMPLE)
    sample = Requests._make(column[::stride] for column in requests)
    steps = requests.output_tokens - 1
    total_steps = max(float(steps.sum()), 1.0)
    context = float((steps * (requests.prompt_tokens + steps / 2)).sum()) / total_steps
    # A step has at least a token of the prompt and one of the output in its context.
    context = max(context, 2.0)
    b = np.arange(1, bounds.batch + 1)
    # Prices are tight at one batch: the largest within TPOT, or that the KV allows.
    time_s = tables.decode_s[b] + tables.decode_context_s[b] * (b * context)
    fits_kv = b * context <= bounds.context
    fits_tpot = fits_kv & (time_s <= float(np.median(requests.tpot_s)))
    prices_s = prefill_prices_s(tables, bounds, effort.prefill_slopes)
    ranked: list[tuple[float, Pricing]] = []
    tpot_mixes = [mix for mix in _MIXES if mix[0]]
    for fits, mixes in ((fits_tpot, tpot_mixes), (fits_kv, [*_MIXES])):
        batch = float(b[fits].max()) if fits.any() else 1.0
        for prefill_s in prices_s:
            prices = fit_prices(tables, bounds, batch, context, prefill_s)
            for mix in mixes:
                for multiple in _CONTEXT_CAPS if mix[0] else _CONTEXT_CAPS[-1:]:
                    cap = float(np.floor(multiple * context))
                    estimate = prove_prefill_price(
                        tables, bounds, prices, mix[0], cap, token_step=None
                    )
                    work = Pricing(estimate, mix, cap).work(sample, engine)
                    # A pricing that shows the SLO to be out of reach goes first.
                    impossible = int((~work.possible).sum())
                    total_s = float(work.work_s.sum()) * (1 + impossible)
                    ranked.append((total_s, Pricing(prices, mix, cap)))
    # To twelve digits: how sums are rounded does not decide between equal ones.
    ranked.sort(key=lambda item: -float(f"{item[0]:.12g}"))
    return [pricing for _, pricing in ranked]


def _bound(window: Window, pricing: Pricing, droppable: int) -> Bound:
    length = format_duration(window.end_s - window.start_s)
    count = max(1, math.ceil(window.replicas * (1 - _ROUNDING)))
    may = f", {droppable:,} of which may miss," if droppable else ""
    return Bound(
        replica_count=count,
        window_start_s=window.start_s,
        window_end_s=window.end_s,
        work_s=window.work_s,
        requests_in_window=window.requests,
        method=BUSIEST,
        note=(
            f"in the busiest {length} the {window.requests:,} requests that are due"
            f"{may} need {work_text(window.work_s)} of replica time, in batches as "
            f"large as {_MIXES[pricing.mix]}: at least {count:,} "
            f"replica{'s' * (count > 1)}"
        ),
        prices=tuple(pricing.prices),
        mix=pricing.mix,
        context_cap=pricing.context_cap,
        droppable=droppable,
    )


def work_text(seconds: float) -> str:
    """Return replica time in seconds, to three digits or whole.

    Examples
    --------
    >>> work_text(4446.81), work_text(0.01234)
    ('4,447 s', '0.0123 s')
    """
    return f"{seconds:,.0f} s" if seconds >= 99.95 else f"{seconds:.3g} s"


def _unreachable(impossible: np.ndarray, droppable: np.ndarray) -> Bound:
    worst = int(np.argmax(impossible - droppable))
    return Bound(
        1,
        0.0,
        0.0,
        0.0,
        int(impossible[worst]),
        "unreachable",
        f"{impossible[worst]:,} requests miss the SLO even alone on a replica; "
        f"{droppable[worst]:,} may",
        droppable=int(droppable[worst]),
    )
