"""The requests that a fleet is judged by: read, long enough, with a warm-up."""

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.errors import CapplanWarning, HorizonWarning, InputError
from capplan.latency.contract import linear_tables
from capplan.planning.load.traffic import (
    judged_traffic,
    read_traffic,
    requests_wanted,
)
from capplan.planning.load.unserved import without_oversized
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace

ENGINE = EngineSettings(kv_blocks=101, block_size=16)  # holds 1,600 tokens


# An iteration takes 10 ms, and 0.1 ms more for each prompt token in it.
TABLES = linear_tables(10e-3, 1e-4, 0, 0, 0, max_batch=1024, max_tokens=8192)
CONFIGURATION = Configuration(ENGINE, TABLES, "H100-SXM")


def rng():
    return np.random.default_rng(0)


def own(tmp_path, rows=2000, gap_s=0.1, output=20):
    """A trace with times of its own: constant gaps."""
    path = tmp_path / "own.csv"
    lines = [f"{k * gap_s:.6f},100,{output}" for k in range(rows)]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    return path


def evenly(n, duration_s, output=11):
    return Trace(np.full(n, 100), np.full(n, output), np.linspace(0.0, duration_s, n))


def test_times_of_the_trace_are_no_process(tmp_path):
    load = read_traffic(PlanSettings(trace=own(tmp_path)), rng())

    assert load.process is None
    assert load.trace.arrival_s[10] == pytest.approx(1.0)


def test_a_rate_rescales_times_and_draws_none(tmp_path):
    load = read_traffic(PlanSettings(trace=own(tmp_path), rate=20.0), rng())

    assert load.process is None
    assert load.trace.rate_per_s == pytest.approx(20.0)
    assert np.ptp(np.diff(load.trace.arrival_s)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("arrivals", "process"), [(None, "poisson"), ("gamma:cv=2", "gamma:cv=2")]
)
def test_requests_without_times_are_drawn(arrivals, process):
    settings = PlanSettings(
        workload="synthetic:prompt=10,output=5,n=4000", rate=50.0, arrivals=arrivals
    )

    load = read_traffic(settings, rng())

    assert load.process == process
    assert load.trace.rate_per_s == pytest.approx(50.0, rel=0.15)


def test_an_arrival_process_replaces_the_times_of_a_trace(tmp_path):
    settings = PlanSettings(trace=own(tmp_path), arrivals="poisson")

    load = read_traffic(settings, rng())

    assert load.process == "poisson"
    assert np.ptp(np.diff(load.trace.arrival_s)) > 0.1


def test_without_times_and_rate_the_flags_are_named():
    settings = PlanSettings(workload="synthetic:prompt=10,output=5")

    with pytest.raises(InputError, match="no arrival times; give --rate R"):
        read_traffic(settings, rng())


def test_all_requests_of_a_replayed_trace_count(tmp_path):
    slo = parse_slo("ttft=1s,tpot=50ms")

    load = judged_traffic(
        PlanSettings(trace=own(tmp_path)), slo, rng(), [CONFIGURATION]
    )

    assert load.warmup_s == 0.0
    assert len(load.trace) == 2000


def test_a_short_replayed_trace_is_left_as_it_is_and_said_so(tmp_path):
    settings = PlanSettings(trace=own(tmp_path, rows=50))

    with pytest.warns(HorizonWarning, match="see the 95 % interval"):
        load = judged_traffic(settings, parse_slo("ttft=1s"), rng(), [CONFIGURATION])

    assert len(load.trace) == 50


def test_a_short_replayed_trace_is_extended_when_asked(tmp_path):
    settings = PlanSettings(trace=own(tmp_path, rows=50), extend=True)

    with pytest.warns(HorizonWarning, match="extended by resampling"):
        load = judged_traffic(settings, parse_slo("ttft=1s"), rng(), [CONFIGURATION])

    assert len(load.trace) == 1000
    assert np.diff(load.trace.arrival_s).max() == pytest.approx(0.1)


DRAWN = PlanSettings(workload="synthetic:prompt=10,output=11,n=200", rate=50.0)


def test_the_first_sample_leaves_out_three_stays_of_warm_up():
    # Alone: prefill 10 + 1 ms and 10 decode iterations of 10 ms, 0.111 s.
    load = judged_traffic(DRAWN, parse_slo("ttft=1s"), rng(), [CONFIGURATION])

    assert len(load.trace) == 1000
    assert load.warmup_s == pytest.approx(3 * 0.111)
    arrival_s = load.trace.arrival_s
    assert load.counted().sum() == (arrival_s >= arrival_s[0] + 0.333).sum()


def test_a_stay_is_weighted_by_itself(tmp_path):
    # Alone 0.111 s and 10.011 s, as often: a batch sees (a² + b²) / (a + b) = 9.90 s.
    path = tmp_path / "own.csv"
    path.write_text("prompt_tokens,output_tokens\n" + "10,11\n10,1001\n" * 100)
    settings = PlanSettings(trace=path, rate=50.0)

    load = judged_traffic(settings, parse_slo("ttft=1s", 0.9), rng(), [CONFIGURATION])

    assert len(load.trace) == np.ceil(50 * 10 * 9.90237) == 4952


def test_the_warm_up_is_at_most_a_fifth_of_the_trace(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("prompt_tokens,output_tokens\n" + "10,1001\n" * 200)
    settings = PlanSettings(trace=path, rate=50.0, extend=False)

    with pytest.warns(HorizonWarning, match="see the 95 % interval"):
        load = judged_traffic(
            settings, parse_slo("ttft=30s,tpot=50ms"), rng(), [CONFIGURATION]
        )

    assert len(load.trace) == 200
    assert not load.is_resampled
    assert load.warmup_s == pytest.approx(load.trace.duration_s / 5)


@pytest.mark.parametrize("warm_up", ["10s", "0.5m"])
def test_a_warm_up_that_is_given_holds(warm_up):
    settings = DRAWN.model_copy(update={"warm_up": warm_up})

    load = judged_traffic(settings, parse_slo("ttft=1s"), rng(), [CONFIGURATION])

    assert load.warmup_s == {"10s": 10.0, "0.5m": 30.0}[warm_up]


def test_samples_have_the_rate_and_differ_but_come_again():
    load = judged_traffic(DRAWN, parse_slo("ttft=1s"), rng(), [CONFIGURATION])

    first, second = load.sample(0), load.sample(1)

    assert first.rate_per_s == pytest.approx(50.0, rel=1e-9)
    assert second.rate_per_s == pytest.approx(50.0, rel=1e-9)
    assert first.arrival_s.tolist() != second.arrival_s.tolist()
    assert load.sample(1) is second


@pytest.mark.parametrize("arrivals", ["poisson", "gamma:cv=6", "constant"])
def test_a_longer_stream_begins_with_the_shorter_one(arrivals):
    settings = DRAWN.model_copy(update={"arrivals": arrivals})
    load = judged_traffic(settings, parse_slo("ttft=1s"), rng(), [CONFIGURATION])

    short, long = load.sample(3, 20.0), load.sample(3, 200.0)

    n = len(short)
    assert short.arrival_s[0] == 0
    assert short.arrival_s[-1] < 20.0 <= long.arrival_s[n]
    assert short.arrival_s.tolist() == long.arrival_s[:n].tolist()
    assert short.output_tokens.tolist() == long.output_tokens[:n].tolist()


def test_the_rate_of_a_stream_is_left_to_chance():
    load = judged_traffic(DRAWN, parse_slo("ttft=1s"), rng(), [CONFIGURATION])

    counts = [len(load.sample(index, 100.0)) for index in range(40)]

    # Poisson: 5,000 ± 71.
    assert abs(np.mean(counts) - 5000) < 4 * 71 / np.sqrt(40)
    assert 40 < np.std(counts) < 110


def test_without_an_slo_requests_are_taken_as_they_are():
    settings = PlanSettings(workload="synthetic:prompt=10,output=11,n=20", rate=50.0)

    load = judged_traffic(settings, None, rng(), [CONFIGURATION])

    assert len(load.trace) == 20


def test_a_class_without_an_slo_is_named(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,class\n0,10,5,chat\n1,10,5,code\n"
    )

    with pytest.raises(InputError, match="class 'code' of the trace has no SLO"):
        judged_traffic(
            PlanSettings(trace=path), parse_slo("chat:ttft=1s"), rng(), [CONFIGURATION]
        )


@pytest.mark.parametrize(
    ("attainment", "wanted"), [(0.99, 1000), (0.999, 10_000), (1.0, 1000), (0.75, 40)]
)
def test_ten_requests_must_be_expected_to_miss(attainment, wanted):
    slo = parse_slo("ttft=1s", attainment)

    assert requests_wanted(evenly(100, 10.0), slo, 0.0) == wanted


def test_the_first_sample_spans_ten_stays():
    # 100 requests/s and stays of 3 s: 30 s of arrivals.
    wanted = requests_wanted(evenly(101, 1.0), parse_slo("ttft=2s", 0.9), 3.0)

    assert wanted == 3000


def test_stays_want_no_more_than_200_000_requests():
    assert requests_wanted(evenly(100_001, 1.0), parse_slo("ttft=20s"), 60.0) == 200_000


def with_a_large_one():
    return Trace([10, 2000, 10], [5, 5, 5], [0.0, 1.0, 2.0], source="own.csv")


def test_an_oversized_request_is_named_with_its_row():
    with pytest.raises(InputError, match=r"1 of 3 requests.*row 2 with 2,000 prompt"):
        without_oversized(with_a_large_one(), [ENGINE], drop=False)


def test_an_oversized_request_is_dropped_when_asked():
    with pytest.warns(CapplanWarning, match="dropped"):
        trace = without_oversized(with_a_large_one(), [ENGINE], drop=True)

    assert trace.prompt_tokens.tolist() == [10, 10]


def test_a_request_that_one_engine_holds_is_kept():
    larger = EngineSettings(kv_blocks=1001, block_size=16)

    trace = without_oversized(with_a_large_one(), [ENGINE, larger], drop=False)

    assert len(trace) == 3


def test_a_trace_of_which_nothing_is_left_is_refused():
    trace = Trace([2000], [5], [0.0])

    with pytest.raises(InputError, match="none is left"):
        without_oversized(trace, [ENGINE], drop=True)


@pytest.mark.parametrize(
    ("option", "flag"),
    [
        ({"reader": "azure"}, "--reader"),
        ({"sharegpt_rule": "vllm"}, "--sharegpt-rule"),
        ({"salvage": True}, "--salvage"),
    ],
)
@pytest.mark.parametrize("workload", ["sharegpt", "synthetic:prompt=3,output=4,n=7"])
def test_how_to_read_a_file_is_refused_where_none_is_read(workload, option, flag):
    settings = PlanSettings(workload=workload, rate=1, **option)

    with pytest.raises(InputError, match=f"{flag} is for trace files"):
        read_traffic(settings, np.random.default_rng(0))


def limited(tmp_path):
    path = tmp_path / "limited.csv"
    rows = [f"{k * 0.1:.1f},100,20,{1 + k % 2},0.2" for k in range(1200)]
    header = "arrival_s,prompt_tokens,output_tokens,slo_ttft_s,slo_tbt_s"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_limits_of_requests_are_an_slo(tmp_path):
    settings = PlanSettings(trace=limited(tmp_path), slo="trace")

    load = judged_traffic(settings, settings.objective(), rng(), [CONFIGURATION])

    assert load.trace.class_names == (
        "all/ttft=1.0s,tbt=0.2s",
        "all/ttft=2.0s,tbt=0.2s",
    )


def test_limits_of_requests_that_are_not_judged_are_warned_of(tmp_path):
    settings = PlanSettings(trace=limited(tmp_path))

    with pytest.warns(CapplanWarning, match="own limits are not judged"):
        judged_traffic(settings, None, rng(), [CONFIGURATION])


def test_predictions_of_the_trace_are_kept_with_their_error(tmp_path):
    path = tmp_path / "own.csv"
    header = "arrival_s,prompt_tokens,output_tokens,predicted_output_tokens"
    path.write_text(f"{header}\n0,5,10,15\n1,5,20,20\n")

    trace = read_traffic(PlanSettings(trace=path), rng()).trace

    assert trace.predicted_output_tokens.tolist() == [15, 20]
    assert trace.notes[-1].startswith(
        "answer lengths predicted by the trace: off by 25"
    )
    with pytest.raises(InputError, match="expected no --predictor"):
        read_traffic(PlanSettings(trace=path, predictor="aladdin"), rng())


@pytest.mark.parametrize("settings", [PlanSettings, SimulateSettings])
def test_every_command_that_simulates_reads_the_predictor(settings):
    load = read_traffic(
        settings(workload="azure-conv-like", predictor="retrieval:k=8"), rng()
    )

    assert "predicted by retrieval:k=8: off by" in load.trace.notes[-1]
