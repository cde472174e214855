"""Cases of DeepSpeed-FastGen worked by hand."""

import pytest
from worked import THREE, ms, served

from capplan.errors import InputError


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


def test_a_prompt_in_chunks_that_takes_the_last_block_is_refused():
    # 18 tokens take 5 blocks with the first chunk of 17; none is free for the second.
    request = [(0, 18, 1)]

    with pytest.raises(InputError, match="in chunks of 17 tokens it needs more than"):
        served("fastgen", request, 5, max_num_batched_tokens=17)

    assert served("fastgen", request, 5).finish_s[0] > 0
    assert served("fastgen", request, 6, max_num_batched_tokens=17).finish_s[0] > 0
