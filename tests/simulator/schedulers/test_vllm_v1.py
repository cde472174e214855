"""Cases of vLLM V1 worked by hand; the goldens are runs of the real scheduler."""

from worked import THREE, ms, served


def test_prompts_are_cut_to_what_the_decodes_leave_of_the_budget():
    # 0-14 A:4 | 14-30 A B:5 | 30-44 A B:1 C:2, A ends | 44-56 B C, B ends | 67 | 78
    times = served("vllm-v1", THREE, max_num_batched_tokens=6, max_num_seqs=4)

    assert ms(times.first_token_s) == [14, 44, 44]
    assert ms(times.finish_s) == [44, 56, 78]


def test_the_last_admitted_is_preempted_and_computes_all_again():
    # 0-21 A:6 B:5 | 33 | 45, A needs a third of 4 blocks: B out | 56 | 67 | 78 A ends,
    # before that B's 8 tokens have no room | 78-96 B:8 | 107 | 118
    times = served("vllm-v1", [(0, 6, 6), (0, 5, 6)], 4, max_num_batched_tokens=16)

    assert ms(times.first_token_s) == [21, 21]
    assert ms(times.finish_s) == [78, 118]
    assert times.preemptions.tolist() == [0, 1]
    assert ms(times.longest_gap_s) == [12, 51]


def test_a_seat_is_free_from_the_iteration_after_the_last_token_on():
    # One seat: 0-14 A:4 | 25 | 36 A ends | 36-52 B:6 | 63 B ends
    times = served("vllm-v1", THREE[:2], max_num_batched_tokens=64, max_num_seqs=1)

    assert ms(times.scheduled_s) == [0, 36]
    assert ms(times.finish_s) == [36, 63]
