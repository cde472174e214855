"""Cases of DeepSpeed-FastGen worked by hand."""

import pytest
from worked import THREE, ms, served

from capplan.errors import InputError

FIVE = {"max_num_batched_tokens": 5, "max_num_seqs": 4}


def test_prompts_are_split_and_fused():
    # 0-14 A:4 | 14-28 A B:3 | 28-42 A B:3, A ends | 42-55 B C:2, B ends | 66 | 77 | 88
    times = served("fastgen", THREE, max_num_batched_tokens=4, max_num_seqs=4)

    assert ms(times.first_token_s) == [14, 42, 55]
    assert ms(times.finish_s) == [42, 55, 88]


def test_a_decode_without_a_block_is_skipped_and_the_last_is_flushed():
    # 0-21 A:6 B:5 | 33 A B | 45 A B | A needs a block, none: 45-56 B | neither runs:
    # B flushed, 56-67 A | 78 | 89 A ends | 89-108 B:9 | 119 B ends
    times = served("fastgen", [(0, 6, 6), (0, 5, 6)], 4, max_num_batched_tokens=16)

    assert ms(times.first_token_s) == [21, 21]
    assert ms(times.finish_s) == [89, 119]
    assert times.preemptions.tolist() == [0, 1]
    assert ms(times.longest_gap_s) == [22, 52]


def test_a_rest_without_a_new_block_runs_though_a_decode_took_the_last():
    # Of 4 blocks A has 1 and B, in chunks of 2 and 4, 2: 0-15 A:3 B:2 | 30 A B:4 |
    # A takes the last, which was free, and B:2 needs none: 43, A ends | 54 B ends
    times = served("fastgen", [(0, 3, 3), (0, 8, 2)], 4, **FIVE)

    assert ms(times.first_token_s) == [15, 43]
    assert ms(times.finish_s) == [43, 54]
    assert times.preemptions.tolist() == [0, 0]


def test_a_rest_without_a_new_block_waits_where_none_is_free_before_the_decodes():
    # A has 1 of 3 blocks, B 2: 0-15 A:2 B:3 | 30 A B:4 | 41 A, B waits | A needs a
    # block, none: A flushed, 52 B:1, B ends | 67 A:5, A ends
    times = served("fastgen", [(0, 2, 4), (0, 8, 1)], 3, **FIVE)

    assert ms(times.first_token_s) == [15, 52]
    assert ms(times.finish_s) == [67, 52]
    assert times.preemptions.tolist() == [1, 0]


def test_a_prompt_in_chunks_that_takes_the_last_block_is_refused():
    # 18 tokens take 5 blocks with the first chunk of 17; none is free for the second.
    request = [(0, 18, 1)]

    with pytest.raises(InputError, match="in chunks of 17 tokens it needs more than"):
        served("fastgen", request, 5, max_num_batched_tokens=17)

    assert served("fastgen", request, 5).finish_s[0] > 0
    assert served("fastgen", request, 6, max_num_batched_tokens=17).finish_s[0] > 0
