"""Dynamo's costs and what it charges replicas with, worked by hand."""

import numpy as np
import pytest
from worked import TABLES, engine

from capplan.simulator.routers.dynamo_kv import cost
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

HITS = np.array([2, 5, 8])  # of 10 blocks of 16 tokens
BLOCKS = np.array([10, 5, 9])


def test_costs_of_dynamos_own_example():
    costs = [cost(1.0, 16, 160 - 16 * h, b) for h, b in zip(HITS, BLOCKS, strict=True)]

    assert costs == [18, 10, 11]


def test_a_whole_prefix_is_worth_eight_blocks_of_load():
    assert cost(1.0, 16, 0, 12) == 12
    assert cost(1.0, 16, 160, 10) == 20


def test_without_weight_the_blocks_decide():
    costs = [cost(0.0, 16, 160 - 16 * h, b) for h, b in zip(HITS, BLOCKS, strict=True)]

    assert costs == BLOCKS.tolist()


def served_by(router, arrival_s, prompts, groups, outputs, seed=0):
    trace = Trace(
        prompts,
        np.full(len(prompts), outputs),
        np.array(arrival_s),
        prefix_group=np.array(groups),
        prefix_tokens=np.array(prompts),
    )
    fleet = fleet_of(TABLES, engine(prefix_caching=True), 2, router=router)
    return simulate(trace, fleet, seed=seed).times.replica.tolist()


@pytest.mark.parametrize("router", ["dynamo-kv", "dynamo-kv:events=0"])
def test_blocks_that_prompts_share_count_once(router):
    # Blocks of 4 tokens. C finds a block (events) or two of A: 1 + 2 or 0 + 2 < 2 + 2.
    # D is new: 2 and 2 + 3 blocks where A and C are, 3 + 3 elsewhere: the other. E is
    # new: 2 + 2 + 2 beside A and C, 2 + 3 + 2 beside D.
    served = served_by(
        router, [0.0, 0.1, 0.2, 0.3], [8, 8, 12, 8], [0, 0, -1, -1], outputs=50
    )

    assert served == [served[0], served[0], 1 - served[0], served[0]]


@pytest.mark.parametrize(("at_s", "beside"), [(0.02, "B"), (0.101, "A")])
def test_a_prompt_is_charged_until_its_first_token(at_s, beside):
    # A's 10 blocks take 50 ms; B's 2 begin 1 ms before C, elsewhere. At 20 ms, C has 3
    # blocks to prefill beside B and 11 beside A; at 101 ms, when A has its first token,
    # 3 beside B and 1 beside A. That they weigh 1,000 makes up for blocks in use.
    arrival_s = [0.0, at_s - 0.001, at_s]

    served = served_by("dynamo-kv:overlap=1000", arrival_s, [40, 8, 4], [-1] * 3, 90)

    assert served[1] == 1 - served[0]
    assert served[2] == (served[0] if beside == "A" else served[1])


def test_what_was_sent_is_forgotten_after_its_time():
    # The second finds the first at 2 s, the third not at 5 s: then the draw decides.
    served = [
        served_by(
            "dynamo-kv:events=0,ttl=2.5s", [0.0, 2.0, 5.0], [8] * 3, [0] * 3, 1, seed
        )
        for seed in range(40)
    ]

    draws = [np.random.default_rng(seed).random((3, 2))[:, 0] for seed in range(40)]
    assert [s[0] for s in served] == [int(2 * d[0]) for d in draws]
    assert [s[1] for s in served] == [s[0] for s in served]
    assert [s[2] for s in served] == [int(2 * d[2]) for d in draws]


def test_a_high_temperature_makes_costs_alike():
    n = 2000
    arrival_s = np.arange(n) * 10.0  # each is alone, and finds the first one's blocks
    hot = served_by("dynamo-kv:temperature=1000", arrival_s, [8] * n, [0] * n, 1)
    cold = served_by("dynamo-kv:temperature=0.01", arrival_s, [8] * n, [0] * n, 1)

    assert abs(np.mean(hot) - 0.5) < 4 * 0.5 / np.sqrt(n)
    assert len(set(cold)) == 1
