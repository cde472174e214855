"""The certificate in a plan: why it is right, checkable without the planner.

It states for each pool a lower bound on its replicas with its window, prices and work,
that the counts of the pools meet the SLO target when simulated and that one replica
fewer of a pool does not, and digests of the inputs and of the whole document.
``docs/internals/bounds.md`` lists the checks.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from capplan.bounds.bound_check import Inputs, check_bound, inputs_digest
from capplan.bounds.claims import (
    check_proven,
    check_rounding,
    gpus_of,
    is_alike,
    usd_per_h,
)
from capplan.deployment.pools import Counts, one_fewer

SCHEMA, POOLS_SCHEMA = "capplan.certificate/2", "capplan.certificate.pools/1"
"""Of one pool, whose proof the certificate itself is, and of several."""
_OF_ONE_POOL = (
    *("schema", "gpu", "tp", "layout", "gpus_per_replica", "router", "engine"),
    *("sample", "replica_count", "attainment", "group_targets", "request_count"),
    *("bound", "simulated", "inputs_digest"),
)
"""Keys of the first, in order."""
PLAN_SCHEMA = "capplan.plan/2"
"""Of the document that the certificate seals."""
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors of reckoning with parts of a document that are not as capplan writes them."""
CHANGED = "its digest does not match: something was changed after it was made"


class Reproduction(NamedTuple):
    """Inputs of a plan's bounds, by pool, and its simulations, run again."""

    inputs: Sequence[Inputs]
    attained: Mapping[Counts, float]  # attainment by the counts of the pools


Reproduce = Callable[[Mapping[str, Any]], Reproduction]
"""Rebuilds the inputs and simulations of a plan's document."""


def pool_proof(
    bound: Mapping[str, Any],
    inputs: Inputs,
    group_targets: Sequence[float],
    **about: Any,
) -> dict[str, Any]:
    """Return what is proven of a pool as plain values.

    ``bound`` has the fields of :class:`capplan.bounds.lower_bound.Bound`; each group of
    requests must attain its target; ``about`` has role, GPU, TP degree, replicas,
    engine and sample.
    """
    return {
        **about,
        "group_targets": list(group_targets),
        "request_count": len(inputs.columns["arrival_s"]),
        "bound": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in bound.items()
        },
        "inputs_digest": inputs_digest(inputs),
    }


def certificate(
    pools: Sequence[Mapping[str, Any]],
    attainment: float,
    passing: float,
    failing: Mapping[Counts, float],
    **about: Any,
) -> dict[str, Any]:
    """Return the certificate of pools, each as of :func:`pool_proof`, as plain values.

    ``attainment`` is the share of all requests that must meet the SLO, ``passing`` what
    the counts of the pools attain when simulated and ``failing`` what one replica fewer
    of a pool does, by the counts; ``about`` has the router and what joins pools.
    """
    if len(pools) > 1:
        runs = [
            {"replica_counts": list(counts), "slo_attainment": share}
            for counts, share in failing.items()
        ]
        return {
            "schema": POOLS_SCHEMA,
            **about,
            "attainment": attainment,
            "pools": list(pools),
            "simulated": {"passing": passing, "failing": runs},
        }
    simulated = {"passing": passing, "failing": next(iter(failing.values()), None)}
    proven = {**about, **pools[0], "attainment": attainment, "simulated": simulated}
    proven["schema"] = SCHEMA
    return {name: proven[name] for name in _OF_ONE_POOL if name in proven}


def pools_of(block: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return what a certificate states of each pool."""
    return block["pools"] if block["schema"] == POOLS_SCHEMA else [block]


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's document with its own digest in the certificate."""
    digest = document_digest(document)
    block = {**document["certificate"], "document_digest": digest}
    return {**document, "certificate": block}


def document_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document as JSON, without its own digest."""
    block = dict(document["certificate"])
    block.pop("document_digest", None)
    bare = {**document, "certificate": block}
    # Through JSON once, so that a document in memory and one read from a file agree.
    plain = json.loads(json.dumps(bare, allow_nan=False))
    encoded = json.dumps(plain, sort_keys=True, ensure_ascii=True).encode()
    return hashlib.sha256(encoded).hexdigest()


def is_as_sealed(document: Mapping[str, Any]) -> bool:
    """Return whether a document with a certificate has the digest that it states."""
    digest = document["certificate"].get("document_digest")
    return bool(digest == document_digest(document))


def check_document(
    document: Mapping[str, Any], reproduce: Reproduce | None = None
) -> list[str]:
    """Return why a plan's sealed document cannot be accepted; empty when it can.

    ``reproduce`` rebuilds the inputs and simulations; without it only the figures
    inside the document are checked.
    """
    block = document.get("certificate")
    if not isinstance(block, Mapping):
        return ["the plan has no certificate"]
    if block.get("schema") not in (SCHEMA, POOLS_SCHEMA):
        return [f"its certificate is {block.get('schema')!r}; expected {SCHEMA!r}"]
    if not is_as_sealed(document):
        return [CHANGED]
    try:
        # The cheap checks first: a document that contradicts itself is not simulated.
        reasons = _check_claims(block) + _check_candidates(document)
        if reasons or reproduce is None:
            return reasons
        again = reproduce(document)
        for pool, inputs in zip(pools_of(block), again.inputs, strict=True):
            reasons += [_role(pool) + why for why in check_bound(pool, inputs)]
        return reasons + _check_attained(block, again.attained)
    except MALFORMED as problem:
        return [f"its certificate is malformed: {type(problem).__name__}: {problem}"]


def _role(pool: Mapping[str, Any]) -> str:
    return f"{pool['role']}: " if "role" in pool else ""


def _counts(block: Mapping[str, Any]) -> Counts:
    return tuple(pool["replica_count"] for pool in pools_of(block))


def _failing(block: Mapping[str, Any]) -> dict[Counts, float]:
    """Return the attainment claimed of one replica fewer, by the counts."""
    failing = block["simulated"]["failing"]
    if block["schema"] == POOLS_SCHEMA:
        return {tuple(x["replica_counts"]): x["slo_attainment"] for x in failing}
    return {} if failing is None else {(block["replica_count"] - 1,): failing}


def _check_claims(block: Mapping[str, Any]) -> list[str]:
    """Return where figures of the certificate contradict one another."""
    reasons = []
    for pool in pools_of(block):
        bound, count = pool["bound"], pool["replica_count"]
        if count < bound["replica_count"]:
            reasons.append(
                f"{_role(pool)}{count} replicas are fewer than the bound, "
                f"{bound['replica_count']}"
            )
        reasons += [_role(pool) + why for why in check_rounding(bound)]
    counts, passing = _counts(block), block["simulated"]["passing"]
    expected = 2 if block["schema"] == POOLS_SCHEMA else 1
    if len(counts) != expected or min(counts) < 1:
        reasons.append(
            f"its pools have {counts} replicas; expected {expected} pools, >= 1"
        )
        return reasons
    if passing < block["attainment"]:
        reasons.append(
            f"{passing:.6g} in time at {_text(counts)} replicas is below "
            f"{block['attainment']:.6g}"
        )
    # Minimal means that one replica fewer fails; below one there is none to run.
    if set(_failing(block)) != {*one_fewer(counts)}:
        reasons.append("the runs one replica lower are missing, or are others")
    return reasons


def _check_candidates(document: Mapping[str, Any]) -> list[str]:
    """Return where the plan's best candidate differs from its certificate."""
    block, best = document["certificate"], document.get("best")
    pools = pools_of(block)
    if not isinstance(best, Mapping):
        return [] if len(pools) == 1 else [f"best is {best!r}; one is proven"]
    reasons, copies = [], {"best": best}
    if document.get("status") != "feasible":
        reasons.append(f"status is {document.get('status')!r}; 'feasible' is proven")
    if len(pools) > 1:
        copies["best_disaggregated"] = document["best_disaggregated"]
    for place, candidate in enumerate(document.get("candidates", ())):
        shown = _shown(candidate)
        if len(shown) == len(pools) and all(map(is_alike, shown, pools)):
            copies[f"candidates[{place}]"] = candidate
    proven: dict[str, Any] = {
        "status": "feasible",
        "gpu_count": sum(pool["replica_count"] * gpus_of(pool) for pool in pools),
        "lower_bound_gpu_count": sum(
            pool["bound"]["replica_count"] * gpus_of(pool) for pool in pools
        ),
        "slo_attainment": block["simulated"]["passing"],
    }
    # What a reader sees of the best candidate, in all places, is what was proven.
    for key, candidate in copies.items():
        reasons += check_proven(key, candidate, proven)
        for priced in (best, candidate):  # at its own prices, and at those of the best
            prices: list[Any] = [pool.get("price") for pool in _shown(priced)]
            if None not in prices:
                usd = {"usd_per_h": usd_per_h(pools, prices)}
                reasons += check_proven(key, candidate, usd)
        rows = zip(_shown(candidate), pools, strict=True)
        for number, (row, pool) in enumerate(rows):
            names = ("role", "gpu", "tp", "replica_count")
            wanted = {name: pool[name] for name in names if name in pool}
            if len(pools) > 1:
                wanted["lower_bound_replica_count"] = pool["bound"]["replica_count"]
            where = key if row is candidate else f"{key}.pools[{number}]"
            reasons += check_proven(where, row, wanted)
    return [*dict.fromkeys(reasons)]


def _shown(candidate: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the rows that a candidate has of its pools; of one pool its own."""
    return candidate.get("pools") or [candidate]


def _text(counts: Counts) -> str:
    return " and ".join(map(str, counts))


def _check_attained(
    block: Mapping[str, Any], attained: Mapping[Counts, float]
) -> list[str]:
    """Return where the simulations run again differ from the certificate."""
    claims = {_counts(block): block["simulated"]["passing"], **_failing(block)}
    return [
        f"{attained[counts]:.9g} in time at {_text(counts)} replicas when simulated "
        f"again; {share:.9g} is claimed"
        for counts, share in claims.items()
        if not math.isclose(attained[counts], share, rel_tol=1e-9)
    ]
