"""Cases of Orca worked by hand."""

from worked import THREE, ms, served


def test_a_prompt_joins_the_decodes_when_there_is_a_seat():
    # 0-14 A:4 | 14-31 A B:6 | 31-43 A B, both end | 43-55 C:2 | 66 | 77 | 88
    times = served("orca:max_len=16", THREE, max_num_seqs=2)

    assert ms(times.first_token_s) == [14, 31, 55]
    assert ms(times.finish_s) == [43, 43, 88]
    assert ms(times.longest_gap_s) == [17, 12, 11]


def test_a_request_waits_for_the_room_of_the_longest():
    # Room of 4 blocks, KV 8: 0-18 A B, B ends | 18-33 A C:4 | 33-45 A C
    times = served("orca:max_len=16", [(0, 4, 3), (0, 4, 1), (0, 4, 2)], blocks=8)

    assert ms(times.finish_s) == [45, 18, 45]
    assert ms(times.first_token_s) == [18, 18, 33]
    assert times.preemptions.tolist() == [0, 0, 0]
