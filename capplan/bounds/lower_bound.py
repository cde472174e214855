"""Fewest replicas with which any scheduler whatever could meet the SLO of a trace.

The reasoning in full, and how tight the bounds are, is in ``docs/bounds.md``.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capplan.bounds.prices import (
    Minorant,
    Reach,
    plane,
    proven,
    reach,
    sampled,
)
from capplan.bounds.window import Window, busiest_end, busiest_window
from capplan.bounds.work import Requests, Work, work
from capplan.deployment import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import LatencyTables

_MIXES = {
    (1.0, 0.0, 0.0): "the TPOT allows",
    (0.0, 1.0, 0.0): "max_num_seqs allows",
    (0.0, 0.0, 1.0): "the KV cache allows",
    (0.5, 0.0, 0.5): "TPOT and KV cache allow",
}
_CONTEXT_CAPS = (2.0, 3.0, 1e6)
"""Times the mean context; beyond it a request spreads no fixed time."""
_SAMPLE = 1000

BUSIEST = "busiest window"
ALL_SERVED = "busiest window, all served"
_DUE = {BUSIEST: "are due in it", ALL_SERVED: "are answered in it"}


class _Effort(NamedTuple):
    """How much is tried; every choice gives a valid bound."""

    prefill_slopes: tuple[float, ...]
    proofs: int
    token_step: float
    pieces: int


_QUICK = _Effort((0.5, 0.85), 2, 1.05, 2)
_THOROUGH = _Effort((0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9), 8, 1.01, 6)

_ROUNDING = 1e-9
"""Bounds are rounded up only when they exceed a whole number by more than this."""


class Pricing(NamedTuple):
    """How work is priced: all that the work of a request depends on."""

    prices: Minorant
    mix: tuple[float, float, float]  # x, y, z of capplan.bounds.work
    context_cap: float  # contexts beyond it spread no fixed time [tokens]

    def prove(self, tables: LatencyTables, span: Reach, effort: _Effort) -> "Pricing":
        """Return it with the dearest prefill that can be proven."""
        prices = proven(
            tables,
            span,
            self.prices,
            self.mix[0],
            self.context_cap,
            token_step=effort.token_step,
            pieces=effort.pieces,
        )
        return self._replace(prices=prices)

    def work(self, requests: Requests, engine: EngineSettings) -> Work:
        """Return the work of each request."""
        return work(requests, self.prices, engine, self.mix, self.context_cap)


@dataclass(frozen=True)
class Bound:
    """A proof that no scheduler can do with fewer replicas.

    Parameters
    ----------
    replica_count
        No scheduler meets the SLO with fewer replicas; at least 1.
    window_start_s, window_end_s
        The witness: requests released and due inside it do all their work in it. [s]
    work_s
        Replica seconds that must be worked in it, the costliest requests that may
        miss their SLO left out; ``replica_count`` is ``work_s`` over its length,
        rounded up. [s]
    requests_in_window
        Requests released and due inside it.
    method
        Which theorem: "busiest window"; "busiest window, all served" when those that
        miss their SLO are answered by the end of the window too; "none" when no
        request has a deadline, or
        "unreachable" when too many requests miss their SLO even alone on a replica,
        so that no number of replicas is enough.
    note
        What a reader needs to check it by hand.
    prices
        Proven prices of an iteration, a decoding request, a context token, a prompt
        token and a unit of attention, see :mod:`capplan.bounds.prices`.
    mix
        How the fixed time of an iteration is shared out: by TPOT, by the largest
        batch, by KV (x, y, z of :mod:`capplan.bounds.work`).
    context_cap
        Context of a request beyond which it spreads no fixed time. [tokens]
    droppable
        Requests that may miss their SLO and were left out. [requests]
    """

    replica_count: int
    window_start_s: float
    window_end_s: float
    work_s: float
    requests_in_window: int
    method: str
    note: str
    prices: tuple[float, ...] = ()
    mix: tuple[float, float, float] = (1.0, 0.0, 0.0)
    context_cap: float = 0.0
    droppable: int = 0

    @property
    def reachable(self) -> bool:
        """Whether any number of replicas could meet the SLO, as far as is known."""
        return self.method != "unreachable"


def lower_bound(
    arrival_s: np.ndarray,
    prompt_tokens: np.ndarray,
    output_tokens: np.ndarray,
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    e2e_s: np.ndarray,
    attainment: float,
    tables: LatencyTables,
    engine: EngineSettings,
    *,
    cached_tokens: np.ndarray | None = None,
    all_by_s: float | None = None,
    thorough: bool = False,
) -> Bound:
    """Return a lower bound on the replicas that any scheduler needs.

    Theorem. Let fewer than ``replica_count`` replicas run under ``tables`` and
    ``engine``, with any routing, batching, chunking and preemption. Then less than
    ``attainment`` of the requests keep their limits. Proof: those that keep them and
    are released and due inside the window work ``work_s`` there at least, whichever
    ``droppable`` requests do not (:mod:`capplan.bounds.work`,
    :mod:`capplan.bounds.window`), and N replicas have N times its length.

    Parameters
    ----------
    arrival_s, prompt_tokens, output_tokens
        The requests whose attainment is counted, shape (n,) each. Requests that are
        not counted (a warm-up) must be left out; they can only add work.
    ttft_s, tpot_s, e2e_s
        Their limits, shape (n,) each, infinite where there is none. [s]
    attainment
        Share of these requests that must keep them.
    tables, engine
        The replica.
    cached_tokens
        Most tokens of each prompt that a prefix cache could save; none by default.
    all_by_s
        When every request is answered, also those that miss their SLO. Without it
        they may be turned away, and the costliest are. [s]
    thorough
        Whether to try more prices: about 2 % closer, ten times slower.

    Raises
    ------
    InputError
        When the columns differ in length, are empty or hold NaN, or the
        attainment is not a share.
    """
    if cached_tokens is None:
        cached_tokens = np.zeros(len(prompt_tokens))
    requests = _requests(
        (arrival_s, prompt_tokens, output_tokens, cached_tokens, ttft_s, tpot_s, e2e_s),
        tables.request_s,
    )
    if not 0 < attainment <= 1:
        raise InputError(f"attainment is {attainment}; expected more than 0, at most 1")
    tables.check(engine.max_num_seqs, engine.max_num_batched_tokens)
    droppable = droppable_requests(len(requests.release_s), attainment)
    best: tuple[float, Pricing, Work] | None = None
    effort = _THOROUGH if thorough else _QUICK
    for pricing in _ranked(requests, tables, engine, effort)[: effort.proofs]:
        pricing = pricing.prove(tables, reach(engine), effort)
        found = pricing.work(requests, engine)
        if int((~found.possible).sum()) > droppable:
            return _unreachable(found, droppable)
        total_s = float(found.work_s.sum())
        if best is None or total_s > best[0]:
            best = (total_s, pricing, found)
    assert best is not None
    _, pricing, found = best
    window = busiest_window(
        requests.release_s, found.deadline_s, found.work_s, droppable
    )
    if all_by_s is not None:
        extra_s = found.work_s - found.base_s
        whole = busiest_end(
            requests.release_s, found.base_s, extra_s, droppable, all_by_s
        )
        if whole and (window is None or whole.replicas > window.replicas):
            return _bound(whole, pricing, droppable, ALL_SERVED)
    return _bound(window, pricing, droppable)


def droppable_requests(request_count: int, attainment: float) -> int:
    """Return how many requests may miss their SLO.

    Examples
    --------
    >>> droppable_requests(100, 0.99), droppable_requests(150, 0.99)
    (1, 1)
    """
    return request_count - math.ceil(attainment * request_count * (1 - 1e-12))


def _requests(columns: tuple[np.ndarray, ...], request_s: float) -> Requests:
    arrays = [np.asarray(column, np.float64) for column in columns]
    n = len(arrays[0])
    if n == 0:
        raise InputError("no requests; expected at least one")
    for name, array in zip(Requests._fields, arrays, strict=False):
        if array.shape != (n,) or np.isnan(array).any():
            raise InputError(
                f"{name} has shape {array.shape}; expected ({n},) and no NaN"
            )
    arrival_s, prompt, output, cached, ttft_s, tpot_s, e2e_s = arrays
    return Requests(
        release_s=arrival_s + request_s,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=np.clip(cached, 0, prompt - 1),
        ttft_s=ttft_s - request_s,
        tpot_s=tpot_s,
        e2e_s=e2e_s - request_s,
    )


def _ranked(
    requests: Requests, tables: LatencyTables, engine: EngineSettings, effort: _Effort
) -> list[Pricing]:
    """Return ways to price the work, the one that seems to make most of it first."""
    span = reach(engine)
    stride = -(-len(requests.release_s) // _SAMPLE)
    some = Requests._make(column[::stride] for column in requests)
    steps = requests.output_tokens - 1
    total_steps = max(float(steps.sum()), 1.0)
    context = float((steps * (requests.prompt_tokens + steps / 2)).sum()) / total_steps
    context = max(context, 2.0)
    b = np.arange(1, span.batch + 1)
    time_s = tables.decode_s[b] + tables.decode_context_s[b] * (b * context)
    held = b * context <= span.context
    quick = held & (time_s <= float(np.median(requests.tpot_s)))
    steepest_s = float(tables.fused_s[span.tokens]) / span.tokens
    found: list[tuple[float, Pricing]] = []
    for fits, mixes in ((quick, [m for m in _MIXES if m[0]]), (held, [*_MIXES])):
        batch = float(b[fits].max()) if fits.any() else 1.0
        for slope in effort.prefill_slopes:
            prices = plane(tables, span, batch, context, slope * steepest_s)
            for mix in mixes:
                for cap in _CONTEXT_CAPS if mix[0] else _CONTEXT_CAPS[-1:]:
                    cap_tokens = float(np.floor(cap * context))
                    guess = sampled(tables, span, prices, mix[0], cap_tokens)
                    pricing = Pricing(guess, mix, cap_tokens)
                    cost = pricing.work(some, engine)
                    # One that shows the SLO to be out of reach is proven first.
                    impossible = int((~cost.possible).sum())
                    total_s = float(cost.work_s.sum()) * (1 + impossible)
                    found.append((total_s, pricing._replace(prices=prices)))
    return [pricing for _, pricing in sorted(found, key=lambda item: -item[0])]


def _bound(
    window: Window | None, pricing: Pricing, droppable: int, method: str = BUSIEST
) -> Bound:
    if window is None:
        return Bound(1, 0.0, 0.0, 0.0, 0, "none", "no request has a deadline")
    length_s = window.end_s - window.start_s
    return Bound(
        replica_count=max(1, math.ceil(window.replicas * (1 - _ROUNDING))),
        window_start_s=window.start_s,
        window_end_s=window.end_s,
        work_s=window.work_s,
        requests_in_window=window.requests,
        method=method,
        note=(
            f"{window.work_s:.6g} replica seconds of work must be done within "
            f"{length_s:.6g} s by the {window.requests} requests that arrive and "
            f"{_DUE[method]}, {droppable} of which may miss their SLO; iterations are "
            f"shared as far as {_MIXES[pricing.mix]}"
        ),
        prices=tuple(pricing.prices),
        mix=pricing.mix,
        context_cap=pricing.context_cap,
        droppable=droppable,
    )


def _unreachable(found: Work, droppable: int) -> Bound:
    impossible = int((~found.possible).sum())
    return Bound(
        1,
        0.0,
        0.0,
        0.0,
        impossible,
        "unreachable",
        f"{impossible} requests miss their SLO even alone on a replica; "
        f"{droppable} may",
        droppable=droppable,
    )
