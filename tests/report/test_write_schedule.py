"""The schedule of two requests on one replica, worked by hand.

An iteration takes 10 ms, scheduling is synchronous. Request 0 arrives at 0 s and
request 1 at 5 ms, each of four prompt and two output tokens; ten blocks are free.

======  ========  ==============================
 start  iteration requests
======  ========  ==============================
  0 ms  prefill   0: its prompt, first token
 10 ms  mixed     0: last token, 1: its prompt
 20 ms  decode    1: last token
======  ========  ==============================
"""

import csv
import gzip
import json

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.report.writers.schedule import write_iterations, write_trace_events
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of


def simulated(arrival_s, replica_count=1):
    count = len(arrival_s)
    trace = Trace(np.full(count, 4), np.full(count, 2), np.array(arrival_s))
    return simulate(
        trace,
        fleet_of(
            linear_tables(0.01, 0, 0, 0, 0, max_batch=8, max_tokens=64),
            EngineSettings(
                max_num_batched_tokens=64,
                max_num_seqs=8,
                kv_blocks=11,
                async_scheduling=False,
            ),
            replica_count,
            router="round-robin",
        ),
        record_iterations=True,
    )


@pytest.fixture(scope="module")
def simulation():
    return simulated([0.0, 0.005])


def rows_of(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


def test_every_iteration_is_a_row(simulation, tmp_path):
    path = write_iterations(simulation.iterations, tmp_path / "it.csv")

    assert path.read_text().splitlines() == [
        "it,sched_s,start_s,end_s,ctx_reqs,ctx_tokens,gen_reqs,gen_ctx,running,"
        "waiting,free_blocks,preempted,sched",
        "0,0.0,0.0,0.01,1,4,0,0,1,0,9,0,r0:0+4",
        "1,0.01,0.01,0.02,1,4,1,5,2,0,8,0,r0:4+1;r1:0+4",
        "2,0.02,0.02,0.03,0,0,1,5,1,0,9,0,r1:4+1",
    ]


def test_iterations_of_several_replicas_are_numbered_on_each(tmp_path):
    simulation = simulated([0.0, 0.005], replica_count=2)

    rows = rows_of(write_iterations(simulation.iterations, tmp_path / "it.csv", 2))

    # Each replica has one request: a prefill, then a decode.
    numbers = {replica: [] for replica in "01"}
    for row in rows:
        numbers[row["replica"]].append((row["it"], row["sched"]))
    assert numbers == {
        "0": [("0", "r0:0+4"), ("1", "r0:4+1")],
        "1": [("0", "r1:0+4"), ("1", "r1:4+1")],
    }


@pytest.fixture
def events(simulation, tmp_path):
    path = tmp_path / "events.json"
    write_trace_events(simulation.iterations, simulation.times, path)
    return json.loads(path.read_text())["traceEvents"]


def test_each_iteration_is_a_slice_named_by_its_phase(events):
    slices = [event for event in events if event["ph"] == "X"]

    assert [event["name"] for event in slices] == ["prefill", "mixed", "decode"]
    assert [event["ts"] for event in slices] == pytest.approx([0, 10_000, 20_000])
    assert [event["dur"] for event in slices] == pytest.approx([10_000] * 3)
    assert slices[1]["args"] == {"prefill_tokens": 4, "decoding": 1}


def test_queue_and_free_blocks_are_counted_at_each_scheduling(events):
    counters = [event for event in events if event["ph"] == "C"]

    queue = [event["args"] for event in counters if event["name"] == "queue"]
    blocks = [event["args"]["blocks"] for event in counters if "KV" in event["name"]]
    assert [args["running"] for args in queue] == [1, 2, 1]
    assert [args["waiting"] for args in queue] == [0, 0, 0]
    assert blocks == [9, 8, 9]


@pytest.mark.parametrize(
    ("request_index", "times_us"),
    [(0, [0, 0, 0, 10, 10, 20]), (1, [5, 10, 10, 20, 20, 30])],
)
def test_each_request_waits_prefills_and_decodes(events, request_index, times_us):
    own = [event for event in events if event.get("id") == request_index]

    assert [(event["ph"], event["name"].split()[1]) for event in own] == [
        (ph, phase) for phase in ("waiting", "prefill", "decode") for ph in "be"
    ]
    assert [event["ts"] / 1000 for event in own] == pytest.approx(times_us)


def test_every_replica_is_a_process_with_its_name(tmp_path):
    simulation = simulated([0.0, 0.005], replica_count=2)
    path = tmp_path / "events.json.gz"

    write_trace_events(simulation.iterations, simulation.times, path)

    document = json.loads(gzip.decompress(path.read_bytes()))
    names = [
        (event["pid"], event["args"]["name"])
        for event in document["traceEvents"]
        if event["ph"] == "M"
    ]
    assert names == [(0, "replica 0"), (1, "replica 1")]
    assert document["displayTimeUnit"] == "ms"
