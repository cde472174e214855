"""Cases of Sarathi-Serve worked by hand."""

from worked import THREE, ms, served


def test_prompts_fill_what_the_decodes_leave_of_a_chunk():
    # 0-14 A:4 | 14-28 A B:3 | 28-42 A B:3, A ends | 42-55 B C:2, B ends | 66 | 77 | 88
    times = served("sarathi", THREE, max_num_batched_tokens=4, max_num_seqs=4)

    assert ms(times.first_token_s) == [14, 42, 55]
    assert ms(times.finish_s) == [42, 55, 88]


def test_nobody_is_admitted_in_an_iteration_that_preempted():
    # 0-21 A:6 B:5, no block free: B out, 21-32 A | 32-49 A B:6 | B out, 49-60 A |
    # 71 | 82 A ends | 82-99 B:7 | 110 | 121 | 132
    times = served("sarathi", [(0, 6, 6), (0, 5, 6)], 4, max_num_batched_tokens=16)

    assert ms(times.first_token_s) == [21, 21]
    assert ms(times.finish_s) == [82, 132]
    assert times.preemptions.tolist() == [0, 2]
    assert ms(times.longest_gap_s) == [17, 50]


def test_a_decode_wants_a_free_block_even_if_it_needs_none():
    # Each holds 2 of 4 blocks, with room for all its tokens. 0-20 | B out, 20-31 A |
    # 31-48 A B:6, A ends | 48-59 B ends
    times = served("sarathi", [(0, 5, 3), (0, 5, 3)], 4, max_num_batched_tokens=16)

    assert ms(times.finish_s) == [48, 59]
    assert times.preemptions.tolist() == [0, 1]


def test_vllm_v1_preempts_nobody_there():
    times = served("vllm-v1", [(0, 5, 3), (0, 5, 3)], blocks=4)

    assert ms(times.finish_s) == [44, 44]
    assert times.preemptions.tolist() == [0, 0]
