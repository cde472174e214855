"""Cases of FastServe worked by hand: one seat, quanta of 20 ms, 40 ms, and so on."""

import pytest
from worked import ms, served

from capplan.errors import InputError
from capplan.simulator.schedulers import parse_scheduler

ONE_SEAT = "fastserve:base_quantum_s=0.02,proactive=0"


def test_a_request_goes_down_when_it_ran_longer_than_its_quantum():
    # 0-15 A | 26 A, level 1 | 26-41 B:5 | 52 B ends | A 63 74 85 96 ends
    times = served(ONE_SEAT, [(0, 5, 6), (12, 5, 2)], max_num_seqs=1)

    assert ms(times.finish_s) == [96, 52]
    assert ms(times.first_token_s) == [15, 41]
    assert ms(times.paused_s) == [26, 0]


def test_a_long_prompt_skips_levels():
    # A takes 35 ms, so joins level 1: 0-35 A | 35-50 B | 61 B ends | 72 | 83 A ends
    times = served(ONE_SEAT, [(0, 25, 3), (1, 5, 2)], max_num_seqs=1)

    assert ms(times.finish_s) == [83, 61]


def test_kv_is_swapped_out_and_in():
    # 0-18 A | 29 A, level 1 | 40 A | A out, 3 blocks, until 49 | 49-67 B:8 | 78 B ends
    # | A in until 87 | 98 | 109 A ends
    times = served(
        ONE_SEAT,
        [(0, 8, 5), (31, 8, 2)],
        4,
        max_num_seqs=1,
        kv_block_bytes=3 * 10**6,
    )

    assert ms(times.first_token_s) == [18, 67]
    assert ms(times.finish_s) == [109, 78]
    assert times.swaps.tolist() == [1, 0]
    assert ms(times.longest_gap_s) == [58, 11]


def test_a_starving_request_is_promoted():
    # B 15 26 37 | check in iteration 4, at 37 ms: A waited 30, runs next | B 48 |
    # 48-83 A:25 | 94 A ends | B 105 116 127 138 149 ends
    policy = ONE_SEAT + ",starvation_s=0.03,starvation_iterations=2"

    times = served(policy, [(0, 25, 2), (0, 5, 9)], max_num_seqs=1)

    assert ms(times.first_token_s) == [83, 15]
    assert ms(times.finish_s) == [94, 149]


def test_the_lowest_of_limited_levels_has_no_quantum_which_no_source_decides():
    # A goes down to level 1, the lowest, at 26 ms, and stays before B, which joins
    # there: 0-15 A | 26 A | 37 48 59 70 A ends | 70-105 B:25 | 116 B ends
    times = served(ONE_SEAT + ",levels=2", [(0, 5, 6), (27, 25, 2)], max_num_seqs=1)

    assert ms(times.finish_s) == [70, 116]


def test_proactive_swapping_keeps_a_block_free_and_copies_beside_iterations():
    # One of 5 blocks stays free. 0-18 A:8 | 29 A, level 1, 3 blocks | B needs 2, and 1
    # more free: A out until 38, B has clean blocks: 29-47 B:8 | 58 B, level 1, first
    # there | 69 B ends | 69-83 C:4, A in until 78 | 94 A | 105 A ends
    policy = "fastserve:base_quantum_s=0.02"
    three = [(0, 8, 4), (19, 8, 3), (60, 4, 1)]

    times = served(policy, three, 5, max_num_seqs=1, kv_block_bytes=3 * 10**6)

    assert ms(times.first_token_s) == [18, 47, 83]
    assert ms(times.finish_s) == [105, 69, 83]
    assert times.swaps.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    "wrong", ["ratio=0.5", "levels=0", "host_share=2", "proactive=2", "starvation_s=-1"]
)
def test_a_wrong_setting_is_refused(wrong):
    with pytest.raises(InputError, match=wrong.partition("=")[0]):
        parse_scheduler(f"fastserve:{wrong}")


def test_a_prompt_above_the_budget_is_refused():
    with pytest.raises(InputError, match=r"row 1 with 65 prompt.*budget is 64 tokens"):
        served("fastserve", [(0, 65, 1)])


def test_a_request_that_leaves_no_block_for_each_seat_is_refused():
    with pytest.raises(InputError, match="it keeps 8 of 10 blocks free"):
        served("fastserve", [(0, 8, 2)], 10)

    served("fastserve:proactive=0", [(0, 8, 2)], 10)


def test_a_full_host_is_one_clear_line():
    with pytest.raises(InputError, match=r"host memory.*full: host_kv_gib is 0\.0"):
        served(ONE_SEAT, [(0, 8, 5), (31, 8, 2)], 4, max_num_seqs=1, host_kv_gib=0.0)


def test_its_own_time_is_added_to_every_iteration():
    times = served("fastserve:overhead_s=0.001", [(0, 5, 3)])

    assert ms(times.finish_s) == [15 + 11 + 11 + 3]
