"""Cases of vLLM V0 worked by hand."""

import pytest
from worked import THREE, ms, served

from capplan.errors import InputError


def test_prompts_run_without_the_decodes():
    # 0-14 A:4 | 14-30 B:6 | 30-42 C:2 | 42-55 A B C, B ends | 67 A C, A ends | 78
    times = served("vllm-v0", THREE)

    assert ms(times.first_token_s) == [14, 30, 42]
    assert ms(times.finish_s) == [67, 55, 78]
    assert ms(times.longest_gap_s) == [41, 25, 13]


def test_a_prompt_waits_for_a_seat_while_others_decode():
    # 0-14 A:4 | 14-30 B:6 | 42 A B, B ends | 42-54 C:2 | 66 A C, A ends | 77 | 88
    times = served("vllm-v0", THREE, max_num_seqs=2)

    assert ms(times.finish_s) == [66, 42, 88]
    assert ms(times.first_token_s) == [14, 30, 54]


def test_a_preempted_request_is_back_in_the_next_iteration():
    # 0-21 A:6 B:5, no block free: B out, 21-32 A | 32-48 B:6 | B out, 48-59 A |
    # 59-76 B:7 | B out, 76-87 A takes a block | B needs two: 98 | 109 A ends |
    # 109-127 B:8 | 138 | 149
    times = served("vllm-v0", [(0, 6, 6), (0, 5, 6)], blocks=4)

    assert ms(times.first_token_s) == [21, 21]
    assert ms(times.finish_s) == [109, 149]
    assert times.preemptions.tolist() == [0, 3]
    assert ms(times.longest_gap_s) == [28, 51]


def test_a_decode_wants_a_free_block_even_if_it_needs_none():
    # Each holds 2 of 4 blocks, with room for all its tokens. 0-20 | B out, 20-31 A |
    # 31-47 B:6 | B out, 47-58 A ends | 58-75 B:7 ends
    times = served("vllm-v0", [(0, 5, 3), (0, 5, 3)], blocks=4)

    assert ms(times.finish_s) == [58, 75]
    assert times.preemptions.tolist() == [0, 2]


def test_a_swapped_request_keeps_its_kv_on_the_host():
    # 0-21 A:6 B:5 | B out, 2 blocks, 10 ms: 31-42 A | 53 | 64 | 75 | 86 A ends (B wants
    # 2 + 1 blocks) | in, 10 ms: 96-107 B | 118 | 129 | 140 | 151 B ends
    times = served(
        "vllm-v0:swap=1",
        [(0, 6, 6), (0, 5, 6)],
        blocks=4,
        kv_block_bytes=5_000_000,
        link_gb_per_s=1.0,
    )

    assert ms(times.first_token_s) == [21, 21]
    assert ms(times.finish_s) == [86, 151]
    assert times.swaps.tolist() == [0, 1]
    assert times.preemptions.tolist() == [0, 0]
    assert ms(times.paused_s) == [0, 65]
    assert ms(times.longest_gap_s) == [21, 86]


def test_a_full_host_is_named():
    with pytest.raises(InputError, match="host memory for swapped KV is full"):
        served(
            "vllm-v0:swap=1",
            [(0, 6, 6), (0, 5, 6)],
            blocks=4,
            kv_block_bytes=5_000_000,
            host_kv_gib=0.008,
        )


def test_swapping_needs_the_bytes_of_a_block():
    with pytest.raises(InputError, match="bytes of a KV block are not known"):
        served("vllm-v0:swap=1", [(0, 4, 3)], kv_block_bytes=0)


def test_cut_prompts_join_the_decodes():
    # 0-14 A:4 | 14-28 A B:3 | 28-42 A B:3, A ends | 42-55 B C:2, B ends | 66 | 77 | 88
    budget = {"max_num_batched_tokens": 4, "max_num_seqs": 4}
    times = served("vllm-v0:chunked=1", THREE, **budget)

    assert ms(times.first_token_s) == [14, 42, 55]
    assert ms(times.finish_s) == [42, 55, 88]


def test_a_padded_budget_counts_each_prompt_as_the_longest():
    # 2 + 6 + 2 tokens, padded 18. 0-18 A B | 18-30 C | 30-43 all end
    requests = [(0, 2, 2), (0, 6, 2), (0, 2, 2)]
    padded = served("vllm-v0:padded_budget=1", requests, max_num_batched_tokens=12)
    summed = served("vllm-v0", requests, max_num_batched_tokens=12)

    assert ms(padded.first_token_s) == [18, 18, 30]
    assert ms(padded.finish_s) == [43, 43, 43]
    assert ms(summed.first_token_s) == [20, 20, 20]


def test_a_prompt_in_chunks_that_takes_the_last_block_is_refused():
    # 20 + 5 - 1 tokens take all 6 blocks. Computed again in chunks of 8, the request
    # would preempt itself before its second chunk, which wants a free block, for ever.
    request = [(0, 20, 5)]

    with pytest.raises(InputError, match="leaves 1 of 6 blocks free"):
        served("vllm-v0:chunked=1", request, 6, max_num_batched_tokens=8)

    assert served("vllm-v0:chunked=1", request, 6).finish_s[0] > 0
    assert served("vllm-v0:chunked=1", request, 7, max_num_batched_tokens=8) is not None
