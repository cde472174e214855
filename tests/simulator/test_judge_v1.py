"""The judge of vLLM V1 serves sets of features: laws that hold whatever they are."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from judge_v1 import judge_v1
from random_cases import FEATURES, random_set
from recorded import as_recorded

from capplan.deployment.adapters import Adapters
from capplan.deployment.images import Images
from capplan.deployment.pipeline import Pipeline
from capplan.deployment.speculation import Speculation
from capplan.simulator.schedulers import parse_scheduler

STAND_STILL = {"drafts", "images"}  # vLLM too, where images wait for each other
SETS = [set(each) for each in combinations(FEATURES, 3) if not {*each} >= STAND_STILL]


@pytest.mark.parametrize("features", SETS, ids=lambda each: "-".join(sorted(each)))
def test_every_request_is_answered_and_gives_back_what_it_held(features):
    trace, tables, engine = as_recorded(random_set(1, features))

    verdict = judge_v1(trace, tables, engine, 2, seed=3)

    assert all(request.done for request in verdict.requests)
    for replica in verdict.replicas:
        assert len(replica.pool.free) == engine.kv_blocks - 1
        assert not any(block.references for block in replica.pool.free)
        assert not any(replica.encoder.rows.values())


def test_what_no_request_uses_changes_nothing():
    trace, tables, engine = as_recorded(random_set(1, {"cached"}))
    alike = replace(trace, priority=np.zeros(len(trace), int))
    engine = replace(engine, async_scheduling=True)
    unused = replace(
        engine,
        adapters=Adapters(2, 4, slowdown=0.5, load_s=1.0),
        images=Images(encoder_cache_size=64, max_image_tokens=64, least_s=1.0),
        speculation=Speculation("ngram", ()),
        pipeline=Pipeline(1),
        scheduler=parse_scheduler("vllm-v1-priority"),
        kv_blocks=10_000,
    )

    with_all = judge_v1(alike, tables, unused, 1)
    plain = judge_v1(trace, tables, replace(engine, kv_blocks=10_000), 1)

    for one, other in zip(with_all.requests, plain.requests, strict=True):
        assert one.token_s == pytest.approx(other.token_s, rel=1e-12)
