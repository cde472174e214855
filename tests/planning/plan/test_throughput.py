"""What a fleet serves beside what it could: shares of the same tokens."""

import pytest

from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.load.traffic_over_time import traffic_over_time
from capplan.planning.plan.throughput import BUSIEST, PLANNED, SATURATED, WITHIN_SLO
from capplan.planning.plan.throughput import throughput as throughput_of
from capplan.planning.settings.plan import SimulateSettings


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """100 requests of 10 and 20 tokens, one every 0.1 s, on two replicas."""
    path = tmp_path_factory.mktemp("t") / "own.csv"
    rows = "".join(f"{k / 10},10,20\n" for k in range(101))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    return simulate_deployment(
        SimulateSettings(
            trace=str(path),
            llm="Llama-3.1-8B",
            gpu="H100-SXM",
            tp=1,
            replicas=2,
            slo="tpot=50ms",
        )
    )


def test_tokens_are_the_rate_times_the_mean_lengths(run):
    (row, *_) = throughput_of(run, None, None)

    assert row.what == PLANNED
    assert row.rate_per_s == pytest.approx(10)
    assert row.prompt_tokens_per_s == pytest.approx(100)
    assert row.output_tokens_per_s == pytest.approx(200)


def test_what_it_could_is_that_of_all_its_replicas_and_the_share_is_used(run):
    rows = {row.what: row for row in throughput_of(run, ReplicaLoad(20.0, 3.0), None)}

    row = rows[WITHIN_SLO]
    assert row.rate_per_s == 40
    assert row.output_tokens_per_s == pytest.approx(800)
    assert row.used_share == pytest.approx(0.25)


def test_at_most_is_what_the_utilisation_is_reckoned_against(run):
    rows = {row.what: row for row in throughput_of(run, None, None)}

    used = run.judgement.steadiness.utilisation
    assert rows[SATURATED].used_share == pytest.approx(used)
    assert rows[SATURATED].rate_per_s == pytest.approx(10 / used)


def test_the_busiest_window_is_that_of_the_traffic(run):
    from capplan.workload.readers import read_trace

    traffic = traffic_over_time(read_trace(run.trace_source))

    rows = {row.what: row for row in throughput_of(run, None, traffic)}

    assert rows[BUSIEST].width_s == traffic.width_s
    assert rows[BUSIEST].rate_per_s == max(traffic.rate_per_s)
    assert rows[BUSIEST].used_share is None
