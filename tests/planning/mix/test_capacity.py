"""What given fleets serve: the inverse of a plan."""

import io
import json

import pytest
from rich.console import Console

from capplan.cli.scenario import settings_from
from capplan.errors import CapplanWarning, InputError
from capplan.planning.evaluate.run import judged_run
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import CapacitySettings, PlanSettings
from capplan.planning.size.capacity import capacity
from capplan.report.columns import format_count
from capplan.report.pages.capacity import capacity_page, capacity_values
from capplan.report.render.json_text import json_text
from capplan.report.render.terminal import print_page

COMMON = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=2000",
    "slo": "ttft=400ms,tpot=15ms",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "price": "H100-SXM=2.0",
    "latency_ms": "9,0.04,0,0.08,0.00005",
    "kv_blocks": 4000,
}


@pytest.fixture(scope="module")
def found():
    return capacity(
        CapacitySettings(
            **COMMON, replicas=3, think="exp:3s", also_slo=["ttft=2s,tpot=30ms"]
        )
    )


def planned(**settings):
    return plan(PlanSettings(**COMMON, tune=False, **settings)).best


@pytest.mark.thorough
def test_a_plan_for_the_highest_rate_takes_the_fleet_and_for_more_a_larger_one(found):
    row = found.best

    held, missed = row.max_rate_per_s_interval
    assert held == row.max_rate_per_s < missed
    assert planned(rate=held).replica_count == 3
    above = planned(rate=missed)
    assert above.replica_count > 3
    # The count below is the fleet at the rate that it misses: the plan says of it why.
    assert row.missed.amount == missed
    assert row.missed.in_time < 0.99
    assert row.missed.binding == above.binding


@pytest.mark.thorough
def test_no_bound_is_below_what_is_held(found):
    assert all(row.upper_bound_rate_per_s > row.max_rate_per_s for row in found.rows)


@pytest.mark.thorough
def test_a_plan_for_the_most_users_takes_the_fleet(found):
    row = found.best

    held, missed = row.max_users_interval
    assert held == row.max_users < missed
    assert planned(users=row.max_users, think="exp:3s").replica_count == 3
    assert planned(users=int(missed), think="exp:3s").replica_count > 3


@pytest.mark.thorough
def test_a_looser_objective_is_served_more(found):
    strict, loose = found.rows

    assert "30 ms" in loose.slo_text
    assert loose.max_rate_per_s > strict.max_rate_per_s
    assert loose.max_users > strict.max_users


@pytest.mark.thorough
def test_the_json_has_the_best_first_and_all_in_rows(found):
    values = json.loads(json_text(capacity_values(found)))

    assert values["schema"] == "capplan.capacity/2"
    assert values["rows"][0]["max_rate_per_s"] == values["max_rate_per_s"]
    assert values["max_users_interval"][0] == values["max_users"]
    assert values["think"] == "think time exp:3 s"
    assert values["gpu_count"] == 3
    assert capacity_page(found).headline.startswith("3 H100-SXM GPUs carry ")


def test_fleets_are_as_large_as_their_size_says():
    fixed = {k: v for k, v in COMMON.items() if k != "tp"} | {"slo": "ttft=1ms"}

    by_gpus = capacity(CapacitySettings(**fixed, tp=[2], max_gpus=7)).best
    # 2 × $2 × 730 h = $2,920 a replica and month.
    by_usd = capacity(CapacitySettings(**fixed, tp=[2], max_usd_per_month=9000)).best

    assert by_gpus.pool.replica_count == 3
    assert by_usd.pool.replica_count == 3
    assert by_usd.usd_per_month == pytest.approx(8760)
    assert by_gpus.max_rate_per_s is None
    assert "alone" in by_gpus.reason or "ttft" in by_gpus.reason.lower()
    assert capacity_page(
        capacity(CapacitySettings(**fixed, tp=[2], max_gpus=7))
    ).is_failure


@pytest.mark.thorough
def test_a_fleet_for_a_budget_shows_its_bill_on_a_narrow_terminal():
    settings = CapacitySettings(**COMMON, max_usd_per_month=9000)
    page = capacity_page(capacity(settings))

    print_page(page, Console(width=60, file=(out := io.StringIO())))

    assert page.headline.endswith(" for $8,760 a month.")
    assert "$ per month" in out.getvalue()
    assert "$8,760 \n" in out.getvalue()


@pytest.mark.thorough
def test_what_is_served_of_a_day_with_a_peak_is_said_for_its_busiest_hour(tmp_path):
    # 360 requests an hour, 1,440 in the second hour of three; 0.2/s in the mean.
    times = [*range(0, 3600, 10), *(3600 + 2.5 * i for i in range(1440))]
    times += range(7200, 10801, 10)
    rows = "".join(f"{s},300,80\n" for s in times)
    trace = tmp_path / "day.csv"
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    asked = {**COMMON, "workload": None, "trace": str(trace), "replicas": 1}

    row = capacity(CapacitySettings(**asked)).best
    drawn = capacity(CapacitySettings(**asked, arrivals="poisson")).best

    mean_per_s = (len(times) - 1) / times[-1]
    peak_of_mean = row.busiest_hour_per_s / row.max_rate_per_s
    assert peak_of_mean == pytest.approx(0.4 / mean_per_s, rel=1e-3)
    title = capacity_page(capacity(CapacitySettings(**asked))).headline
    peak = format_count(row.busiest_hour_per_s)
    assert f" requests/s, {peak} in the busiest hour, for $" in title
    assert drawn.busiest_hour_per_s is None


def test_a_replayed_trace_is_simulated_once_at_each_rate(tmp_path, monkeypatch):
    rows = "".join(f"{2 * i + i % 7},300,80\n" for i in range(1500))
    trace = tmp_path / "own.csv"
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    rates = []

    def noted(load, *args, **options):
        if load.is_open:
            rates.append(load.base.rate_per_s)
        return judged_run(load, *args, **options)

    monkeypatch.setattr("capplan.planning.size.capacity.judged_run", noted)
    asked = {**COMMON, "workload": None, "trace": str(trace), "replicas": 1}

    row = capacity(CapacitySettings(**asked)).best

    # The last one is that of the users: how long requests stay at the highest rate.
    assert rates[-1] == pytest.approx(row.max_rate_per_s)
    assert len({*rates}) == len(rates) - 1 > 5


def test_a_scenario_of_a_plan_serves_with_the_size_as_a_flag(tmp_path):
    scenario = tmp_path / "own.yaml"
    scenario.write_text("workload: sharegpt\nrate: 20\nslo: ttft=1s\n")

    with pytest.warns(CapplanWarning, match="rate has no effect"):
        settings = settings_from(CapacitySettings, scenario, {"max_gpus": 2})

    settings.check_size()
    assert settings.max_gpus == 2


@pytest.mark.thorough
def test_a_capacity_that_is_stopped_has_the_fleets_done_by_then():
    done = []

    def stopped():
        return len(done) > 1

    settings = CapacitySettings(**COMMON, replicas=1, also_slo=["ttft=2s,tpot=30ms"])
    found = capacity(
        settings,
        lambda step, share=None: done.append(step) if "ttft" in step else None,
        stopped,
    )

    assert len(found.rows) == 1
    assert "interrupted" in " ".join(found.warnings)


def test_a_capacity_stopped_at_once_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        capacity(CapacitySettings(**COMMON, replicas=1), None, lambda: True)


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ({}, "expected one of --replicas"),
        ({"replicas": 2, "max_gpus": 4}, "expected one of --replicas"),
        ({"max_usd_per_month": 100.0}, "costs 1,460 a month"),
        ({"max_gpus": 0}, "max_gpus is 0"),
        ({"replicas": 1, "think": "-1s"}, "negative"),
    ],
)
def test_a_fleet_that_is_none_is_refused(size, said):
    with pytest.raises(InputError, match=said):
        capacity(CapacitySettings(**COMMON, **size))


def test_too_few_gpus_for_a_replica_are_refused():
    with pytest.raises(InputError, match="--max-gpus is 1; a replica"):
        capacity(CapacitySettings(**{**COMMON, "tp": 2}, max_gpus=1))
