"""The page of shared nodes: every box of the map, every number in the files."""

import re

import pytest

from capplan.planning.shared_fleet.planned_llm import PlannedLlm, PlannedPool
from capplan.planning.shared_fleet.settings import SharedFleetSettings
from capplan.planning.shared_fleet.share_nodes import share_nodes
from capplan.report.charts.nodes import node_figures
from capplan.report.pages.shared_fleet import shared_fleet_page, shared_fleet_values
from capplan.report.render.documents import document
from capplan.report.render.html_page import html
from capplan.report.render.json_text import plain
from tests.planned_llms import DAY, llm


def fleet(*llms, **asked):
    return share_nodes(llms, SharedFleetSettings(**asked))


def test_the_map_has_a_box_for_each_replica_and_a_frame_for_each_node():
    shared = fleet(llm("chat", 4, 5), llm("code", 2, 3))

    (drawn,) = node_figures(shared)

    # 26 GPUs: 4 nodes and a spare; 8 boxes, each with its title.
    assert len(re.findall("<rect ", drawn.svg)) == 5 + 8
    assert len(re.findall("<title>chat, replica", drawn.svg)) == 5
    assert len(re.findall("<title>code, replica", drawn.svg)) == 3
    assert drawn.svg.count("stroke-dasharray") == shared.spares == 1
    assert [label for label, _ in drawn.legend] == ["1 chat", "2 code"]


def test_hours_are_drawn_one_llm_on_another_below_the_nodes_needed():
    shared = fleet(llm("chat", 4, 8, DAY), llm("code", 4, 4, DAY[::-1]))

    hours, _ = node_figures(shared)

    assert [label for label, _ in hours.legend] == [
        "chat",
        "code",
        "whole nodes needed",
        "joint peak: 5 nodes",
    ]
    # By day chat fills 8 x 4 / 8 nodes; code 1 + 3 / 4, so 2 replicas, on top: 5.
    assert shared.pools[0].nodes.tolist() == [5] * 12 + [4] * 12


def test_of_a_large_fleet_the_first_nodes_are_drawn_and_all_are_in_the_file():
    shared = fleet(llm("chat", 8, 100))

    (drawn,) = node_figures(shared)

    assert drawn.svg.count("<title>") == 64
    assert "map.csv has all" in drawn.caption
    table = shared_fleet_page(shared).csv["map.csv"]
    assert len(table.rows) == 100


def test_names_of_plans_are_escaped():
    shared = fleet(llm("<script>alert(1)</script>", 4, 2))

    text = html(shared_fleet_page(shared))

    assert "<script>" not in text


@pytest.mark.parametrize("form", ["json", "md", "csv", "html"])
def test_a_fleet_without_a_price_is_told_in_every_format(form):
    pools = (PlannedPool("", "H100-SXM", 4, 2, None, 4),)
    shared = fleet(PlannedLlm("chat", "chat/plan.json", pools, None, "a test"))

    text = document(shared_fleet_page(shared), form)

    assert "chat" in text
    assert shared_fleet_values(shared)["usd_per_month"] is None


def test_the_hours_of_a_month_are_told_where_llms_use_and_idle_ones():
    values = plain(shared_fleet_values(fleet(llm("chat", 4, 3), failures=0)))

    # 12 GPUs in two nodes of 8.
    assert values["bill"] == [
        {
            "who": "chat",
            "why_idle": "",
            "pool": "P n8",
            "gpu_hours_per_month": 12 * 730,
            "usd_per_month": 12 * 730 * 2.0,
        },
        {
            "who": "",
            "why_idle": "stranded",
            "pool": "P n8",
            "gpu_hours_per_month": 4 * 730,
            "usd_per_month": 4 * 730 * 2.0,
        },
        *[
            {
                "who": "",
                "why_idle": why,
                "pool": "P n8",
                "gpu_hours_per_month": 0,
                "usd_per_month": 0,
            }
            for why in ("off-peak", "spares")
        ],
    ]
    assert values["idle_usd_per_month"] == 4 * 730 * 2.0


def test_a_given_rate_of_failures_stands_without_the_two_others():
    page = shared_fleet_page(fleet(llm("chat", 4, 3), failures=10, repair="2h"))

    facts = dict(page.sections[0].known_facts)
    assert facts["failures"] == "10 in 1,000 node-days of 8 GPUs, as given"
    assert facts["repair"] == "2 h"
