"""The distribution of a plan: laws, and days worked by hand."""

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from capplan.errors import CapplanWarning
from capplan.latency.engine_time import between
from capplan.planning.evaluate.inputs import plan_inputs, unseen
from capplan.planning.plan.plan import plan
from capplan.planning.plan.planned import planned
from capplan.planning.risk import drawn_plan as module
from capplan.planning.risk.draws import draws_of
from capplan.planning.risk.risk import FEW_DAYS, risk_of
from capplan.planning.settings.plan import PlanSettings
from capplan.report.charts.svg_chart import COLOURS
from capplan.report.pages.plan import plan_page
from capplan.report.pages.risk import histogram, levels_of, tornado, worth
from capplan.settings import SettingError
from capplan.simulator.checks import oversized
from tests.documents import plan_json

FLEET = {
    "latency_ms": "20,0.2,0,1,0.0001",
    "kv_blocks": 2000,
    "gpu": "H100-SXM",
    "tp": 1,
    "llm": "Llama-3.1-8B",
    "slo": "ttft=1s,tpot=60ms",
    "attainment": 0.5,
}

DAY_S = 86_400.0


def write(path, per_day):
    """Write a trace of so many requests on each day, spread over it."""
    rows = [
        f"{DAY_S * (day + (k + min(day, 1)) / (count + 1)):.3f},"
        f"{80 + k % 40},{20 + k % 9}"
        for day, count in enumerate(per_day)
        for k in range(count)
    ]
    end = f"{DAY_S * len(per_day) - 1},80,20"
    text = "\n".join(["arrival_s,prompt_tokens,output_tokens", *rows, end])
    path.write_text(text + "\n")
    return path


@pytest.fixture(scope="module")
def week(tmp_path_factory):
    """Weekdays from Monday on, each busier than the last, and a quiet weekend."""
    path = tmp_path_factory.mktemp("week") / "week.csv"
    return write(path, [100, 110, 120, 130, 140, 40, 50])


def settings_of(trace, **given):
    return PlanSettings(
        **({"trace": trace, "extend": False, "draws": 8} | FLEET | given)
    )


def drawn_by(settings):
    """Return what is drawn around the only configuration of a plan."""
    inputs, (configuration,) = plan_inputs(settings)
    return draws_of(settings, settings.seed, inputs.load, configuration)


def load_of(draws, index):
    """Return the requests of a draw."""
    draw = draws.draw(index)
    return draws.load_of(draw, draws.base_of(draw))


def simple(monkeypatch, settings, need):
    """Return the risk where a load needs as many replicas as ``need`` says."""
    inputs, tried = plan_inputs(settings)
    candidate = planned(inputs, tried, unseen).best

    def attains(inputs, load, deployment):
        meets = deployment.replica_count >= need(load)
        return meets, min(1.0, deployment.replica_count / need(load))

    monkeypatch.setattr(module, "_attains", attains)
    return risk_of(inputs, candidate, unseen)


def busiest_day(load):
    """Return the replicas of a fleet where each serves 50 requests a day."""
    faster, first_s = DAY_S / load.day_s, load.base.arrival_s[0]
    at_s = first_s + (load.base.arrival_s - first_s) * faster
    per_day = np.bincount((at_s / DAY_S).astype(int))
    return math.ceil(per_day.max() * faster / 50 - 1e-6)


def test_weekdays_stand_for_weekdays_and_days_of_a_weekend_for_each_other(week):
    draws = drawn_by(settings_of(week, first_day="mon"))

    found = np.array([draws.draw(index).blocks for index in range(400)])

    assert found.shape == (400, 7)
    assert set(found[:, :5].ravel()) == set(range(5))
    assert set(found[:, 5:].ravel()) == {5, 6}
    # Each of five as likely: 400 expected of 2,000, four standard deviations are 72.
    assert np.abs(np.bincount(found[:, :5].ravel()) - 400).max() < 72


def test_a_week_that_begins_on_a_saturday_has_its_weekend_first(week):
    draws = drawn_by(settings_of(week, first_day="sat"))

    assert [set(stratum) for stratum in draws.strata[:3]] == [
        {0, 1},
        {0, 1},
        {2, 3, 4, 5, 6},
    ]


def test_without_its_first_day_any_day_stands_for_any(week):
    draws = drawn_by(settings_of(week))

    assert {len(stratum) for stratum in draws.strata} == {7}
    assert "no --first-day" in draws.inputs[0].how


def test_draws_that_are_interrupted_are_left_out(week):
    drawing = []

    def progress(step, share=None):
        drawing.extend([step] if step.startswith("drawing") else [])

    settings = settings_of(week, draw="days")
    found = plan(settings, progress, lambda: bool(drawing))

    assert found.best.replica_count
    assert found.risk is None
    assert any("after 0 of 8 draws" in text for text in found.warnings)


def test_the_draws_are_those_of_all_choices_of_days(week, tmp_path, monkeypatch):
    trace = write(tmp_path / "three.csv", [50, 100, 149])
    settings = settings_of(trace, draws=3000, draw="days")

    found = simple(monkeypatch, settings, busiest_day)

    # By hand: the fewest replicas are 1, 2 or 3, by the busiest of the days chosen.
    chosen = Counter(max(days) for days in product((1, 2, 3), repeat=3))
    expected = {count: chosen[count] / 27 for count in (1, 2, 3)}
    for row in found.counts:
        share, of = row.draw_count / 3000, expected[row.replica_count]
        assert abs(share - of) < 4 * math.sqrt(of * (1 - of) / 3000)
    assert [row.share_at_most for row in found.counts][-1] == 1.0


def test_more_draws_begin_with_the_draws_of_fewer(week, monkeypatch):
    few = simple(monkeypatch, settings_of(week, draws=20), busiest_day)
    many = simple(monkeypatch, settings_of(week, draws=60), busiest_day)

    assert many.rows[:20] == few.rows


def test_leaving_an_input_out_changes_no_other(week):
    all_of_them = drawn_by(settings_of(week, draw="days,growth=0.5:2"))
    days = drawn_by(settings_of(week, draw="days"))

    for index in range(20):
        assert all_of_them.draw(index).blocks == days.draw(index).blocks


def test_quantiles_never_fall_and_shares_add_up(week, monkeypatch):
    settings = settings_of(week, draws=200, draw="days,growth=0.5:2", quantile=0.75)

    found = simple(monkeypatch, settings, busiest_day)

    levels = levels_of(found)
    assert [level.quantile for level in levels] == [0.5, 0.75, 0.9, 0.99]
    # Of nodes a larger one may take the place of several.
    for name in ("replica_count", "gpu_count", "usd_per_month"):
        values = [getattr(level, name) for level in levels]
        assert values == sorted(values)
    assert sum(row.draw_count for row in found.counts) == 200
    at_most = [row.share_at_most for row in found.counts]
    assert at_most == sorted(at_most)
    assert at_most[-1] == 1.0
    rows = sorted(row.replica_count for row in found.rows)
    assert found.at_quantile.replica_count == rows[149]  # 150 of 200 are not above it


def test_growth_lies_between_its_ends_in_four_of_five_draws(week):
    draws = drawn_by(settings_of(week, draw="growth=0.8:1.6"))

    growth = np.array([draws.draw(index).growth for index in range(2000)])

    inside = ((growth > 0.8) & (growth < 1.6)).mean()
    assert abs(inside - 0.8) < 4 * math.sqrt(0.8 * 0.2 / 2000)
    assert abs(np.median(growth) - math.sqrt(0.8 * 1.6)) < 0.05


def test_the_profile_is_drawn_by_what_sweeps_sustained():
    settings = PlanSettings(
        workload="sharegpt", rate=5, llm="Llama-3.1-8B", gpu="H100-SXM", tp=1,
        slo="ttft=1s,tpot=30ms", draws=1, draw="profile",
    )  # fmt: skip
    draws = drawn_by(settings)
    low, high = draws.configuration.capacity_ratio

    ratios = np.array([draws.draw(index).capacity_ratio for index in range(2000)])

    inside = ((ratios > low) & (ratios < high)).mean()
    assert abs(inside - 0.8) < 4 * math.sqrt(0.8 * 0.2 / 2000)
    assert between(draws.capacity, -1.2815515655446004) == pytest.approx(low)


def test_a_replica_that_sustains_half_sees_twice_the_arrivals(week):
    draws = drawn_by(settings_of(week, draw="growth=0.5:0.5"))
    load = load_of(draws, 3)

    assert load.base.rate_per_s == pytest.approx(draws.load.base.rate_per_s / 2)
    assert load.day_s == pytest.approx(2 * DAY_S)
    assert not draws.drawn_names  # the same in each draw


def test_longer_answers_stay_within_what_a_replica_holds(week):
    draws = drawn_by(settings_of(week, draw="output=3:3", kv_blocks=11))
    base, load = draws.load.base, load_of(draws, 0)

    longer = replace(base, output_tokens=3 * base.output_tokens)
    fits = ~oversized(longer, draws.configuration.engine)
    assert fits.any()
    assert not fits.all()
    expected = np.where(fits, 3 * base.output_tokens, base.output_tokens)
    assert load.base.output_tokens.tolist() == expected.tolist()


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(week):
    settings = settings_of(week, draws=6, first_day="mon", draw="days,growth=0.5:2")

    first, again = (plan_json(plan(settings)) for _ in range(2))
    other = plan_json(plan(settings.model_copy(update={"seed": 1})))

    assert first == again
    assert first != other


def test_a_workload_without_variation_gives_one_count(week):
    settings = settings_of(week, draws=7, draw="growth=1:1")

    found = plan(settings)

    (count,) = found.risk.counts
    assert count.replica_count == found.best.replica_count
    assert count.draw_count == 7
    assert any("nothing varies" in text for text in found.warnings)


def test_days_that_are_alike_give_one_count(tmp_path, monkeypatch):
    trace = write(tmp_path / "alike.csv", [150, 149, 149, 149, 149, 149, 148])

    found = simple(monkeypatch, settings_of(trace, draws=30), busiest_day)

    assert [row.replica_count for row in found.counts] == [3]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*--rate 20 scales the gaps")
def test_replicas_grow_as_the_load_of_each_draw(week):
    fast = {"rate": 20.0, "draw": "growth=0.3:3", "draws": 6}
    found = plan(settings_of(week, **fast)).risk

    counts = {row.draw.growth: row.replica_count for row in found.rows}

    ordered = [counts[growth] for growth in sorted(counts)]
    assert ordered == sorted(ordered)
    assert ordered[0] < ordered[-1]


@pytest.mark.filterwarnings("ignore:.*--rate 20 scales the gaps")
def test_a_day_of_a_rescaled_trace_is_scaled_with_it(week):
    draws = drawn_by(settings_of(week, rate=20.0))

    assert len(draws.strata) == 7
    assert draws.load.base.duration_s == pytest.approx(7 * draws.block_s, rel=0.01)


@pytest.mark.parametrize(
    ("days", "how"),
    [
        ([40], "1 whole day, so that 24 hours are drawn in place of days"),
        ([40, 40], "2 whole days, so that 48 hours"),
        ([40, 40, 40], "3 days, any in place of any"),
    ],
)
def test_hours_are_drawn_of_fewer_than_three_days(tmp_path, days, how):
    draws = drawn_by(settings_of(write(tmp_path / "few.csv", days)))

    assert how in draws.inputs[0].how


def test_less_than_a_week_says_first_what_that_does(tmp_path, monkeypatch):
    trace = write(tmp_path / "two.csv", [40, 40])

    found = plan(settings_of(trace, draws=2))

    assert found.warnings[0].startswith("the trace has 2 days, less than a week")
    assert FEW_DAYS in found.warnings[0]


def test_a_week_says_nothing_of_few_days(week):
    assert not any(FEW_DAYS in text for text in plan(settings_of(week)).warnings)


def test_a_workload_without_days_draws_lengths_and_says_so():
    settings = settings_of(
        None, workload="synthetic:prompt=100,output=30,n=300", rate=5
    )
    settings = settings.model_copy(update={"trace": None, "extend": None})
    draws = drawn_by(settings)

    assert draws.drawn_names == ("lengths",)
    assert "not drawn: arrivals are poisson" in draws.inputs[0].how
    assert "its error is not known" in draws.inputs[1].how


def test_a_first_day_without_days_is_said_to_change_nothing(tmp_path):
    settings = settings_of(write(tmp_path / "one.csv", [40]), first_day="tue")

    with pytest.warns(CapplanWarning, match="--first-day tue changes nothing"):
        drawn_by(settings)


def test_lengths_are_drawn_among_themselves():
    settings = PlanSettings(
        workload="synthetic:prompt=uniform(low=1,high=900),output=30,n=300", rate=5,
        draws=2, draw="lengths", **FLEET,
    )  # fmt: skip
    draws = drawn_by(settings)

    first, second = (load_of(draws, index).base for index in range(2))

    known = set(draws.load.base.prompt_tokens)
    assert set(first.prompt_tokens) <= known
    assert sorted(first.prompt_tokens) != sorted(second.prompt_tokens)


def test_drawn_prices_are_those_of_the_providers(week, monkeypatch):
    settings = settings_of(week, draws=40, draw="days,prices")

    found = simple(monkeypatch, settings, lambda load: 1)

    offers = {row.draw.offer for row in found.rows}
    prices = {row.usd_per_month for row in found.rows}
    assert len(offers) > 2
    assert len(prices) > 2


def test_a_count_that_is_never_found_is_above_all(week, monkeypatch):
    settings = settings_of(week, draws=10, draw="days")

    found = simple(monkeypatch, settings, lambda load: math.inf)

    assert found.unserved_draw_count == 10
    assert found.counts == ()
    assert found.at_quantile.replica_count is None
    assert found.at_quantile.usd_per_month is None


def test_the_histogram_marks_the_asked_quantile_and_the_plan(week, monkeypatch):
    settings = settings_of(week, draws=30, draw="days,growth=0.1:9", quantile=0.8)

    found = simple(monkeypatch, settings, busiest_day)
    svg = histogram(found).svg

    assert svg.count("P80, ") == 1
    assert svg.count(COLOURS[1]) == 1
    assert svg.count("<rect") <= 24


def test_the_page_tells_the_quantiles_and_has_a_row_for_each_draw(week):
    found = plan(settings_of(week, draws=5))
    page = plan_page(found)

    (section,) = [row for row in page.sections if row.heading == "Risk: 5 draws"]
    facts = dict(section.known_facts)
    assert facts["replicas"].startswith(
        f"P90 {found.risk.at_quantile.replica_count} (asked)"
    )
    assert len(page.csv["risk.csv"].rows) == 5
    assert page.values()["risk"]["draw_count"] == 5
    assert "rows" not in page.values()["risk"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"draws": 0}, "draws"),
        ({"draws": 5, "quantile": 0.0}, "quantile"),
        ({"draws": 5, "quantile": 1.0}, "quantile"),
        ({"draws": 5, "draw": "weeks"}, "weeks"),
        ({"draws": 5, "draw": "growth"}, "growth"),
        ({"draws": 5, "draw": "growth=2:1"}, "growth=2:1"),
        ({"draws": 5, "draw": "growth=.:1"}, "cannot be drawn"),
        ({"draws": 5, "draw": "days,days"}, "days twice"),
        ({"draws": 5, "draw": ""}, "draw: is empty"),
        ({"draws": 5, "first_day": "monday"}, "first_day"),
        ({"draws": None, "quantile": 0.5}, "expected --draws N with it"),
        ({"draws": 5, "penalty": -1}, "penalty"),
        ({"draws": None, "penalty": 9.0}, "expected --draws N with it"),
        ({"draws": None, "draw": "days"}, "expected --draws N with it"),
        ({"draws": None, "first_day": "tue"}, "expected --draws N with it"),
        ({"draws": 5, "disaggregated": True}, "disaggregated"),
        ({"draws": 5, "users": 4, "think": "1s"}, "users"),
    ],
)
def test_wrong_settings_are_refused(week, given, said):
    with pytest.raises(SettingError, match=said):
        settings_of(week, **given)


def test_each_input_alone_swings_between_its_ends_the_widest_first(week, monkeypatch):
    asked = "days,growth=0.5:2"
    settings = settings_of(week, draws=200, first_day="mon", draw=asked)

    found = simple(monkeypatch, settings, busiest_day)

    growth, days = found.swings
    assert (growth.name, days.name) == ("growth", "days")
    low, high = growth.ends
    assert 0.4 < low < 0.6
    assert 1.6 < high < 2.5
    # The busiest day of the plan has 140 requests, 50 a replica.
    assert growth.replica_counts == (math.ceil(2.8 * low), math.ceil(2.8 * high))
    assert days.replica_counts == (3, 3)
    assert "nodes at both ends" in tornado(found).svg


def test_knowing_is_told_in_dollars_of_nodes_and_sums_to_no_more_than_all(
    week, monkeypatch
):
    asked = "days,growth=0.2:5"
    found = simple(monkeypatch, settings_of(week, draws=200, draw=asked), busiest_day)

    by_name = {row.name: row.usd_per_month for row in found.worth}
    assert list(by_name) == ["growth", "days", "all"]
    assert 0 <= by_name["days"] < by_name["growth"] <= by_name["all"]
    assert found.missing_usd_per_month >= found.unused_usd_per_month > 0
    text = worth(found)
    usd = f"${by_name['growth']:,.0f}"
    begins = f"A surer forecast of the rate is worth up to {usd} a month; "
    assert text.startswith(begins)
    assert "a second week of trace $" in text


def test_nothing_is_worth_knowing_where_a_missing_node_costs_nothing(week, monkeypatch):
    settings = settings_of(week, draws=60, draw="growth=0.2:5", penalty=0)

    found = simple(monkeypatch, settings, busiest_day)

    assert {row.usd_per_month for row in found.worth} == {0.0}


@pytest.mark.parametrize(
    ("given", "need", "why"),
    [
        ({"draws": 49}, busiest_day, "50 draws"),
        ({"draws": 60}, lambda load: math.inf, "no count"),
    ],
)
def test_why_the_worth_of_knowing_is_not_told(week, monkeypatch, given, need, why):
    found = simple(monkeypatch, settings_of(week, **given), need)

    assert found.worth == ()
    assert why in worth(found)
