"""Cases of request-level scheduling worked by hand."""

from worked import THREE, ms, served


def test_a_batch_ends_before_the_next_begins():
    # 0-14 A:4 | 25 A | 36 A ends | 36-54 B:6 C:2 | 54-66 B C, B ends | 77 | 88
    times = served("static:max_len=16", THREE, max_num_seqs=2)

    assert ms(times.first_token_s) == [14, 54, 54]
    assert ms(times.finish_s) == [36, 66, 88]


def test_room_of_one_that_is_done_is_not_used_before_the_batch_ends():
    # Room of 4 blocks, KV 8: 0-18 A B, B ends | 29 | 40 A ends | 40-54 C:4 | 65
    times = served("static:max_len=16", [(0, 4, 3), (0, 4, 1), (0, 4, 2)], blocks=8)

    assert ms(times.finish_s) == [40, 18, 65]


def test_padded_requests_finish_with_the_longest_of_their_batch():
    # 0-14 A:4 | 25 | 36 A ends | 36-54 B:6 C:2 | 66 | 78 | 90, B computed throughout
    times = served("static:max_len=16,padded=1", THREE, max_num_seqs=2)

    assert ms(times.finish_s) == [36, 90, 90]
    assert ms(times.first_token_s) == [14, 54, 54]
    assert times.output_tokens.tolist() == [3, 2, 4]


def test_a_padded_request_of_one_token_decodes_too():
    # 0-18 A B | 30 | 42 both end | 42-56 C:4 | 67 C ends
    times = served(
        "static:max_len=16,padded=1", [(0, 4, 3), (0, 4, 1), (0, 4, 2)], blocks=8
    )

    assert ms(times.finish_s) == [42, 42, 67]
