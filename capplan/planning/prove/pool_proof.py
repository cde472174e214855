"""The proof of disaggregated prefill and decode, made again to verify a plan."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from capplan.bounds.pools_certificate import (
    PoolsReproduction,
    pool_block,
    pools_certificate,
)
from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import DECODE, PREFILL
from capplan.errors import CapplanWarning
from capplan.planning.configure.deployments import two_pools
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import (
    PlanInputs,
    configuration_of,
    plan_inputs,
    prefilling,
)
from capplan.planning.evaluate.run import run_of
from capplan.planning.prove.pool_parts import Counts, Part, one_fewer
from capplan.planning.prove.proof import (
    MIX,
    bound_inputs,
    checked_count,
    group_targets,
    key_of,
    layout_of,
    settings_of,
    target_of,
)


def pools_certificate_of(inputs: PlanInputs, best: Candidate) -> dict[str, Any]:
    """Return the certificate of the best candidate, which has two pools."""
    assert best.run is not None
    deployment = best.run.deployment
    shares = {probe.pool_replica_counts: probe.slo_attainment for probe in best.probes}
    blocks = []
    for pool in best.pools:
        part = Part(pool.role, deployment.hand_off)
        sample, configuration = pool.bound_sample, pool.configuration
        blocks.append(
            pool_block(
                asdict(pool.bound),
                bound_inputs(inputs, configuration, sample, part),
                group_targets(inputs, sample),
                role=pool.role,
                gpu=pool.gpu,
                **layout_of(configuration),
                replica_count=pool.replica_count,
                engine=configuration.engine.document(),
                sample=sample,
            )
        )
    first, second = (pool.replica_count for pool in deployment.pools)
    return pools_certificate(
        blocks,
        target_of(inputs, 0),
        passing=shares[first, second],
        failing={
            counts: shares[counts]
            for counts in one_fewer((first, second))
            if counts in shares
        },
        router=deployment.router,
        decode_router=deployment.decode_router,
        hand_off=deployment.hand_off,
        link_gb_per_s=deployment.link_gb_per_s,
    )


def reproduce_pools(document: Mapping[str, Any]) -> PoolsReproduction:
    """Return the inputs of a plan's bounds, and its counts simulated again."""
    block = document["certificate"]
    counts = tuple(map(checked_count, block["pools"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapplanWarning)
        inputs, tried = plan_inputs(settings_of(document))
        able = [row for row in tried if isinstance(row, Configuration)]
        sides = (prefilling(inputs, able), able)
        chosen = [
            configuration_of(list(side), key_of(pool))
            for side, pool in zip(sides, block["pools"], strict=True)
        ]
        bounded = []
        for configuration, pool, role in zip(
            chosen, block["pools"], (PREFILL, DECODE), strict=True
        ):
            if pool["role"] != role:
                raise ValueError(f"its role is {pool['role']!r}; expected {role!r}")
            if pool["engine"] != configuration.engine.document():
                raise ValueError("its engine is not that of the configuration")
            if pool["sample"] == MIX and not inputs.load.is_resampled:
                raise ValueError("its bound is that of a mix, and arrivals are given")
            part = Part(role, block["hand_off"])
            bounded.append(bound_inputs(inputs, configuration, pool["sample"], part))
    shares: dict[Counts, float] = {}
    for each in (counts, *one_fewer(counts)):
        deployment = two_pools(inputs.settings, chosen, each, block["router"])
        run = run_of(inputs, deployment, thorough=True)
        assert run.judgement.attainment is not None
        shares[each] = run.judgement.attainment.share
    return PoolsReproduction(bounded, shares)
