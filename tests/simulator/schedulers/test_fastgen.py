"""Cases of DeepSpeed-FastGen worked by hand."""

from worked import THREE, ms, served


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
