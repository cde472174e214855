"""Cases of vLLM V0 worked by hand."""

from worked import THREE, ms, served


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
