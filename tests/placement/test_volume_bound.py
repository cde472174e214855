"""Lower bounds from sums, on cases worked by hand."""

import numpy as np
import pytest

from capplan.placement.problem import PlacementProblem
from capplan.placement.replica import affine_replica
from capplan.placement.volume_bound import volume_bound


def problem(prompts, outputs=None, ttft_s=10.0, **changes):
    """Return new requests; 20 ms of TPOT allow 100 - 10 b tokens at batch b."""
    n = len(prompts)
    replica = dict(
        kv_capacity_tokens=10**6,
        fixed_s=0.010,
        request_s=0.001,
        context_s=0.0001,
        max_batch=9,
        prefill_fixed_s=0.020,
        prefill_s_per_token=0.001,
    )
    replica |= {name: changes.pop(name) for name in list(changes) if name in replica}
    values = dict(gamma=0.0, theta=1.0) | changes
    return PlacementProblem(
        affine_replica(replica.pop("kv_capacity_tokens"), **replica),
        np.array(prompts),
        np.ones(n, int) if outputs is None else np.array(outputs),
        np.broadcast_to(ttft_s, n).copy(),
        np.full(n, 0.02),
        **values,
    )


def test_each_request_takes_its_context_and_what_a_larger_batch_costs():
    # Context + 10 tokens a request, 100 a replica: 20 * (10 + 10) / 100 = 4. Contexts
    # alone, 200 against 90 at batch 1, would say 3.
    bound = volume_bound(problem([10] * 20))

    assert bound == (4, "decode SLO (b)")


def test_prefills_add_up_to_the_ttft_less_the_fixed_time():
    # 100 - 20 ms leave 80 tokens: 3 * 50 / 80.
    bound = volume_bound(problem([50] * 3, ttft_s=0.1, context_s=0))

    assert bound == (2, "prefill (c, d)")


def test_a_loose_ttft_does_not_make_room_for_tight_ones():
    # Three of 60 tokens within 80: three replicas, whatever else has 980 tokens.
    ttft_s = np.array([0.1] * 3 + [1.0] * 3)

    bound = volume_bound(problem([60] * 3 + [10] * 3, ttft_s=ttft_s, context_s=0))

    assert bound == (3, "prefill (c, d)")


def test_kv_binds_in_the_iteration_before_the_short_requests_end():
    # Ten iterations ahead 4 * 30 + 2 * 50 = 220 tokens, later only 2 * 80.
    requests = ([20] * 4 + [40] * 2, [10] * 4 + [40] * 2)

    bound = volume_bound(problem(*requests, context_s=0, kv_capacity_tokens=100))

    assert bound == (3, "KV (e) 10 iterations ahead")


def ongoing(prompt, new, **changes):
    """Return one ongoing request of 10 more tokens on replica 0, and new ones."""
    return problem(
        [prompt, *new],
        [20] + [10] * len(new),
        generated_tokens=np.array([10] + [0] * len(new)),
        replica=np.array([0] + [-1] * len(new)),
        replica_count=1,
        context_s=0,
        prefill_s_per_token=0,
        **changes,
    )


def test_what_an_ongoing_request_leaves_is_used_first():
    # 60 + 20 tokens at its end leave 20 of 100; new ones take 4 * 30 = 120.
    busy = ongoing(60, [20] * 4, kv_capacity_tokens=100)
    light = ongoing(50, [20] * 1, kv_capacity_tokens=100)

    assert volume_bound(busy).replicas == 2
    assert volume_bound(light).replicas == 1


def test_ongoing_requests_alone_need_the_replicas_they_are_on():
    held = problem(
        [1, 1, 1],
        [9, 9, 9],
        generated_tokens=np.array([1, 1, 1]),
        replica=np.array([4, 2, 2]),
        replica_count=5,
    )

    assert volume_bound(held) == (2, "replicas that hold ongoing requests")


@pytest.mark.parametrize("seed", range(600, 640))
def test_a_request_more_never_lowers_the_bound(seed, small_problem):
    whole = small_problem(seed)
    kept = np.arange(len(whole) - 1)
    columns = {
        name: getattr(whole, name)[kept]
        for name in (
            "prompt_tokens",
            "predicted_output_tokens",
            "ttft_slo_s",
            "tpot_slo_s",
            "generated_tokens",
            "decode_elapsed_s",
            "replica",
        )
    }

    fewer = PlacementProblem(
        whole.template,
        **columns,
        replica_count=whole.replica_count,
        gamma=whole.gamma,
        theta=whole.theta,
    )

    assert volume_bound(fewer).replicas <= volume_bound(whole).replicas
