"""Cases of shortest remaining first worked by hand."""

from worked import ms, served

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of


def test_the_request_with_least_left_has_the_seat():
    # ALISE, Fig. 4: iterations of 0.5 s, one seat. A 1-2 | B 2-3 | C 3-4 ends | B 4-5.5
    # ends | A 5.5-8 ends: mean response (7 + 3.5 + 1) / 3 = 3.83 s; 4.5 s in order.
    tables = linear_tables(0.5, 0, 0, 0, 0, max_batch=1, max_tokens=64)
    engine = EngineSettings(
        max_num_batched_tokens=64, max_num_seqs=1, kv_blocks=9, async_scheduling=False
    )
    trace = Trace([1, 1, 1], [7, 5, 2], [1.0, 2.0, 3.0])

    ideal = simulate(trace, fleet_of(tables, engine, 1, scheduler="oracle")).table
    in_order = simulate(trace, fleet_of(tables, engine, 1, scheduler="vllm-v1")).table

    assert ideal.finish_s.tolist() == [8.0, 5.5, 4.0]
    assert in_order.finish_s.tolist() == [4.5, 7.0, 8.0]
    assert ideal.paused_s.tolist() == [3.5, 1.0, 0.0]


def test_the_holder_with_most_left_computes_again():
    # 0-21 A:6 B:5 | 33 | 45 A@8 wants a block. Both have 3 left and B is newer: A out,
    # 45-56 B@7 | 67 | 78 B ends | 78-97 A:9 | 108 | 119
    times = served("oracle", [(0, 6, 6), (0, 5, 6)], blocks=4)

    assert times.preemptions.tolist() == [1, 0]
    assert ms(times.finish_s) == [119, 78]
