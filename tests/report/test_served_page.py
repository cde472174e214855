"""What a plan serves and costs, on its page: nothing that misleads."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment.replica import replica
from capplan.fleet.catalog import gpu
from capplan.llm.catalog import llm
from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.planning.plan.throughput import throughput
from capplan.report.charts.served import length_figures, traffic_figures
from capplan.report.pages.plan import plan_page
from capplan.report.pages.served import peak, served_llm, used
from capplan.report.render.html_page import html
from capplan.report.render.markdown import markdown


@pytest.fixture(scope="module")
def loaded(plan):
    """The plan with what a replica sustains: 30 requests/s each."""
    load = ReplicaLoad(30.0, 5.0, plan.best.replica_count)
    rows = throughput(plan.best.run, load, plan.traffic)
    return replace(plan, replica_load=load, throughput=rows)


def section(plan, heading):
    (found,) = [x for x in plan_page(plan).sections if x.heading == heading]
    return found


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("Llama-3.1-8B", ""),
        (
            "Qwen3.6-27B-FP8",
            "catalog entry Qwen3.6-27B: 26.9 B parameters, weights in ",
        ),
        (
            "nvidia/Qwen3.6-27B-NVFP4",
            "weights in nvfp4a16 (attention and states in fp8), KV in fp8",
        ),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "in fp8, KV in bf16"),
    ],
)
def test_a_plan_says_first_whose_shapes_and_precision_a_name_has(plan, name, taken):
    found = llm(name)
    held = replica(found, gpu("B200"), kv_dtype=found.kv_dtype)
    configuration = replace(plan.best.configuration, replica=held)
    asked = replace(
        plan, llm=name, best=replace(plan.best, configuration=configuration)
    )

    assert taken in served_llm(asked)
    assert bool(taken) == bool(served_llm(asked))


def test_the_peak_is_named_with_its_share_of_what_the_fleet_sustains(loaded):
    traffic, count = loaded.traffic, loaded.best.replica_count
    most = float(traffic.rate_per_s.max())

    text = peak(loaded)

    assert f"{most:.3g} requests/s in the busiest 5 s" in text
    share = 100 * most / (30 * count)
    assert f"{share:.0f} % of the {30 * count} requests/s that the fleet holds" in text


def test_without_a_load_the_peak_is_held_against_what_it_completes_at_most(plan):
    assert plan.replica_load is None
    assert "of its maximum throughput" in peak(plan)
    assert "within the SLO" not in used(plan)


def test_a_short_peak_above_what_is_sustained_is_no_share_of_it(loaded):
    load = ReplicaLoad(1.0, 5.0, loaded.best.replica_count)
    rows = throughput(loaded.best.run, load, loaded.traffic)
    low = replace(loaded, replica_load=load, throughput=rows)

    text = peak(low)

    assert text.endswith("that the fleet holds for longer")
    assert "more than the 3 requests/s" in text


def test_the_chart_marks_the_peak_and_both_capacities(loaded):
    requests, tokens = traffic_figures(loaded)

    assert requests.svg.count("<circle") == tokens.svg.count("<circle") == 1
    (low, _), (most, _) = requests.legend
    assert "most within the SLO: 90" in low
    assert "maximum throughput" in most


def test_drawn_arrivals_have_no_chart_and_the_page_says_why(plan):
    drawn = replace(plan, traffic=None, settings={**plan.settings, "rate": 20})

    assert traffic_figures(drawn) == []
    assert "No chart over time" in markdown(plan_page(drawn))
    assert peak(drawn) == ""


def test_users_who_wait_have_no_chart_and_the_page_says_so(plan):
    waiting = replace(plan, traffic=None, asked_by="500 users")

    (note,) = section(waiting, "Traffic against capacity").notes
    assert "users ask as fast as they are answered" in note


def test_lines_of_classes_are_drawn_where_there_are_classes(plan, classed):
    assert [figure.legend for figure in length_figures(plan.lengths)] == [(), ()]
    prompts, _ = length_figures(classed.lengths)
    assert [label for label, _ in prompts.legend] == ["chat", "code"]


def test_the_class_table_has_shares_of_cost_that_are_one_together(classed):
    (table,) = section(classed, "Classes").tables
    (share,) = [column for column in table.columns if column.heading == "cost share"]

    shares = [share.value(row) for row in table.rows]

    assert sum(shares) == pytest.approx(1)
    assert all(text.endswith(" %") for text in map(share.text, table.rows))


def test_what_is_drawn_over_time_stands_in_a_file(plan):
    table = plan_page(plan).csv["traffic.csv"]
    rates = next(column for column in table.columns if column.name == "rate_per_s")

    assert np.allclose(
        [rates.value(row) for row in table.rows], plan.traffic.rate_per_s
    )


def test_the_planned_count_is_marked_and_those_that_miss_are_dim(plan):
    (table,) = section(plan, "Replicas against cost").tables
    styles = {row.replica_count: table.style(row) for row in table.rows}

    count = plan.best.replica_count
    assert styles[count] == "best"
    assert styles[count - 1] == "fail"


def test_an_infeasible_plan_has_neither_traffic_nor_bills(plan):
    none = replace(
        plan, best=None, status="infeasible", traffic=None, throughput=(), purchase=None
    )

    text = html(plan_page(none))

    assert "Traffic against capacity" not in text
    assert "Nodes, months and commitments" not in text


def test_the_count_is_told_with_its_range_over_real_engines(plan):
    low, high = plan.best.replica_count_range
    assert low < high

    said = plan_page(plan).answer.sure

    assert said.short == f"checked: {low} to {high} GPUs"
    assert said.more.startswith("$5,453 to $7,271 a month for 80 % of ")
