"""llm-d's scores and its old metrics, worked by hand."""

import numpy as np
import pytest
from asking import Asked
from worked import TABLES, engine

from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.routers import parse_router
from capplan.simulator.routers.llm_d import score
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

HITS = (1.0, 0.0, 0.5)
KV_USES = (0.5, 0.1, 0.3)


@pytest.mark.parametrize(
    ("weights", "waiting", "hits", "expected"),
    [
        # Defaults, and the second and third prompt as cached as 0 and 4 of 8 blocks.
        ((2, 2, 3, 0), (4, 0, 2), HITS, (4.0, 3.8, 3.9)),
        ((1, 1, 2, 0), (4, 0, 2), HITS, (2.5, 1.9, 2.2)),
        ((1, 1, 2, 0), (40, 0, 2), HITS, (2.5, 1.9, 2.65)),  # the third wins
        ((1, 1, 2, 0), (3, 3, 3), HITS, (3.5, 1.9, 2.7)),  # equal queues count as 1
        # Its estimate configuration, prefix 1 and load 1: 0.5 where none waits, half
        # of it at 64, none from 128 on.
        ((0, 0, 1, 1), (64, 0, 128), HITS, (1.25, 0.5, 0.5)),
        ((0, 0, 1, 1), (200, 0, 0), HITS, (1.0, 0.5, 1.0)),
    ],
)
def test_scores_are_the_weighted_sums_worked_by_hand(weights, waiting, hits, expected):
    most, fewest = max(waiting), min(waiting)

    found = [
        score(weights, most, fewest, *replica)
        for replica in zip(waiting, KV_USES, hits, strict=True)
    ]

    assert found == pytest.approx(expected)


def test_arrivals_within_one_refresh_all_go_to_the_queue_that_was_shorter_then():
    # One seat on each of two replicas. Ten requests come at 0, when all looks alike,
    # and four after the look at 100 ms: seen afresh, two would make the queues equal.
    arrival_s = np.array([*10 * [0.0], 0.101, 0.102, 0.103, 0.104])
    trace = Trace(14 * [4], 14 * [200], arrival_s)
    engine_of_one = engine(max_num_seqs=1, blocks=256)

    def served_by(router):
        fleet = fleet_of(TABLES, engine_of_one, 2, router=router)
        return np.asarray(simulate(trace, fleet, seed=2).times.replica)

    stale = served_by("llm-d:kv=0,refresh=50ms")
    fresh = served_by("llm-d:kv=0,refresh=0s")

    before = np.bincount(stale[:10], minlength=2)
    assert abs(before[0] - before[1]) == 2
    assert stale[10:].tolist() == 4 * [int(np.argmin(before))]
    assert abs(np.diff(np.bincount(fresh, minlength=2))) <= 1


def test_two_arrivals_at_one_look_go_to_the_same_queue_whatever_the_draw():
    # RT-4: both see (0, 1) waiting. Looked at in between, it is (1, 1): the draw.
    asked = Asked("llm-d:kv=0,prefix=0")

    stale = [asked.ask(9, loads=(0, 1), draw=0.99), asked.ask(9, draw=0.99)]
    fresh = [asked.ask(9, loads=(1, 1), draw=draw) for draw in (0.49, 0.5)]

    assert stale == [0, 0]
    assert fresh == [0, 1]


def test_the_approximate_index_knows_what_was_sent_and_reads_no_cache():
    # Blocks of 4 tokens; a prompt of 9 has 3, of which its group has two.
    asked = Asked("llm-d:index=approximate,queue=1,kv=0")
    assert asked.ask(9, 8, loads=(0, 5)) == 0

    assert asked.ask(10, 8, loads=(5, 0)) == 0  # 3 * 2/3 against 1
    assert asked.ask(12, 4, loads=(5, 0), draw=0.99) == 1  # 3 * 1/3 against 1: drawn
    assert asked.ask(3, 3, loads=(5, 0)) == 1  # it fills no block


def test_the_last_part_of_a_prompt_is_a_block_of_equal_prompts():
    asked = Asked("llm-d:index=approximate,queue=1,kv=0,prefix=1")
    assert asked.ask(5, 5, loads=(0, 5)) == 0

    assert asked.ask(6, 6, loads=(5, 0)) == 1  # 1/2 against 1
    assert asked.ask(5, 5, loads=(0, 0), draw=0.99) == 0  # 2/2 against 1/2


def test_the_last_part_alone_is_no_match():
    asked = Asked("llm-d:index=approximate,queue=1,kv=0,capacity=1")
    assert asked.ask(5, 5, loads=(0, 5)) == 0  # of two blocks the first has left

    assert asked.ask(5, 5, loads=(5, 0)) == 1


def test_at_most_so_many_blocks_of_a_prompt_are_looked_up():
    asked = Asked("llm-d:index=approximate,queue=1,kv=0,match=1")
    asked.ask(8, 4, loads=(0, 5))

    assert asked.ask(400, 4, loads=(5, 0)) == 0  # 3 * 1/1


def test_a_prompts_first_blocks_leave_first_and_the_rest_may_still_match():
    # Of 3 blocks 0 keeps the last two, so that nobody has the first and 1 is chosen. It
    # has the first from then on: 1/3 of the next prompt, of which 0 has 2/3.
    asked = Asked("llm-d:index=approximate,queue=1,kv=0,capacity=2")
    assert asked.ask(12, 12, loads=(0, 5)) == 0

    assert asked.ask(4, 4, loads=(5, 0)) == 1
    assert asked.ask(12, 12, loads=(0, 0)) == 0


def test_users_are_answered_at_the_instants_of_looks():
    # Every answer comes at a look. That of 3.5 s is the 70th of 50 ms, but the number
    # after 3.5 divided by 0.05 is rounded to 70: as if that look were not before it.
    tables = linear_tables(0.5, 0, 0, 0, 0, max_batch=8, max_tokens=64)
    trace = Trace(np.full(9, 4), np.full(9, 1), users=1, think_s=np.zeros(9))

    table = simulate(trace, fleet_of(tables, engine(), router="llm-d")).table

    assert table.finish_s == pytest.approx(0.5 * np.arange(1, 10))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("llm-d:refresh=fast", "a time from 0s to 3600s"),
        ("llm-d:index=exact", "expected one of precise, approximate"),
        ("llm-d:weight=2", "not a setting of llm-d"),
        ("jsq:refresh=1s", "it has none"),
        ("llmd", "did you mean llm-d"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(given, message):
    with pytest.raises(InputError, match=message):
        parse_router(given)


def test_a_router_is_written_as_it_is_read():
    assert str(parse_router("llm-d:refresh=20ms")) == (
        "llm-d:queue=2.0,kv=2.0,prefix=3.0,load=0.0,refresh=0.02s,index=precise,"
        "block=0,match=256,capacity=0"
    )
