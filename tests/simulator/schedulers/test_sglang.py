"""Cases of SGLang worked by hand; a page is one token."""

import numpy as np
import pytest
from worked import TABLES, THREE, engine, ms, served

from capplan.errors import InputError
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of


def pages(name, requests, tokens=64, **settings):
    """Serve with so many tokens of KV, in pages of one token."""
    return served(name, requests, blocks=tokens, block_size=1, **settings)


def test_prompts_run_in_iterations_of_their_own():
    # 0-14 A | 14-30 B alone | 30-42 C alone | 42-55 all, B ends | 55-67 A ends | 67-78
    times = pages("sglang", THREE)

    assert ms(times.first_token_s) == [14, 30, 42]
    assert ms(times.finish_s) == [67, 55, 78]


def test_decodes_wait_for_all_chunks_of_a_prompt():
    # 0-14 A | 14-32 B:8 | 32-50 B:8 | 50-64 B:4 | 64-76 A B, B ends | 87 | 98 A ends
    times = pages("sglang", [(0, 4, 4), (1, 20, 2)], max_num_batched_tokens=8)

    assert ms(times.finish_s) == [98, 76]
    assert ms(times.longest_gap_s) == [62, 12]


def test_the_decode_with_the_longest_prompt_of_the_fewest_answered_is_retracted():
    # 0-16 A | B: 5+6+1 = 12 < 14 - 7/4: 16-31 B | 43 | 55 | 67 | 79 A B | 1 token free,
    # 2 needed; both have 5 answer tokens, A's prompt is longer: 79-90 B ends |
    # 90-111 A:11 | 122 | 133
    requests = [(0, 6, 8), (1, 5, 6)]
    times = pages("sglang:init_ratio=0.25", requests, tokens=20)

    assert ms(times.finish_s) == [133, 90]
    assert times.preemptions.tolist() == [1, 0]


def test_the_clients_limit_keeps_a_request_out():
    # B: 4+20+1 = 25 is not below 26 - 19 * 0.7 = 12.7: it waits for A's end at 36
    requests = [(0, 4, 3), (1, 4, 3)]
    limited = pages("sglang", requests, tokens=30, max_new_tokens=20)
    exact = pages("sglang", requests, tokens=30)

    assert ms(limited.finish_s) == [36, 72]
    assert ms(limited.first_token_s) == [14, 50]
    assert ms(exact.first_token_s) == [14, 28]


def test_a_mixed_iteration_lets_decodes_run_beside_a_prompt():
    # 0-14 A | 14-32 A B:7 (10 + 7 + 1) | 32-50 A B:7@7 | 50-67 A B:6@14, A ends
    times = pages("sglang:mixed=1", [(0, 4, 4), (1, 20, 1)], max_num_batched_tokens=8)

    assert ms(times.finish_s) == [67, 67]
    assert ms(times.longest_gap_s) == [18, 0]


@pytest.mark.parametrize(("tokens", "served_"), [(9, False), (10, True)])
def test_a_request_that_no_empty_engine_admits_is_refused(tokens, served_):
    # 4 + 4 + 1 page = 9 is to be below the KV; again with 3 tokens of it: 7 + 1 + 1
    if served_:
        assert ms(pages("sglang", [(0, 4, 4)], tokens).finish_s) == [47]
    else:
        with pytest.raises(InputError, match="its prompt is never admitted"):
            pages("sglang", [(0, 4, 4)], tokens)


def test_with_overlap_an_arrival_waits_for_the_iteration_after_the_next():
    # 0-14 A | 14-25 A, put together at 0 | B, there at 5, is seen at 14: 25-41 B alone
    # | 41-53 A B, both end
    requests = [(0, 4, 3), (5, 6, 2)]
    times = pages("sglang", requests, async_scheduling=True)

    assert ms(times.first_token_s) == [14, 41]
    assert ms(times.finish_s) == [53, 53]


def shared_pages(name, requests, tokens, prefixes):
    """Serve requests of one group that begin with so many equal tokens, 0: of none."""
    arrival_ms, prompts, outputs = np.array(requests).T
    trace = Trace(
        prompts,
        outputs,
        arrival_ms / 1e3,
        prefix_group=np.where(np.array(prefixes) > 0, 0, -1),
        prefix_tokens=prefixes,
    )
    given = engine(tokens, block_size=1, prefix_caching=True)
    return simulate(trace, fleet_of(TABLES, given, 1, scheduler=name)).table


def test_a_prefix_is_found_by_the_iteration_after_the_one_that_computed_it():
    # 0-22 A:6 B:6, B ends | 22-33 A ends | 33-45 C:2 (4 are found)
    times = shared_pages("sglang", [(0, 6, 2), (0, 6, 1), (30, 6, 1)], 64, [4, 4, 4])

    assert ms(times.finish_s) == [33, 22, 45]
    assert times.cached_tokens.tolist() == [0, 0, 4]


@pytest.mark.parametrize(("prefix", "first_ms"), [(4, 50), (0, 62)])
def test_what_two_computed_at_once_is_held_once(prefix, first_ms):
    # 0-22 A B hold 12 tokens, 8 where 4 are the same. C wants 18 + 1 + 1 = 20 of less
    # than is free: 32 - 8 = 24 let it in, 22-50 C; 32 - 12 = 20 do not, 22-34 A B, A
    # ends | 34-62 C
    requests = [(0, 6, 2), (0, 6, 5), (1, 18, 1)]
    times = shared_pages("sglang:init_ratio=0", requests, 32, [prefix, prefix, 0])

    assert ms(times.first_token_s[2:]) == [first_ms]


def test_with_room_for_all_it_is_vllm_v0():
    # What differs is admission by the answer, cut prompts and who loses its KV.
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = int(rng.integers(1, 12))
        arrivals = np.sort(rng.integers(0, 60, n))
        requests = [(at, *rng.integers(1, 6, 2)) for at in arrivals]
        alike = [pages(name, requests, tokens=4000) for name in ("sglang", "vllm-v0")]

        assert ms(alike[0].finish_s) == alike[1].finish_s * 1e3
        assert ms(alike[0].longest_gap_s) == alike[1].longest_gap_s * 1e3
