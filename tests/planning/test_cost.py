import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.fleet.price import Price
from capplan.latency.contract import linear_tables
from capplan.planning.cost import CostLine, cost, usd_per_h
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
    )

    assert found.usd_per_million_output_tokens == pytest.approx(5.0)
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
    prompt=st.floats(0, 1e5),
    output=st.floats(1, 1e5),
)
def test_every_amount_is_the_amount_of_its_line(gpu_count, usd, rate, prompt, output):
    found = cost(
        pools(gpu_count, Price(usd, "a provider")),
        rate_per_s=rate,
        mean_prompt_tokens=prompt,
        mean_output_tokens=output,
    )

    amounts = [line.amount_usd for line in found.lines]
    assert amounts == [
        found.usd_per_h,
        found.usd_per_month,
        found.usd_per_year,
        found.usd_per_million_output_tokens,
        found.usd_per_million_total_tokens,
    ]
    # a month's tokens at their price are a month's GPUs
    month_tokens = rate * output * 730 * 3600
    paid = month_tokens / 1e6 * found.usd_per_million_output_tokens
    assert math.isclose(paid, found.usd_per_month, rel_tol=1e-9, abs_tol=1e-9)


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


@pytest.mark.parametrize(
    "traffic",
    [{"rate_per_s": -1.0}, {"rate_per_s": math.inf}, {"mean_output_tokens": -1.0}],
)
def test_what_cannot_be_billed_is_refused(traffic):
    with pytest.raises(InputError):
        cost(pools(1, Price(1.0, "a provider")), **traffic)
