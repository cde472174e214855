"""Check a lower bound from the requests and the tables alone.

Uses none of the code that found the bound. ``docs/internals/bounds.md`` has the
theorem; checked are that

1. no iteration of the tables, for any batch and number of tokens, is below the prices;
2. the requests released and due in the window take, at these prices and without the
   costliest that may miss their SLO, the work that the bound claims.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

# Names and tolerances again, not imported: the checker trusts nothing that it checks.
BUSIEST = "busiest window"
_RELATIVE = 1e-6
_PIECES = 6
"""Ranges of context; a multiple of those that the bound is found with."""
_ROWS = 64
"""Batch sizes checked at once."""
_SPAN = 128
"""Tokens of an iteration that are first looked at together."""
_ENDLESS_CONTEXT = 1e12
"""Stands for an unlimited context where infinity cannot be multiplied by 0. [tokens]"""

COLUMNS = (
    "arrival_s",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "group",
)
HANDED = "handed"
"""Column that a pool of decode replicas has too: 1 where its prompt is computed by
others."""


class Inputs(NamedTuple):
    """Inputs of a lower bound as plain values."""

    columns: Mapping[str, np.ndarray]  # those of COLUMNS, maybe HANDED, by request
    tables: Mapping[str, Any]  # fields of the latency tables
    engine: Mapping[str, Any]  # fields of the engine settings


def inputs_digest(inputs: Inputs) -> str:
    """Return the SHA-256 of the requests, the tables and the engine settings.

    Numbers count as float64, texts as UTF-8.
    """
    digest = hashlib.sha256()
    for name in (*COLUMNS, *((HANDED,) if HANDED in inputs.columns else ())):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(inputs.columns[name], np.float64).tobytes())
    for fields in (inputs.tables, inputs.engine):
        for name in sorted(fields):
            digest.update(name.encode())
            value = fields[name]
            if isinstance(value, str):
                digest.update(value.encode())
            else:
                digest.update(np.ascontiguousarray(value, np.float64).tobytes())
    return digest.hexdigest()


def check_bound(block: Mapping[str, Any], inputs: Inputs) -> list[str]:
    """Return why a certificate's bound does not follow from the inputs, if so."""
    if block["inputs_digest"] != inputs_digest(inputs):
        return ["the requests, the latency or the limits are not those of the plan"]
    bound = block["bound"]
    if bound["method"] != BUSIEST:
        return []
    group = np.asarray(inputs.columns["group"], np.int64)
    targets = block["group_targets"]
    counts = np.bincount(group, minlength=len(targets)).tolist()
    if len(counts) > len(targets):
        return ["a request belongs to no group that has a target"]
    may_miss = [
        n - math.ceil(target * n * (1 - 1e-12))
        for target, n in zip(targets, counts, strict=True)
    ]
    if bound["droppable"] < sum(may_miss):
        return [f"{sum(may_miss)} requests may miss the SLO; {bound['droppable']} do"]
    mix = np.array(bound["mix"])
    if (mix < 0).any() or mix.sum() > 1 + 1e-9 or min(bound["prices"]) < 0:
        return ["prices or shares of the fixed time are negative or more than all"]
    reasons = _check_prices(bound, inputs)
    release_s, due_s, work_s = _request_work(bound, inputs)
    inside = release_s >= bound["window_start_s"] - 1e-9
    inside &= due_s <= bound["window_end_s"] + 1e-9
    in_window = int(inside.sum())
    kept_s = 0.0
    for index, missing in enumerate(may_miss):
        # Turned away, one that misses its SLO costs nothing.
        members_s = np.sort(work_s[inside & (group == index)])
        kept_s += members_s[: max(len(members_s) - missing, 0)].sum()
    if not math.isclose(kept_s, bound["work_s"], rel_tol=_RELATIVE):
        reasons.append(
            f"the window holds {kept_s:.9g} s of work; {bound['work_s']:.9g} is claimed"
        )
    if in_window != bound["requests_in_window"]:
        reasons.append(
            f"{in_window} requests are released and due in the window; "
            f"{bound['requests_in_window']} is claimed"
        )
    return reasons


def _largest_iteration(engine: Mapping[str, Any]) -> tuple[int, float, int]:
    """Return the largest batch, context and number of tokens of an iteration."""
    tokens = int(engine["max_num_batched_tokens"])
    batch = min(int(engine["max_num_seqs"]), tokens)
    if engine["prefix_caching"]:
        return batch, math.inf, tokens
    kv_tokens = _kv_tokens(engine)
    return max(min(batch, kv_tokens // 2), 1), kv_tokens, tokens


def _kv_tokens(engine: Mapping[str, Any]) -> int:
    return (int(engine["kv_blocks"]) - 1) * int(engine["block_size"])


def _check_prices(bound: Mapping[str, Any], inputs: Inputs) -> list[str]:
    """Return the first iteration of the tables that takes less than its price."""
    fixed_s, decode_s, context_s, _, attention_s = bound["prices"]
    most_batch, most_context, most_tokens = _largest_iteration(inputs.engine)
    tables = {name: np.asarray(value) for name, value in inputs.tables.items()}
    if attention_s > float(tables["attention_s"]):
        return ["the price of attention is above what it takes"]
    b = np.arange(1, most_batch + 1)
    slope_s = tables["decode_context_s"][b] - context_s
    # Times and prices are linear in the context: the ends of its range decide.
    ends_s = slope_s * np.minimum(most_context, _ENDLESS_CONTEXT), slope_s * 2.0 * b
    over_s = tables["decode_s"][b] - fixed_s - decode_s * b + np.minimum(*ends_s)
    if over_s.min() < -1e-9 * fixed_s - 1e-12:
        return [f"decoding {int(b[over_s.argmin()])} requests is below its price"]
    fused_s = tables["fused_s"][: most_tokens + 1]
    starts, ends, line_s = _lines_below(fused_s)
    for first in range(0, min(most_batch, most_tokens - 1) + 1, _ROWS):
        b = np.arange(first, min(first + _ROWS, most_batch + 1, most_tokens))[:, None]
        # Without its floor, what is paid above the price is concave in new tokens where
        # the times are straight, and no more where they are above a line: its ends
        # decide.
        suspect = np.zeros((len(b), len(starts)), bool)
        for tokens in (np.maximum(starts, b + 1), np.maximum(ends, b + 1)):
            times_s = line_s[0] + line_s[1] * (tokens - starts)
            suspect |= _below(bound, inputs.engine, tables, b, tokens, times_s, -np.inf)
        suspect &= ends > b
        for span in np.flatnonzero(suspect.any(axis=0)):
            rows = b[suspect[:, span]]
            tokens = np.arange(starts[span], ends[span] + 1)[None, :]
            times_s = fused_s[tokens]
            below = _below(bound, inputs.engine, tables, rows, tokens, times_s, 0.0)
            below &= tokens > rows
            if below.any():
                row, column = np.argwhere(below)[0]
                decoding = int(rows[row, 0])
                return [
                    f"{decoding} decoding requests beside "
                    f"{int(tokens[0, column]) - decoding} prompt tokens are below "
                    "their price"
                ]
    return []


def _lines_below(times_s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return spans of tokens and a line below the times of each.

    Shapes (spans,), (spans,) and (2, spans): first and last tokens, time at the first
    [s] and slope [s/token].
    """
    starts = np.arange(1, len(times_s), _SPAN)
    ends = np.minimum(starts + _SPAN, len(times_s)) - 1
    slope_s = (times_s[ends] - times_s[starts]) / np.maximum(ends - starts, 1)
    tokens = np.arange(1, len(times_s))
    span = (tokens - 1) // _SPAN
    above_s = times_s[1:] - slope_s[span] * (tokens - starts[span])
    return starts, ends, np.stack([np.minimum.reduceat(above_s, starts - 1), slope_s])


def _below(
    bound: Mapping[str, Any],
    engine: Mapping[str, Any],
    tables: Mapping[str, np.ndarray],
    b: np.ndarray,
    tokens: np.ndarray,
    times_s: np.ndarray,
    floor: float,
) -> np.ndarray:
    """Return which iterations with prefill take less than their price, bool.

    ``b`` are decoding requests, shape (rows, 1), ``tokens`` those of all that is
    computed and ``times_s`` the iteration's by them. ``floor`` is the least share of
    the fixed time that is left to prefill.
    """
    fixed_s, decode_s, context_s, prefill_s, _ = bound["prices"]
    share, cap = bound["mix"][0], bound["context_cap"]
    _, most_context, _ = _largest_iteration(engine)
    new = tokens - b
    base_s = times_s + tables["fused_decode_s"][b] - fixed_s - decode_s * b
    slope_s = tables["fused_context_s"][b] - context_s
    low = 2.0 * b
    high = np.where(b > 0, np.minimum(most_context, _ENDLESS_CONTEXT), 0.0)
    high = np.maximum(high, low)
    middle = np.clip(cap * b, low, high)
    below = np.zeros(base_s.shape, bool)
    for start, end in ((low, middle), (middle, high)):
        ratio = np.where(b > 0, end / np.maximum(start, 1e-300), 1.0)
        for piece in range(_PIECES):
            near = start * ratio ** (piece / _PIECES)
            far = start * ratio ** ((piece + 1) / _PIECES)
            over_s = base_s + np.minimum(slope_s * near, slope_s * far)
            spread_s = decode_s * b + context_s * np.minimum(far, cap * b)
            # 1 - V / (D + P) falls with D below the cap and rises above it.
            alone_s = decode_s * b + context_s * (near if start is middle else far)
            total_s = np.maximum(alone_s + over_s, 1e-300)
            left = share * np.maximum(1 - spread_s / total_s, floor)
            if math.isinf(most_context):
                left = np.zeros_like(over_s)
            paid_s = over_s + left * fixed_s - prefill_s * new * (1 - 1e-9)
            below |= (over_s < -1e-11) | (paid_s < -1e-11)
    return below


def _request_work(
    bound: Mapping[str, Any], inputs: Inputs
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return release, deadline and work of each request that meets its SLO. [s]"""
    fixed_s, decode_s, context_s, prefill_s, attention_s = bound["prices"]
    x, y, z = bound["mix"]
    arrival_s, prompt, output, cached, ttft_s, tpot_s, e2e_s, _ = (
        np.asarray(inputs.columns[name], np.float64) for name in COLUMNS
    )
    front_s = float(inputs.tables["request_s"])
    caching = bool(inputs.engine["prefix_caching"])
    steps, cached = output - 1, np.clip(cached, 0, prompt - 1) * caching
    new = prompt - cached
    elsewhere = np.asarray(inputs.columns.get(HANDED, np.zeros(len(new)))) > 0
    prompt_s = prefill_s * new + attention_s * new * (cached + new / 2)
    first_s = np.where(elsewhere, 0, np.maximum(prompt_s, fixed_s))
    prompt_s = np.where(elsewhere, 0, prompt_s)
    limit_s = (e2e_s - front_s - first_s) / np.maximum(steps, 1)
    room_s = np.minimum(np.minimum(tpot_s, limit_s), 1e15) - fixed_s
    decodes = (steps > 0) & (room_s > 0)
    spread = np.divide(x * fixed_s, room_s, out=np.zeros(len(new)), where=decodes)
    a, c = np.full(len(new), decode_s), np.full(len(new), context_s)
    if caching:  # a token prefilled after a hit of all others has attention c - 1/2
        a = np.minimum(a, prefill_s)
        c = np.minimum(c, attention_s * (1 - 0.5 / (prompt + 1)))
    root = _mean_root(a, c, prompt, steps, bound["context_cap"])
    held = new + (steps + 1) / 2  # mean over the steps, not shared
    shares = y / _largest_iteration(inputs.engine)[0] + z * held / _kv_tokens(
        inputs.engine
    )
    decoded_s = prompt_s + steps * (
        a + c * (prompt + (steps + 1) / 2) + shares * fixed_s
    )
    base_s, work_s = decoded_s, decoded_s + spread * steps * root**2
    if not caching:  # a step is charged no more than its recomputation
        again = prefill_s + attention_s * (prompt + 1) / 2
        base_s = decoded_s - _sum_above(a, again - c, prompt, steps)
        stretched = (1 + spread) * a + spread * root**2
        work_s = work_s - _sum_above(stretched, again - (1 + spread) * c, prompt, steps)
    release_s = arrival_s + front_s
    decode_limit_s = np.where(steps > 0, tpot_s, 0.0) * steps
    due_s = release_s + np.minimum(ttft_s + decode_limit_s, e2e_s) - front_s
    return release_s, due_s, np.maximum(base_s, work_s)


def _sum_above(
    height: np.ndarray, slope: np.ndarray, prompt: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Return the sum of max(height - slope * c, 0) over contexts c of the steps."""
    last = prompt + steps
    falling = height - slope * last < 0
    zero = np.divide(height, slope, out=np.array(last), where=falling)
    terms = np.maximum(np.floor(np.minimum(zero, last)) - prompt, 0)
    first, final = height - slope * (prompt + 1), height - slope * (prompt + terms)
    return np.asarray(terms * (first + final) / 2)


def _mean_root(
    a: np.ndarray, c: np.ndarray, prompt: np.ndarray, steps: np.ndarray, cap: float
) -> np.ndarray:
    """Return at most the mean root of a + c * min(context, cap) over the steps."""
    below = np.clip(np.floor(cap) - prompt, 0, steps)
    low_s, high_s = a + c * (prompt + 0.5), a + c * (prompt + 0.5 + below)
    roots = 3 * (np.sqrt(low_s) + np.sqrt(high_s))
    mean = 2 * (low_s + np.sqrt(low_s * high_s) + high_s)
    mean = np.divide(mean, roots, out=np.zeros_like(mean), where=roots > 0)
    capped = np.sqrt(a + c * cap)
    return np.asarray((below * mean + (steps - below) * capped) / np.maximum(steps, 1))
