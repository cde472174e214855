"""The certificate in a plan: why it is right, checkable without the planner.

It states a lower bound on replicas with its window, prices and work, that N replicas
meet the SLO target when simulated and that N - 1 do not, and digests of the inputs and
of the whole document. ``docs/bounds.md`` lists the checks.
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
from capplan.bounds.pools_certificate import POOLS_SCHEMA, check_pools_document

SCHEMA = "capplan.certificate/2"
PLAN_SCHEMA = "capplan.plan/2"
"""Of the document that the certificate seals."""
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors of reckoning with parts of a document that are not as capplan writes them."""
CHANGED = "its digest does not match: something was changed after it was made"


class Reproduction(NamedTuple):
    """Inputs of a plan and its simulations, run again."""

    inputs: Inputs
    attained: Mapping[int, float]  # attainment by replica count, for N and N - 1


Reproduce = Callable[[Mapping[str, Any]], Any]
"""Rebuilds the inputs and simulations of a plan's document: a Reproduction, of two
pools a PoolsReproduction."""


def certificate(
    bound: Mapping[str, Any],
    inputs: Inputs,
    attainment: float,
    group_targets: Sequence[float],
    *,
    replica_count: int,
    passing: float,
    failing: float | None,
    **about: Any,
) -> dict[str, Any]:
    """Return the certificate of one configuration as plain values.

    ``bound`` has the fields of :class:`capplan.bounds.lower_bound.Bound`; ``passing``
    and ``failing`` are the simulated attainment of N and N - 1 replicas, None when N is
    1; ``attainment`` is the share of all requests that must meet the SLO when each
    group of them attains its target, ``group_targets``; ``about`` has further keys of
    the configuration (gpu, tp).
    """
    return {
        "schema": SCHEMA,
        **about,
        "replica_count": replica_count,
        "attainment": attainment,
        "group_targets": list(group_targets),
        "request_count": len(inputs.columns["arrival_s"]),
        "bound": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in bound.items()
        },
        "simulated": {"passing": passing, "failing": failing},
        "inputs_digest": inputs_digest(inputs),
    }


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
        if block["schema"] == POOLS_SCHEMA:
            return check_pools_document(document, reproduce)
        # The cheap checks first: a document that contradicts itself is not simulated.
        reasons = _check_claims(block) + _check_candidates(document)
        if reasons or reproduce is None:
            return reasons
        again = reproduce(document)
        return check_bound(block, again.inputs) + _check_attained(block, again.attained)
    except MALFORMED as problem:
        return [f"its certificate is malformed: {type(problem).__name__}: {problem}"]


def _check_claims(block: Mapping[str, Any]) -> list[str]:
    """Return where figures of the certificate contradict one another."""
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
    # Minimal means that one replica fewer fails; below one there is none to run.
    if (failing is None) != (count == 1):
        reasons.append("the run one replica lower is missing, or is of 0 replicas")
    return reasons + check_rounding(bound)


def _check_candidates(document: Mapping[str, Any]) -> list[str]:
    """Return where the plan's best candidate differs from its certificate."""
    block, best = document["certificate"], document.get("best")
    if not isinstance(best, Mapping):
        return []
    gpu_count = block["replica_count"] * gpus_of(block)
    proven: dict[str, Any] = {
        "gpu": block["gpu"],
        "tp": block["tp"],
        "status": "feasible",
        "replica_count": block["replica_count"],
        "gpu_count": gpu_count,
        "lower_bound_gpu_count": block["bound"]["replica_count"] * gpus_of(block),
        "slo_attainment": block["simulated"]["passing"],
    }
    if best.get("price") is not None:
        proven["usd_per_h"] = usd_per_h([block], [best["price"]])
    reasons = []
    if document.get("status") != "feasible":
        reasons.append(f"status is {document.get('status')!r}; 'feasible' is proven")
    copies = {"best": best}
    for row, candidate in enumerate(document.get("candidates", ())):
        if is_alike(candidate, block):
            copies[f"candidates[{row}]"] = candidate
    # What a reader sees of the best candidate, in both places, is what was proven.
    for key, candidate in copies.items():
        reasons += check_proven(key, candidate, proven)
    return reasons


def _check_attained(
    block: Mapping[str, Any], attained: Mapping[int, float]
) -> list[str]:
    """Return where the simulations run again differ from the certificate."""
    count, simulated = block["replica_count"], block["simulated"]
    claims = {count: simulated["passing"]}
    if simulated["failing"] is not None:
        claims[count - 1] = simulated["failing"]
    return [
        f"{attained[replicas]:.9g} attained at {replicas} replicas when simulated "
        f"again; {share:.9g} is claimed"
        for replicas, share in claims.items()
        if not math.isclose(attained[replicas], share, rel_tol=1e-9)
    ]
