"""The proof that comes with a plan, and how to check it without trusting the planner.

A certificate says: no scheduler does with fewer than ``bound.replica_count`` replicas
(a window of the trace and the work in it), N replicas pass when simulated and N - 1
fail. This file uses none of the code that found the bound or ran the simulation. It
evaluates the theorem again, from the requests and the tables:

1. the prices undercut every iteration the tables allow (all batches, all tokens);
2. the requests released and due in the window cost, at these prices and without the
   costliest that may miss their SLO, the work that is claimed (where all requests are
   answered by the end of the window, without what keeping the SLO adds to those);
3. that work over the length of the window, rounded up, is the bound; N is not below.

The theorem itself is in ``docs/bounds.md``.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

SCHEMA = "capplan.certificate/1"
_BUSIEST = "busiest window"
_ALL_SERVED = "busiest window, all served"
_RELATIVE = 1e-6
_PIECES = 6
"""Pieces of the context range; a multiple of those that a bound is found with."""
_ROWS = 64


class Inputs(NamedTuple):
    """What a plan was made from, rebuilt."""

    columns: Mapping[str, np.ndarray]  # the seven of COLUMNS, one row per request
    tables: Mapping[str, Any]  # the fields of the latency tables
    engine: Mapping[str, Any]  # the fields of the engine's limits


class Reproduction(NamedTuple):
    """A plan's inputs and its simulations run again."""

    inputs: Inputs
    attained: Mapping[int, float]  # share by replica count, for N and N - 1


Reproduce = Callable[[Mapping[str, Any]], Reproduction]
"""Rebuilds, from a plan's document, what its certificate speaks of."""

COLUMNS = (
    "arrival_s",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "ttft_s",
    "tpot_s",
    "e2e_s",
)


def certificate(
    bound: Mapping[str, Any],
    inputs: Inputs,
    attainment: float,
    *,
    replica_count: int,
    passing: float,
    failing: float | None,
    **about: Any,
) -> dict[str, Any]:
    """Return the certificate of one configuration as plain values.

    Parameters
    ----------
    bound
        Fields of :class:`capplan.bounds.lower_bound.Bound`.
    inputs
        What the bound was computed from.
    attainment
        Share of the requests that must keep their SLO.
    replica_count
        N, the replicas planned.
    passing, failing
        Share attained when N and N - 1 are simulated; None when N is 1.
    about
        Whatever else the reader should know of the configuration (gpu, tp).
    """
    return {
        "schema": SCHEMA,
        **about,
        "replica_count": replica_count,
        "attainment": attainment,
        "request_count": len(inputs.columns["arrival_s"]),
        "bound": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in bound.items()
        },
        "simulated": {"passing": passing, "failing": failing},
        "inputs_digest": inputs_digest(inputs),
    }


def inputs_digest(inputs: Inputs) -> str:
    """Return the SHA-256 of the requests, the tables and the limits."""
    found = hashlib.sha256()
    for name in COLUMNS:
        found.update(name.encode())
        found.update(np.ascontiguousarray(inputs.columns[name], np.float64).tobytes())
    for part in (inputs.tables, inputs.engine):
        for name in sorted(part):
            found.update(name.encode())
            found.update(np.ascontiguousarray(part[name], np.float64).tobytes())
    return found.hexdigest()


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's document with the digest of all of it in its certificate."""
    sealed = dict(document)
    sealed["certificate"] = {
        **document["certificate"],
        "document_digest": document_digest(document),
    }
    return sealed


def document_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document as JSON, its own digest left out."""
    bare = dict(document)
    bare["certificate"] = {
        name: value
        for name, value in document["certificate"].items()
        if name != "document_digest"
    }
    read = json.loads(json.dumps(bare, allow_nan=False))
    text = json.dumps(read, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def check_document(
    document: Mapping[str, Any], reproduce: Reproduce | None = None
) -> list[str]:
    """Return what is wrong with a plan's document; nothing when it holds.

    Parameters
    ----------
    document
        The plan as read from JSON, sealed.
    reproduce
        Rebuilds the inputs and runs the simulations again; without it only what
        the document itself says is checked.
    """
    block = document.get("certificate")
    if not isinstance(block, Mapping):
        return ["the plan has no certificate"]
    if block.get("schema") != SCHEMA:
        return [f"its certificate is {block.get('schema')!r}; expected {SCHEMA!r}"]
    if block.get("document_digest") != document_digest(document):
        return ["its digest does not match: something was changed after it was made"]
    try:
        reasons = check_claims(block) + check_answer(document)
        if reasons or reproduce is None:
            return reasons
        again = reproduce(document)
        return check_bound(block, again.inputs) + _check_attained(block, again.attained)
    except (KeyError, TypeError, ValueError) as problem:
        return [f"its certificate is malformed: {type(problem).__name__}: {problem}"]


def check_claims(block: Mapping[str, Any]) -> list[str]:
    """Return what a certificate gets wrong by its own figures."""
    reasons = []
    bound, simulated = block["bound"], block["simulated"]
    count, attainment = block["replica_count"], block["attainment"]
    if count < bound["replica_count"]:
        reasons.append(
            f"{count} replicas are fewer than the bound, {bound['replica_count']}"
        )
    if simulated["passing"] < attainment:
        reasons.append(
            f"{simulated['passing']:.6g} attained at {count} replicas is below "
            f"{attainment:.6g}"
        )
    failing = simulated["failing"]
    if (failing is None) != (count == 1):
        reasons.append("the run one replica lower is missing, or is of 0 replicas")
    if bound["method"] in (_BUSIEST, _ALL_SERVED):
        length_s = bound["window_end_s"] - bound["window_start_s"]
        if not length_s > 0:
            reasons.append("the window of the bound has no length")
        elif _rounded_up(bound["work_s"] / length_s) != bound["replica_count"]:
            reasons.append(
                f"{bound['work_s']:.9g} s of work in {length_s:.9g} s do not make "
                f"{bound['replica_count']} replicas"
            )
    elif bound["replica_count"] != 1:
        reasons.append(f"a bound of method {bound['method']!r} proves no more than 1")
    return reasons


def check_answer(document: Mapping[str, Any]) -> list[str]:
    """Return where the answer that people read is not what the certificate proves."""
    block, best = document["certificate"], document.get("best")
    if not isinstance(best, Mapping):
        return []
    gpus = block["replica_count"] * block["tp"]
    proven: dict[str, Any] = {
        "gpu": block["gpu"],
        "tp": block["tp"],
        "status": "feasible",
        "replica_count": block["replica_count"],
        "gpu_count": gpus,
        "lower_bound_gpu_count": block["bound"]["replica_count"] * block["tp"],
        "slo_attainment": block["simulated"]["passing"],
    }
    if best.get("price") is not None:
        proven["usd_per_h"] = gpus * best["price"]["usd_per_gpu_h"]
    reasons = []
    if document.get("status") != "feasible":
        reasons.append(f"status is {document.get('status')!r}; 'feasible' is proven")
    answers = [("best", best)]
    answers += [
        (f"candidates[{row}]", one)
        for row, one in enumerate(document.get("candidates", ()))
        if (one["gpu"], one["tp"]) == (block["gpu"], block["tp"])
    ]
    for where, one in answers:
        for name, value in proven.items():
            found = one.get(name)
            if isinstance(value, float) and isinstance(found, int | float):
                same = math.isclose(found, value, rel_tol=1e-9)
            else:
                same = found == value
            if not same:
                reasons.append(f"{where}.{name} is {found!r}; {value!r} is proven")
    return reasons


def _rounded_up(replicas: float) -> int:
    return max(1, math.ceil(replicas * (1 - 1e-9)))


def _check_attained(block: Mapping[str, Any], attained: Mapping[int, float]) -> list:
    count, simulated = block["replica_count"], block["simulated"]
    claims = [(count, simulated["passing"])]
    if simulated["failing"] is not None:
        claims.append((count - 1, simulated["failing"]))
    return [
        f"{attained[replicas]:.9g} attained at {replicas} replicas when simulated "
        f"again; {share:.9g} is claimed"
        for replicas, share in claims
        if not math.isclose(attained[replicas], share, rel_tol=1e-9)
    ]


def check_bound(block: Mapping[str, Any], inputs: Inputs) -> list[str]:
    """Return what is wrong with a bound, its theorem evaluated from the inputs."""
    if block["inputs_digest"] != inputs_digest(inputs):
        return ["the requests, the latency or the limits are not those of the plan"]
    bound = block["bound"]
    if bound["method"] not in (_BUSIEST, _ALL_SERVED):
        return []
    n = len(inputs.columns["arrival_s"])
    may_miss = n - math.ceil(block["attainment"] * n * (1 - 1e-12))
    if bound["droppable"] < may_miss:
        return [f"{may_miss} requests may miss their SLO; {bound['droppable']} do"]
    mix = np.array(bound["mix"])
    if (mix < 0).any() or mix.sum() > 1 + 1e-9 or min(bound["prices"]) < 0:
        return ["prices or shares of the fixed time are negative or more than all"]
    reasons = _check_prices(bound, inputs)
    release_s, due_s, base_s, extra_s = _request_work(bound, inputs)
    inside = release_s >= bound["window_start_s"] - 1e-9
    if bound["method"] == _BUSIEST:
        inside &= due_s <= bound["window_end_s"] + 1e-9
        base_s, extra_s = np.zeros(n), base_s + extra_s
    keep = max(int(inside.sum()) - may_miss, 0)
    kept_s = base_s[inside].sum() + np.sort(extra_s[inside])[:keep].sum()
    if not math.isclose(kept_s, bound["work_s"], rel_tol=_RELATIVE):
        reasons.append(
            f"the window holds {kept_s:.9g} s of work; {bound['work_s']:.9g} is claimed"
        )
    if int(inside.sum()) != bound["requests_in_window"]:
        reasons.append(
            f"{int(inside.sum())} requests are released and due in the window; "
            f"{bound['requests_in_window']} is claimed"
        )
    return reasons


def _reach(engine: Mapping[str, Any]) -> tuple[int, float, int]:
    """Return the largest batch, context and tokens of an iteration."""
    tokens = int(engine["max_num_batched_tokens"])
    batch = min(int(engine["max_num_seqs"]), tokens)
    if engine["prefix_caching"]:
        return batch, math.inf, tokens
    held = (int(engine["kv_blocks"]) - 1) * int(engine["block_size"])
    return max(min(batch, held // 2), 1), held, tokens


def _check_prices(bound: Mapping[str, Any], inputs: Inputs) -> list[str]:
    """Return whether some iteration of the tables is cheaper than its price."""
    fixed_s, decode_s, context_s, prefill_s, attention_s = bound["prices"]
    share, cap = bound["mix"][0], bound["context_cap"]
    most_batch, most_context, most_tokens = _reach(inputs.engine)
    tables = {name: np.asarray(value) for name, value in inputs.tables.items()}
    if attention_s > float(tables["attention_s"]):
        return ["the price of attention is above what it takes"]
    b = np.arange(1, most_batch + 1)
    extra_s = tables["decode_context_s"][b] - context_s
    ends_s = extra_s * np.minimum(most_context, 1e12), extra_s * 2.0 * b
    over_s = tables["decode_s"][b] - fixed_s - decode_s * b + np.minimum(*ends_s)
    if over_s.min() < -1e-9 * fixed_s - 1e-12:
        return [f"decoding {int(b[over_s.argmin()])} requests is below its price"]
    for first in range(0, min(most_batch, most_tokens - 1) + 1, _ROWS):
        b = np.arange(first, min(first + _ROWS, most_batch + 1, most_tokens))[:, None]
        new = np.arange(1, most_tokens + 1)[None, :]
        real = new + b <= most_tokens
        base_s = tables["fused_s"][np.minimum(new + b, most_tokens)]
        base_s = base_s + tables["fused_decode_s"][b] - fixed_s - decode_s * b
        extra_s = tables["fused_context_s"][b] - context_s
        low, high = 2.0 * b, np.where(b > 0, np.minimum(most_context, 1e12), 0.0)
        high = np.maximum(high, low)
        middle = np.clip(cap * b, low, high)
        for start, end in ((low, middle), (middle, high)):
            ratio = np.where(b > 0, end / np.maximum(start, 1e-300), 1.0)
            for piece in range(_PIECES):
                near = start * ratio ** (piece / _PIECES)
                far = start * ratio ** ((piece + 1) / _PIECES)
                over_s = base_s + np.minimum(extra_s * near, extra_s * far)
                spread_s = decode_s * b + context_s * np.minimum(far, cap * b)
                alone_s = decode_s * b + context_s * (near if start is middle else far)
                whole_s = np.maximum(alone_s + over_s, 1e-300)
                left = np.where(b > 0, share * np.maximum(1 - spread_s / whole_s, 0), 1)
                if math.isinf(most_context):
                    left = np.zeros_like(over_s)
                paid_s = over_s + left * fixed_s - prefill_s * new * (1 - 1e-9)
                below = real & ((over_s < -1e-11) | (paid_s < -1e-11))
                if below.any():
                    row, column = np.argwhere(below)[0]
                    return [
                        f"{int(b[row, 0])} decoding requests beside "
                        f"{int(new[0, column])} prompt tokens are below their price"
                    ]
    return []


def _request_work(
    bound: Mapping[str, Any], inputs: Inputs
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return release, deadline, least work and what the SLO adds to it. [s]"""
    fixed_s, decode_s, context_s, prefill_s, attention_s = bound["prices"]
    x, y, z = bound["mix"]
    arrival_s, prompt, output, cached, ttft_s, tpot_s, e2e_s = (
        np.asarray(inputs.columns[name], np.float64) for name in COLUMNS
    )
    front_s = float(inputs.tables["request_s"])
    steps, cached = output - 1, np.clip(cached, 0, prompt - 1)
    new = prompt - cached
    prompt_s = prefill_s * new + attention_s * new * (cached + new / 2)
    first_s = np.maximum(prompt_s, fixed_s)
    limit_s = (e2e_s - front_s - first_s) / np.maximum(steps, 1)
    room_s = np.minimum(np.minimum(tpot_s, limit_s), 1e15) - fixed_s
    spread = np.where((steps > 0) & (room_s > 0), x * fixed_s / room_s, 0.0)
    a, c = np.full(len(new), decode_s), np.full(len(new), context_s)
    if inputs.engine["prefix_caching"]:
        a, c = np.minimum(a, prefill_s), np.minimum(c, attention_s)
    root = _mean_root(a, c, prompt, steps, bound["context_cap"])
    if not inputs.engine["prefix_caching"]:
        cheaper = np.zeros(len(new), bool)
        for context in (prompt + 1, prompt + np.maximum(steps, 1)):
            step_s = a + c * context
            charged_s = step_s + spread * (step_s + root**2)
            cheaper |= (steps > 0) & (prefill_s * context < charged_s)
        c = np.where(cheaper, min(context_s, prefill_s), c)
        a = np.where(cheaper, np.minimum(a, (prefill_s - c) * (prompt + 1)), a)
        spread = np.where(cheaper, 0.0, spread)
    held = (int(inputs.engine["kv_blocks"]) - 1) * int(inputs.engine["block_size"])
    base_s = (
        prompt_s
        + steps * (a + c * (prompt + (steps + 1) / 2))
        + y * fixed_s * steps / _reach(inputs.engine)[0]
        + z * fixed_s * steps * (new + (steps + 1) / 2) / held
    )
    release_s = arrival_s + front_s
    answer_s = np.where(steps > 0, tpot_s, 0.0) * steps
    due_s = release_s + np.minimum(ttft_s + answer_s, e2e_s) - front_s
    return release_s, due_s, base_s, spread * steps * root**2


def _mean_root(
    a: np.ndarray, c: np.ndarray, prompt: np.ndarray, steps: np.ndarray, cap: float
) -> np.ndarray:
    """Return at most the mean root of a + c * min(context, cap) over the steps."""
    below = np.clip(cap - prompt, 0, steps)
    low_s, high_s = a + c * (prompt + 0.5), a + c * (prompt + 0.5 + below)
    roots = 3 * (np.sqrt(low_s) + np.sqrt(high_s))
    mean = 2 * (low_s + np.sqrt(low_s * high_s) + high_s)
    mean = np.divide(mean, roots, out=np.zeros_like(mean), where=roots > 0)
    capped = np.sqrt(a + c * cap)
    return np.asarray((below * mean + (steps - below) * capped) / np.maximum(steps, 1))
