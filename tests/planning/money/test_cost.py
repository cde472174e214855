import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.deployment.engine import EngineSettings
from capplan.fleet.price import Price
from capplan.latency.contract import linear_tables
from capplan.planning.money.cost import (
    CostLine,
    cost,
    usd_per_h,
    usd_per_replica_h,
)
from tests.deployments import fleet_of

TABLES = linear_tables(7e-3, 2e-5, 0, 2e-5, 0, max_batch=8, max_tokens=8)


def pools(gpu_count, price, gpu="H100-SXM"):
    """Return one pool of replicas of one GPU."""
    (pool,) = fleet_of(TABLES, EngineSettings(kv_blocks=9), gpu_count).pools
    configuration = replace(pool.configuration, gpu=gpu, price=price)
    return [replace(pool, configuration=configuration)]


def test_hour_month_and_year_by_hand():
    found = cost(pools(8, Price(4.29, "a provider")))

    assert found.usd_per_h == pytest.approx(34.32)
    assert found.usd_per_month == pytest.approx(25_053.60)
    assert found.usd_per_year == pytest.approx(300_643.20)


def test_a_token_costs_what_the_hour_costs_over_the_tokens_of_an_hour():
    # 2 requests/s of 300 + 100 tokens: 720,000 output and 2,880,000 total an hour
    found = cost(
        pools(1, Price(3.6, "a provider")),
        rate_per_s=2,
        mean_prompt_tokens=300,
        mean_output_tokens=100,
        mean_cached_tokens=100,
        prompt_share=0.25,
    )

    # A quarter of $3.60 over 1,440,000 new prompt tokens, the rest over 720,000.
    assert found.usd_per_million_input_tokens == pytest.approx(0.9 / 1.44)
    assert found.usd_per_million_output_tokens == pytest.approx(2.7 / 0.72)
    assert found.usd_per_million_total_tokens == pytest.approx(1.25)


def test_where_the_gpu_time_is_not_known_tokens_are_priced_together_alone():
    found = cost(
        pools(1, Price(3.6, "a provider")),
        rate_per_s=2,
        mean_prompt_tokens=300,
        mean_output_tokens=100,
    )

    assert found.usd_per_million_input_tokens is None
    assert found.usd_per_million_output_tokens is None
    assert found.usd_per_million_total_tokens == pytest.approx(1.25)


def test_without_traffic_a_token_has_no_price():
    found = cost(pools(1, Price(3.6, "a provider")))

    assert found.usd_per_million_output_tokens is None
    assert [line.what for line in found.lines] == ["per hour", "per month", "per year"]


def test_a_line_reads_as_quantity_times_price():
    line = CostLine("per month", 730, "h", 34.32)

    assert str(line) == "per month: 730 h × $34.32 = $25,054"
    assert str(CostLine("per hour", 1, "GPU", 2.5, estimated=True)).endswith("$2.50*")


@pytest.mark.parametrize(
    ("doubt", "starred"),
    [
        ({}, False),
        ({"note": "it is a guess"}, False),  # a note is for people
        ({"is_stale": True}, True),
        ({"is_guess": True}, True),
    ],
)
def test_a_doubtful_price_stars_its_lines(doubt, starred):
    found = cost(pools(2, Price(1.0, "a provider", **doubt)))

    assert [line.estimated for line in found.lines] == [starred] * 3


@given(
    gpu_count=st.integers(1, 10_000),
    usd=st.floats(1e-3, 100),
    rate=st.floats(1e-3, 1e4),
    prompt=st.just(0.0) | st.floats(1, 1e5),
    output=st.floats(1, 1e5),
    cached=st.floats(0, 0.99),
    share=st.floats(0, 1),
)
def test_every_amount_is_the_amount_of_its_line_and_tokens_pay_the_bill(
    gpu_count, usd, rate, prompt, output, cached, share
):
    found = cost(
        pools(gpu_count, Price(usd, "a provider")),
        rate_per_s=rate,
        mean_prompt_tokens=prompt,
        mean_output_tokens=output,
        mean_cached_tokens=cached * prompt,
        prompt_share=share,
    )

    per_input = found.usd_per_million_input_tokens
    amounts = [line.amount_usd for line in found.lines]
    assert amounts == [
        found.usd_per_h,
        found.usd_per_month,
        found.usd_per_year,
        *([] if per_input is None else [per_input]),
        found.usd_per_million_output_tokens,
        found.usd_per_million_total_tokens,
    ]
    # a month's tokens at their prices are a month's GPUs
    month_requests = rate * 730 * 3600
    inputs = (1 - cached) * prompt * (per_input or 0.0)
    outputs = output * found.usd_per_million_output_tokens
    paid = month_requests / 1e6 * (inputs + outputs)
    expected = found.usd_per_month * (1 if per_input is not None else 1 - share)
    assert math.isclose(paid, expected, rel_tol=1e-6, abs_tol=1e-9)


def test_pools_cost_the_sum_of_their_lines():
    both = pools(3, Price(2.49, "x")) + pools(2, Price(1.0, "y", is_guess=True), "L40S")

    found = cost(both)

    assert [line.what for line in found.lines[:2]] == [
        "per hour, H100-SXM",
        "per hour, L40S",
    ]
    assert found.usd_per_h == usd_per_h(both) == pytest.approx(3 * 2.49 + 2 * 1.0)
    assert [line.estimated for line in found.lines] == [False, True, True, True]


def test_a_pool_without_a_price_leaves_none_for_all():
    both = pools(3, Price(2.49, "x")) + pools(2, None)

    assert cost(both) is None
    assert usd_per_h(both) is None


NODE = Price(6.88, "AWS", provider="AWS", node="p5.48xlarge", gpus_per_node=8)


def of_tp(count, tp, price=NODE):
    (pool,) = pools(count, price)
    return replace(pool, configuration=replace(pool.configuration, tp=tp))


def test_whole_nodes_are_paid_for():
    found = cost([of_tp(5, 4)])

    (row,) = found.nodes
    assert (row.provider, row.node, row.count) == ("AWS", "p5.48xlarge", 3)
    assert (row.gpus_paid, row.stranded_gpus) == (24, 4)
    assert row.usd_per_h == found.usd_per_h == pytest.approx(3 * 55.04)
    assert str(found.lines[0]) == "per hour: 3 nodes of 8 GPUs × $55.04 = $165.12"


def test_pools_of_one_kind_share_nodes_and_others_do_not():
    together = cost([of_tp(1, 4), of_tp(2, 2)])
    apart = cost([of_tp(1, 4), of_tp(2, 2, replace(NODE, provider="Azure"))])

    assert [row.count for row in together.nodes] == [1]
    assert [row.count for row in apart.nodes] == [1, 1]


def test_a_price_of_a_gpu_alone_has_no_nodes():
    (row,) = cost(pools(3, Price(2.0, "me"))).nodes

    assert (row.node, row.count, row.gpus_paid, row.stranded_gpus) == ("", None, 3, 0)


def test_nodes_that_come_and_go_are_paid_in_the_mean():
    # One node for up to two replicas of four GPUs, two for three: 0.75 × 1 + 0.25 × 2.
    found = cost([of_tp(1, 4)], paid_shares=[(1, 0.25), (2, 0.5), (3, 0.25)])

    (row,) = found.nodes
    assert (row.count, row.gpus_paid, row.stranded_gpus) == (1.25, 10.0, 2.0)
    assert found.usd_per_h == pytest.approx(1.25 * 55.04)
    assert all(line.estimated for line in found.lines)


def test_replicas_on_nodes_of_two_sizes_are_billed_as_two_lines():
    small = Price(7.0, "AWS", provider="AWS", node="p5.4xlarge", gpus_per_node=1)
    found = cost([of_tp(9, 1, replace(NODE, asked=(NODE, small)))])

    assert [(row.node, row.count) for row in found.nodes] == [
        ("p5.48xlarge", 1),
        ("p5.4xlarge", 1),
    ]
    assert found.usd_per_h == pytest.approx(55.04 + 7.0)
    assert [line.what for line in found.lines[:2]] == [
        "per hour, p5.48xlarge",
        "per hour, p5.4xlarge",
    ]


@pytest.mark.parametrize(
    ("tp", "usd"), [(1, 6.88), (4, 27.52), (8, 55.04), (16, 110.08)]
)
def test_a_replica_costs_its_share_of_a_full_node(tp, usd):
    configuration = of_tp(1, tp).configuration

    assert usd_per_replica_h(configuration) == pytest.approx(usd)
