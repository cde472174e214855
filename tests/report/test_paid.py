"""What is paid of a candidate, by kind of node, is its cost."""

import csv
import io
from dataclasses import replace

import pytest

from capplan.planning.plan.plan import plan as planned
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.plan import plan_page
from capplan.report.paid import paid
from capplan.report.render.csv_table import table_csv
from capplan.report.writers.focus import focus_csv, plan_charges


@pytest.fixture(scope="module")
def by_nodes(settings) -> object:
    """A plan of shipped prices, on nodes of eight GPUs."""
    asked = {"price": {}, "gpu": ("H100-SXM",), "tp": (1, 2), "nodes": "p5.48xlarge"}
    return planned(PlanSettings(**settings | asked))


@pytest.mark.parametrize("name", ["plan", "doubted", "classed", "by_nodes"])
def test_all_kinds_together_are_the_cost_and_the_nodes_of_each(request, name):
    for candidate in request.getfixturevalue(name).candidates:
        if candidate.cost is None:
            assert paid(candidate) == ()
            continue
        groups = paid(candidate)
        usd = sum(group.unit_count * group.price.usd_per_node_h for group in groups)
        assert usd == pytest.approx(candidate.cost.usd_per_h, rel=1e-12)
        for group, row in zip(groups, candidate.cost.nodes, strict=True):
            assert group.gpus_paid == row.gpus_paid
            assert group.stranded_gpus == row.stranded_gpus


def test_csv_has_the_nodes_of_each_candidate_and_the_range_of_its_month(by_nodes):
    text = table_csv(plan_page(by_nodes).csv["plan.csv"])
    row = next(csv.DictReader(io.StringIO(text)))

    low, high = by_nodes.best.usd_per_month_range
    assert (row["node_count"], row["gpus_paid"]) == ("1", "8")
    assert int(row["stranded_gpus"]) == 8 - by_nodes.best.gpu_count
    assert float(row["usd_per_month_low"]) == pytest.approx(low, abs=0.005)
    assert float(row["usd_per_month_high"]) == pytest.approx(high, abs=0.005)


def test_a_node_that_is_rented_whole_is_charged_by_node_hours(by_nodes):
    text = focus_csv(plan_charges(by_nodes))

    # One p5.48xlarge of 8 H100 for 730 h, of which the plan uses fewer.
    (group,) = paid(by_nodes.best)
    assert (group.unit_count, group.gpus_per_unit) == (1, 8)
    assert "Node-Hours" in text
    assert ",p5.48xlarge,Node-Hours," in text
    assert f"{730 * group.price.usd_per_node_h:.1f}" in text


@pytest.mark.thorough
def test_pools_that_share_nodes_are_one_kind(settings):
    asked = settings | {"disaggregated": True, "gpu": "H100-SXM"}
    apart = planned(PlanSettings(**asked))
    best = apart.best_disaggregated

    (group,) = paid(best)

    assert [pool.role for pool in group.pools] == ["prefill", "decode"]
    assert group.gpus_paid - group.stranded_gpus == best.gpu_count
    text = focus_csv(plan_charges(replace(apart, best=best)))
    assert "prefill TP" in text
    assert "decode TP" in text
