"""Cases of TensorRT-LLM worked by hand."""

import numpy as np
import pytest
from worked import THREE, ms, served

from capplan.errors import InputError

PAIR = [(0, 6, 6), (0, 5, 6)]


def test_prompts_join_the_decodes():
    # 0-14 A | 14-31 A B:6 (10 + 6 + 1) | 31-45 A B C:2, A and B end | 56 | 67 | 78
    times = served("trtllm", THREE)

    assert ms(times.first_token_s) == [14, 31, 45]
    assert ms(times.finish_s) == [45, 45, 78]


def test_with_overlap_an_arrival_waits_for_the_iteration_after_the_next():
    # 0-14 A | 14-25 A, put together at 0 | B, seen at 14: 25-42 A B:6, A ends | 42-53 B
    # ends | C, there at 30 and seen at 42: 53-65 C:2 | 76 | 87 | 98
    times = served("trtllm", THREE, async_scheduling=True)

    assert ms(times.first_token_s) == [14, 42, 65]
    assert ms(times.finish_s) == [42, 53, 98]


def test_a_request_waits_for_the_blocks_of_its_whole_answer():
    # Each wants 3 of 4 blocks: A alone 0-16 | 27 38 49 60 71 | 71-86 B | ... 141
    times = served("trtllm", PAIR, blocks=4)

    assert ms(times.finish_s) == [71, 141]
    assert times.preemptions.tolist() == [0, 0]


def test_max_utilization_pauses_the_request_started_last():
    # 0-21 A B | 33 | 45 | A wants a block, none is free: B paused, 45-56 A | 67 | 78
    # | 78-96 B:8 | 107 | 118
    times = served("trtllm:policy=max_utilization", PAIR, blocks=4)

    assert ms(times.finish_s) == [78, 118]
    assert times.preemptions.tolist() == [0, 1]


def test_a_prompt_beyond_the_tokens_left_waits():
    # 0-14 A (B would be 9) | 14-32 A B:5 C:2 (1 + 5 + 2 = 8) | 43
    requests = [(0, 4, 3), (0, 5, 1), (0, 2, 1)]
    times = served("trtllm", requests, max_num_batched_tokens=8)

    assert ms(times.finish_s) == [43, 32, 32]


def test_a_cut_prompt_has_whole_blocks():
    # 8 tokens: 0-18 A:4 B:4 | 18-35 A B:6@4, both end. A block is 4 tokens: of the 8
    # left at 0 B has 4; at 18 the 6 that are left fit whole.
    requests = [(0, 4, 2), (0, 10, 1)]
    times = served("trtllm:chunked=1", requests, max_num_batched_tokens=8)

    assert ms(times.first_token_s) == [18, 35]


def test_the_clients_limit_is_reserved():
    # blk(4 + 8) = 3 of 5 blocks: B waits for A. With true answers blk(5) = 2: both run.
    requests = [(0, 4, 1), (0, 4, 1)]
    limited = served("trtllm", requests, blocks=5, max_new_tokens=8)
    exact = served("trtllm", requests, blocks=5)

    assert ms(limited.finish_s) == [14, 28]
    assert ms(exact.finish_s) == [18, 18]


def test_a_prompt_above_the_token_budget_is_refused_unless_it_is_cut():
    request = [(0, 20, 2)]

    with pytest.raises(InputError, match="are not cut"):
        served("trtllm", request, max_num_batched_tokens=8)

    assert served("trtllm:chunked=1", request, max_num_batched_tokens=8).finish_s[0] > 0


def test_what_is_reserved_is_never_evicted():
    rng = np.random.default_rng(0)
    evictions = 0
    for _ in range(20):
        n = int(rng.integers(2, 30))
        requests = [
            (at, *rng.integers(1, 12, 2)) for at in np.sort(rng.integers(0, 99, n))
        ]
        limit = int(rng.choice([0, 12, 20]))
        kept = served("trtllm", requests, blocks=8, max_new_tokens=limit)
        filled = served("trtllm:policy=max_utilization", requests, blocks=8)

        assert kept.preemptions.sum() == 0
        evictions += int(filled.preemptions.sum())
    assert evictions > 20
