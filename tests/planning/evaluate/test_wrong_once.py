"""Plans that were wrong once: each case with the count that is right."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

ONE = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 1}


def count(**settings):
    """Return the replicas of the best candidate."""
    result = plan(PlanSettings(**{**ONE, **settings}))
    assert result.best is not None, result.infeasible_reason
    return result.best.replica_count


def trace(tmp_path, arrival_s, prompts, outputs, classes="all"):
    """Write a trace with times of its own."""
    n = len(arrival_s)
    columns = (
        np.round(arrival_s, 6),
        np.broadcast_to(prompts, n),
        np.broadcast_to(outputs, n),
        np.broadcast_to(classes, n),
    )
    path = tmp_path / "own.csv"
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    head = "arrival_s,prompt_tokens,output_tokens,class"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def rising(first_per_s, last_per_s, duration_s):
    """Arrivals of a rate that rises linearly, evenly spaced under it."""
    n = int((first_per_s + last_per_s) / 2 * duration_s)
    passed = (np.arange(n) + 0.5) / n
    slope = (last_per_s - first_per_s) / (2 * duration_s)
    root = np.sqrt(first_per_s**2 + 4 * slope * passed * n)
    return (root - first_per_s) / (2 * slope)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [700, 1000])
def test_an_slo_without_tpot_needs_no_more_than_one_with(rate):
    both = count(workload="sharegpt", rate=rate, slo="ttft=1s,tpot=1s")

    assert count(workload="sharegpt", rate=rate, slo="ttft=1s") <= both
    if rate == 700:  # a replica completes about 31 of these requests a second
        assert both <= 24


@pytest.mark.slow
def test_an_slo_without_ttft_needs_no_more_than_one_with_a_loose_one():
    loose = count(workload="sharegpt", rate=700, slo="ttft=600s,tpot=30ms")

    assert count(workload="sharegpt", rate=700, slo="tpot=30ms") <= loose


def test_a_fleet_that_only_fills_is_no_backlog():
    settings = {
        "workload": "synthetic:prompt=1000,output=500,n=300",
        "rate": 300,
        "slo": "ttft=10s,tpot=50ms",
    }

    assert count(**settings, extend=False) <= 19


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first_per_s", "last_per_s", "duration_s", "outputs"),
    [(2, 30, 3600, 1500), (10, 60, 600, 1000)],
)
def test_a_rate_that_rises_is_no_backlog(
    first_per_s, last_per_s, duration_s, outputs, tmp_path
):
    path = trace(tmp_path, rising(first_per_s, last_per_s, duration_s), 300, outputs)

    slo = "ttft=1s,tpot=30ms"
    assert count(trace=path, slo=slo, engine_overhead="none") == 4


def test_prefix_hits_count_where_each_request_runs_alone():
    settings = {
        "workload": "synthetic:prompt=4096,output=20,n=3000",
        "rate": 10,
        "slo": "ttft=50ms,tpot=30ms",
        "shared_prefix": 4000,
        "engine_overhead": "none",
    }

    assert count(**settings, prefix_caching=True) == 1


def test_check_and_simulation_speak_of_the_same_requests(tmp_path):
    # 60 of 3,000 prompts take 0.6 s alone: 98 % is all that any fleet attains.
    prompts = np.array([20_000] * 60 + [100] * 2940)
    path = trace(tmp_path, np.arange(3000) / 10, prompts, 50)
    settings = {**ONE, "trace": path, "slo": "ttft=300ms,tpot=30ms"}

    result = plan(PlanSettings(**settings))
    run = simulate_deployment(SimulateSettings(**settings, replicas=3))

    assert result.best is None
    assert "98 % of requests are in time, and 99 % need" in result.infeasible_reason
    assert run.judgement.counted_request_count == 3000
    assert run.judgement.attainment.share <= 0.98


def test_an_early_burst_counts(tmp_path):
    burst, rest = np.arange(3000) * 15 / 3000, 15 + np.arange(2400) * 120 / 2400
    path = trace(tmp_path, np.concatenate([burst, rest]), 1000, 200)
    settings = {**ONE, "trace": path, "slo": "ttft=500ms,tpot=20ms"}

    needed = count(**settings)

    (tmp_path / "rest").mkdir()
    alone = trace(tmp_path / "rest", rest, 1000, 200)
    assert needed > count(**{**settings, "trace": alone})
    run = simulate_deployment(SimulateSettings(**settings, replicas=needed - 1))
    assert run.judgement.counted_request_count == 5400
    assert run.judgement.attainment.share < 0.99


def test_a_rare_class_with_limits_of_its_own_is_not_lost_in_the_others(tmp_path):
    # A prompt of 20,000 tokens takes 0.6 s alone: vip misses 50 ms at any count.
    rare = np.arange(3000) % 167 == 0
    path = trace(
        tmp_path,
        np.arange(3000) / 20,
        np.where(rare, 20_000, 200),
        50,
        np.where(rare, "vip", "bulk"),
    )
    settings = {"trace": path, "slo": ("vip:ttft=50ms", "bulk:ttft=1s,tpot=30ms")}

    apart = plan(PlanSettings(**ONE, **settings))
    together = plan(PlanSettings(**ONE, **settings, attainment_of="all"))

    assert apart.best is None
    assert "requests of class vip" in apart.infeasible_reason
    assert together.best is not None
    assert together.best.run.judgement.attainment.by_class["vip"] == 0.0


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_an_estimate_does_not_replace_what_was_measured():
    result = plan(
        PlanSettings(
            workload="synthetic:prompt=200,output=50,n=1200",
            rate=50,
            llm="Llama-3.1-8B",
            gpu="H100-SXM,MI300X",
            tp="1,2",
            slo="ttft=1s,tpot=30ms",
        )
    )

    measured = [row for row in result.candidates if row.gpu == "H100-SXM"]
    assert result.best.gpu == "H100-SXM"
    assert result.best_estimated.gpu == "MI300X"
    assert all(
        "MI300X" not in (row.pruned_reason or "").partition(";")[2] for row in measured
    )


def test_recomputing_instead_of_decoding_is_not_excluded_by_the_bound():
    # Ten requests of 1 prompt and 2 output tokens, one at a time: prefill 1 ms,
    # preempt, recompute 2 tokens 2 ms: 3 ms each, 30 ms in all on one replica.
    result = plan(
        PlanSettings(
            **ONE,
            workload="synthetic:prompt=1,output=2,n=10",
            arrivals="constant",
            rate=1e5,
            latency_ms="0,1,0,3,0",
            kv_blocks=100,
            max_num_seqs=1,
            max_num_batched_tokens=8,
            slo="e2e=30ms",
            attainment=1,
            extend=False,
            price="H100-SXM=2",
        )
    )

    assert result.best.lower_bound_gpu_count == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"price": "H100-SXM=0"}, "0"),
        ({"price": "L40S=1.5"}, "L40S"),
        ({"attainment": "vip=0.9"}, "no class 'vip' in the trace"),
        ({"attainment": 0}, "greater than 0"),
        ({"attainment_of": "some"}, "'class' or 'all'"),
        ({"warm_up": "600"}, "600"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        plan(
            PlanSettings(
                **ONE,
                workload="synthetic:prompt=100,output=20,n=1200",
                rate=10,
                slo="ttft=1s",
                **settings,
            )
        )
