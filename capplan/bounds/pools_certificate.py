"""The certificate of a plan with disaggregated prefill and decode.

It states a lower bound for each pool, as ``certificate.py`` does for one, that the
counts of both meet the SLO target when simulated, and what one replica fewer of either
attains. ``docs/bounds.md`` has the argument.
"""

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

POOLS_SCHEMA = "capplan.certificate.pools/1"


class PoolsReproduction(NamedTuple):
    """Inputs of a plan's bounds, by pool, and its simulations, run again."""

    inputs: Sequence[Inputs]
    attained: Mapping[tuple[int, ...], float]  # attainment by the counts of the pools


def pool_block(
    bound: Mapping[str, Any],
    inputs: Inputs,
    group_targets: Sequence[float],
    **about: Any,
) -> dict[str, Any]:
    """Return what is proven of one pool as plain values.

    ``about`` has its role, GPU, TP degree, replicas, engine and sample.
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


def pools_certificate(
    pools: Sequence[Mapping[str, Any]],
    attainment: float,
    *,
    passing: float,
    failing: Mapping[tuple[int, ...], float],
    **about: Any,
) -> dict[str, Any]:
    """Return the certificate of two pools as plain values.

    ``failing`` is the simulated attainment of one replica fewer of either pool, by the
    counts; ``about`` has router, hand-off and link.
    """
    return {
        "schema": POOLS_SCHEMA,
        **about,
        "attainment": attainment,
        "pools": list(pools),
        "simulated": {
            "passing": passing,
            "failing": [
                {"replica_counts": list(counts), "slo_attainment": share}
                for counts, share in failing.items()
            ],
        },
    }


def check_pools_document(
    document: Mapping[str, Any],
    reproduce: Callable[[Mapping[str, Any]], PoolsReproduction] | None,
) -> list[str]:
    """Return why the certificate of two pools cannot be accepted; see certificate.py.

    Its digest was checked.
    """
    block = document["certificate"]
    reasons = _check_claims(block) + _check_best(document)
    if reasons or reproduce is None:
        return reasons
    again = reproduce(document)
    for pool, inputs in zip(block["pools"], again.inputs, strict=True):
        reasons += [f"{pool['role']}: {why}" for why in check_bound(pool, inputs)]
    return reasons + _check_attained(block, again.attained)


def _counts(block: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(pool["replica_count"] for pool in block["pools"])


def _claimed(block: Mapping[str, Any]) -> dict[tuple[int, ...], float]:
    """Return the attainment claimed of one replica fewer, by the counts."""
    return {
        tuple(run["replica_counts"]): run["slo_attainment"]
        for run in block["simulated"]["failing"]
    }


def _check_claims(block: Mapping[str, Any]) -> list[str]:
    """Return where figures of the certificate contradict one another."""
    reasons = []
    for pool in block["pools"]:
        bound, role = pool["bound"], pool["role"]
        if pool["replica_count"] < bound["replica_count"]:
            reasons.append(
                f"{role}: {pool['replica_count']} replicas are fewer than the bound, "
                f"{bound['replica_count']}"
            )
        reasons += [f"{role}: {why}" for why in check_rounding(bound)]
    counts = _counts(block)
    if len(counts) != 2 or min(counts) < 1:
        reasons.append(f"its pools have {counts} replicas; expected two pools, >= 1")
        return reasons
    passing = block["simulated"]["passing"]
    if passing < block["attainment"]:
        reasons.append(
            f"{passing:.6g} attained is below {block['attainment']:.6g}",
        )
    prompts, decoding = counts
    fewer = [(prompts - 1, decoding), (prompts, decoding - 1)]
    if set(_claimed(block)) != {each for each in fewer if min(each) > 0}:
        reasons.append("the runs one replica lower are missing, or are others")
    return reasons


def _check_best(document: Mapping[str, Any]) -> list[str]:
    """Return where the plan's best candidate differs from its certificate."""
    block, best = document["certificate"], document["best"]
    if document.get("status") != "feasible":
        return [f"status is {document.get('status')!r}; 'feasible' is proven"]
    names = ("role", "gpu", "tp", "replica_count")
    copies = {"best": best, "best_disaggregated": document["best_disaggregated"]}
    for row, candidate in enumerate(document["candidates"]):
        if _is_of(candidate, block):
            copies[f"candidates[{row}]"] = candidate
    reasons = []
    for key, candidate in copies.items():
        proven: dict[str, Any] = {
            "status": "feasible",
            "gpu_count": sum(x["replica_count"] * gpus_of(x) for x in block["pools"]),
            "lower_bound_gpu_count": sum(
                x["bound"]["replica_count"] * gpus_of(x) for x in block["pools"]
            ),
            "slo_attainment": block["simulated"]["passing"],
        }
        prices = [pool.get("price") for pool in candidate["pools"]]
        if all(prices):
            proven["usd_per_h"] = usd_per_h(block["pools"], prices)
        reasons += check_proven(key, candidate, proven)
        for number, pool in enumerate(block["pools"]):
            shown = candidate["pools"][number]
            wanted = {name: pool[name] for name in names}
            wanted["lower_bound_replica_count"] = pool["bound"]["replica_count"]
            reasons += check_proven(f"{key}.pools[{number}]", shown, wanted)
    return reasons


def _is_of(candidate: Mapping[str, Any], block: Mapping[str, Any]) -> bool:
    """Return whether a candidate is the one of a certificate."""
    pools = candidate.get("pools") or ()
    proven = block["pools"]
    alike = map(is_alike, pools, proven)
    return len(pools) == len(proven) and all(alike)


def _check_attained(
    block: Mapping[str, Any], attained: Mapping[tuple[int, ...], float]
) -> list[str]:
    """Return where the simulations run again differ from the certificate."""
    claims = {_counts(block): block["simulated"]["passing"], **_claimed(block)}
    return [
        f"{attained[counts]:.9g} attained at {' and '.join(map(str, counts))} replicas "
        f"when simulated again; {share:.9g} is claimed"
        for counts, share in claims.items()
        if not math.isclose(attained[counts], share, rel_tol=1e-9)
    ]
