"""Cases of ALISE worked by hand: T0 = 1 ms, alpha = 0, beta = 11 ms, three levels.

Of the time left, the highest holds 40 ms and the next 80 ms.
"""

import numpy as np
import pytest
from worked import TABLES, engine, ms, served

from capplan.deployment.replica import replica
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.llm.catalog import llm
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ALISE = "alise:levels=3,base_s=0.04,predict_s=0"


def test_the_request_with_least_left_runs_first():
    # A has 104 ms left, level 2; 77 at 26 ms, level 1; B 27, level 0: 0-15 A | 26 A |
    # 26-41 B:5 | 52 B ends | A 63 74 85 96 107 118 129 ends
    times = served(ALISE, [(0, 5, 9), (20, 5, 2)], max_num_seqs=1)

    assert ms(times.first_token_s) == [15, 41]
    assert ms(times.finish_s) == [129, 52]


def test_kv_of_the_last_in_order_goes_to_the_host():
    # 0-18 A | 29 A | B first, 2 + 3 blocks are more than 4: A out, 15 ms | 44-62 B |
    # 73 B ends | A in, 15 ms | 99 A | 110 121 132 143 154 165 ends
    times = served(
        ALISE, [(0, 8, 9), (20, 8, 2)], 4, max_num_seqs=2, kv_block_bytes=5 * 10**6
    )

    assert ms(times.first_token_s) == [18, 62]
    assert ms(times.finish_s) == [165, 73]
    assert times.swaps.tolist() == [1, 0]
    assert ms(times.longest_gap_s) == [70, 11]


def test_a_prediction_that_was_too_short_is_doubled():
    # A, predicted 2: 15, 26; now 4, 22 ms left, level 0, earlier: 37, 48; now 8, 44 ms
    # left, level 1: 48-63 B | 74 B ends | A 85 96 ends
    trace = Trace(
        [5, 5], [6, 2], [0.0, 0.001], predicted_output_tokens=np.array([2, 2])
    )

    times = simulate(
        trace, fleet_of(TABLES, engine(max_num_seqs=1), 1, scheduler=ALISE)
    ).table

    assert ms(times.first_token_s) == [15, 63]
    assert ms(times.finish_s) == [96, 74]


FOUR = [(0, 5, 5), (0, 5, 3), (30, 5, 3), (60, 5, 3)]


def test_short_requests_may_keep_a_longer_one_waiting():
    # A has 60 ms left, level 1, the others 38, level 0: B 15 26 37 | C 52 63 74 |
    # D 89 100 111 | A 126 137 148 159 170
    times = served(ALISE, FOUR, max_num_seqs=1)

    assert ms(times.finish_s) == [170, 37, 74, 111]


def test_ageing_lets_it_rise():
    # A rises at 52 ms and is older than C: B 37 | C:5 37-52 | A 67 78 89 100 111 |
    # C 122 133 | D 148 159 170
    times = served(ALISE + ",ageing_s=0.04", FOUR, max_num_seqs=1)

    assert ms(times.first_token_s) == [67, 15, 52, 148]
    assert ms(times.finish_s) == [111, 37, 133, 170]


def test_the_next_are_fetched_beside_iterations():
    # A 18 29 | B's 3 and A's 3 blocks are more than 5: A out until 44, B waits for its
    # blocks: 44-66 B:12 ends | 66-80 C:4, A in until 81 | 91 C ends | A 102 ... 168
    three = [(0, 8, 9), (20, 12, 1), (50, 4, 2)]

    times = served(ALISE, three, 5, max_num_seqs=1, kv_block_bytes=5 * 10**6)

    assert ms(times.finish_s) == [168, 66, 91]
    assert times.swaps.tolist() == [1, 0, 0]


def test_newcomers_wait_where_running_requests_are_not_displaced():
    # A 15 26 ... 103 ends | 103-118 B:5 | 129 B ends
    times = served(ALISE + ",defer=1", [(0, 5, 9), (20, 5, 2)], max_num_seqs=1)

    assert ms(times.finish_s) == [103, 129]


def test_kv_is_computed_again_where_it_is_not_swapped():
    # 0-18 A | 29 A evicted | 29-47 B:8 | 58 B ends | 58-78 A:10 | 89 ... 144 A ends
    policy = ALISE + ",swap=0"

    times = served(policy, [(0, 8, 9), (20, 8, 2)], 4, max_num_seqs=2, kv_block_bytes=0)

    assert ms(times.finish_s) == [144, 58]
    assert times.preemptions.tolist() == [1, 0]


def test_decodes_may_stall_for_prompts():
    # 0-14 A:4 | 14-30 B:6 alone | 30-42 A B, B ends | 53 A ends
    times = served(ALISE + ",stall=1", [(0, 4, 3), (5, 6, 2)])
    mixed = served(ALISE, [(0, 4, 3), (5, 6, 2)])

    assert ms(times.finish_s) == [53, 42]
    assert ms(times.longest_gap_s) == [28, 12]
    assert ms(mixed.finish_s) == [43, 43]


def test_predictions_and_its_own_time_cost_what_they_are_given():
    times = served("alise:overhead_s=0.001", [(0, 5, 3)])

    assert ms(times.finish_s) == [4.5 + 15 + 11 + 11 + 3]


@pytest.mark.parametrize("wrong", ["levels=0", "ratio=0.9", "defer=2", "t0_s=-2"])
def test_a_wrong_setting_is_refused(wrong):
    with pytest.raises(InputError, match=wrong.partition("=")[0]):
        parse_scheduler(f"alise:{wrong}")


def test_what_the_budget_cannot_hold_is_refused():
    served("alise", [(0, 60, 9)])

    with pytest.raises(InputError, match=r"not cut, also when computed again"):
        served("alise:swap=0", [(0, 60, 9)])
    with pytest.raises(InputError, match=r"row 1 with 65 prompt.*budget is 64 tokens"):
        served("alise", [(0, 65, 1)])


def test_a_full_host_is_one_clear_line():
    two = [(0, 8, 9), (20, 8, 2)]

    with pytest.raises(InputError, match="host memory for swapped KV is full"):
        served(ALISE, two, 4, max_num_seqs=2, host_kv_gib=0.0)


def test_kv_of_a_byte_halves_what_is_copied_and_doubles_the_blocks():
    full = replica(llm("Llama-3.1-8B"), gpu("H100")).engine
    int8 = replica(llm("Llama-3.1-8B"), gpu("H100"), kv_dtype="fp8").engine

    assert int8.block_link_s == full.block_link_s / 2
    assert int8.kv_blocks // 2 == full.kv_blocks
