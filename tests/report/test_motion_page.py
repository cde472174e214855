"""What the page of a run says of its pools, its migrations and its replicas."""

from types import SimpleNamespace

import numpy as np
import pytest

from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.settings.plan import SimulateSettings
from capplan.report.charts.motion import kv_by_replica, motion_figures
from capplan.report.pages.motion import motion_section, motion_values
from capplan.report.pages.run import run_page
from capplan.report.render.html_page import html
from capplan.report.render.markdown import markdown
from capplan.simulator.fleet.motion import MOVE

ASKED = {
    "workload": "synthetic:prompt=300,output=60,n=600",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "rate": 30,
    "slo": "ttft=1s,tpot=30ms",
}


class Times(SimpleNamespace):
    """Times of requests that a chart reads."""

    def __len__(self):
        return len(self.replica)


def run_of(**more):
    return simulate_deployment(SimulateSettings(**{**ASKED, **more}))


@pytest.fixture(scope="module")
def apart():
    return run_of(prefill_replicas=1, decode_replicas=2)


@pytest.fixture(scope="module")
def moving():
    # Little KV, so that replicas run short of it.
    rebalancer = "llumnix:theta=40,block=0.1ms,handshake=1ms"
    asked = {"workload": "sharegpt", "kv_blocks": 1500, "router": "round-robin"}
    return run_of(**asked, replicas=2, rebalancer=rebalancer, rate=20, extend=False)


@pytest.fixture(scope="module")
def scaled():
    return run_of(
        replicas=1, rate=60, autoscaler="hpa:target=10,max=4", cold_start="1s"
    )


def titles(run):
    return [figure.title for figure in motion_figures(run)]


def test_two_pools_have_a_row_each_and_their_utilisation_over_time(apart):
    (table,) = motion_section(apart).full_tables
    values = motion_values(apart)

    assert [row.role for row in table.rows] == ["prefill", "decode"]
    for row, pool in zip(table.rows, values["pools"], strict=True):
        assert pool["role"] == row.role
        assert (pool["gpu"], pool["tp"]) == ("H100-SXM", 1)
        assert 0 < pool["busy_share"] < 1
    assert [pool["replica_count"] for pool in values["pools"]] == [1, 2]
    assert values["hand_off"] == "nixl"
    assert values["link_gb_per_s"] == 50.0
    assert titles(apart) == [
        "Load of the pools over time",
        "KV of the pools over time",
    ]
    assert "each GPU's part at 50 GB/s" in dict(motion_section(apart).facts)["hand-off"]


def test_one_pool_that_nothing_moves_in_says_nothing_more():
    run = run_of(replicas=2)

    assert motion_section(run).full_tables == []
    assert motion_section(run).known_facts == []
    assert motion_figures(run) == []
    assert motion_values(run)["link_gb_per_s"] is None
    (pool,) = motion_values(run)["pools"]
    assert (pool["role"], pool["replica_count"]) == ("", 2)


def test_migrations_are_counted_and_drawn(moving):
    moved = moving.simulation.moved
    joined = int((moved["joined"] == 1).sum())

    assert joined > 0
    values = motion_values(moving)
    assert values["migrations"] == joined
    assert values["aborted_migrations"] == len(moved) - joined
    text = dict(motion_section(moving).facts)["migrations"]
    assert text.startswith(f"{joined:,} request")
    assert titles(moving) == [
        "KV of the replicas over time",
        "Migrations between replicas over time",
    ]


def test_replicas_that_come_and_go_are_told_in_hours(scaled):
    values, facts = motion_values(scaled), dict(motion_section(scaled).known_facts)

    paid, ready = values["gpu_hours_paid"], values["gpu_hours_ready"]
    assert paid >= ready >= values["gpu_hours_busy"] > 0
    assert values["peak_replicas"] == scaled.hours.peak_replicas
    assert "paid on average" in facts["replicas"]
    assert facts["cold start"] == "1 s from order to first request"
    assert titles(scaled) == ["Replicas over time"]


@pytest.mark.parametrize("name", ["apart", "moving", "scaled"])
def test_every_format_has_it(name, request):
    page = run_page(request.getfixturevalue(name))

    assert "Between replicas" in html(page)
    assert "Between replicas" in markdown(page)


def test_kv_is_on_the_replica_that_a_request_is_on_then():
    # One request of 100 prompt and 10 output tokens from 0 to 10 s; it moves from
    # replica 1 to replica 0 at 4 s. Another one of one token on replica 1 at 8 s.
    times = Times(
        scheduled_s=np.array([0.0, 8.0]),
        finish_s=np.array([10.0, 9.0]),
        prompt_tokens=np.array([100, 7]),
        output_tokens=np.array([10, 1]),
        replica=np.array([0, 1]),
    )
    moved = np.zeros(1, MOVE)
    moved["row"], moved["source"], moved["destination"] = 0, 1, 0
    moved["ended_s"], moved["joined"] = 4.0, 1
    simulation = SimpleNamespace(table=times, moved=moved, replica_count=2)

    tokens = kv_by_replica(simulation, np.array([0.0, 2.0, 5.0, 8.5, 10.0]))

    assert tokens[1].tolist() == [100.0, 102.0, 0.0, 7.5, 0.0]
    assert tokens[0].tolist() == [0.0, 0.0, 105.0, 108.5, 0.0]
