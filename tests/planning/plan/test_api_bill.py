"""What an API would ask for a plan's requests, beside the plan's bill."""

import csv
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.fleet.api_price import ApiPrice, parse_api_price
from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.planning.plan.api_bill import api_bill
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report import sentences

ASKED = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=2000",
    "rate": 20,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=1s,tpot=50ms",
    "price": "H100-SXM=2.0",
    "tune": False,
}
PRICE = "in=0.60,out=2.40,cached=0.15"


@pytest.fixture(scope="module")
def found():
    return plan(PlanSettings(**ASKED, api_price=PRICE))


def test_the_bill_of_an_api_is_its_prices_times_the_months_tokens(found):
    seconds = 730 * 3600
    prompts = found.rate_per_s * found.mean_prompt_tokens * seconds
    outputs = found.rate_per_s * found.mean_output_tokens * seconds

    assert found.api.usd_per_month == pytest.approx(
        (0.60 * prompts + 2.40 * outputs) / 1e6
    )
    assert found.api.own_usd_per_month == found.best.cost.usd_per_month


def test_owning_breaks_even_where_the_api_asks_what_the_fleet_costs(found):
    at_break_even = found.api.usd_per_month / found.rate_per_s
    at_break_even *= found.api.break_even_per_s

    assert at_break_even == pytest.approx(found.best.cost.usd_per_month)
    # One H100 at $2 is below what the API asks for 20 requests/s.
    assert found.api.break_even_per_s < found.rate_per_s < found.api.most_per_s


def test_the_answer_tells_both_bills_and_the_rate_that_breaks_even(found):
    said = sentences.api_or_own(found.api)

    assert "at $0.60 in, $2.40 out, $0.15 cached per million tokens costs" in said
    assert "this fleet $1,460" in said
    assert "the fleet pays from" in said
    assert "does not pay" not in said


def test_an_api_cheaper_than_a_full_fleet_is_said_to_be(found):
    cheap = replace(found, replica_load=ReplicaLoad(30.0, 5.0))

    bill = api_bill(cheap, parse_api_price("in=0.01,out=0.02"))

    assert bill.break_even_per_s > bill.most_per_s == 30.0
    assert "more than the 30 that it holds: it does not pay" in (
        sentences.api_or_own(bill)
    )


def test_a_day_is_sustained_until_its_busiest_hour_is_all_that_the_fleet_sustains(
    found,
):
    loaded = replace(found, replica_load=ReplicaLoad(90.0, 5.0))

    bill = api_bill(loaded, ApiPrice(1.0, 1.0, 1.0), peak_of_mean=3.0)

    assert bill.most_per_s == 30.0


@given(
    usd=st.lists(st.floats(0.01, 100), min_size=3, max_size=3),
    cached=st.floats(0, 1),
)
def test_cached_prompt_tokens_are_billed_at_their_own_price(found, usd, cached):
    totals = found.best.run.simulation.totals
    hits = int(cached * totals.prompt_tokens)
    run = replace(
        found.best.run,
        simulation=replace(
            found.best.run.simulation, totals=replace(totals, cached_tokens=hits)
        ),
    )
    hit = replace(found, best=replace(found.best, run=run))
    share = hits / totals.prompt_tokens

    bill = api_bill(hit, ApiPrice(*usd))

    per_request = found.mean_prompt_tokens * ((1 - share) * usd[0] + share * usd[2])
    per_request += found.mean_output_tokens * usd[1]
    month = per_request * found.rate_per_s * 730 * 3600 / 1e6
    assert bill.usd_per_month == pytest.approx(month)


@pytest.mark.parametrize(
    "wrong",
    [
        *("0.6", "in=0.6", "out=2", "in=a,out=2", "in=1,in=1,out=2", "in=-1,out=2", ""),
        *("in=1,out=nan", "in=1,out=inf", "in=1,out=0", "in=1,out=2,cache=1"),
    ],
)
def test_prices_that_no_api_has_are_refused(wrong):
    with pytest.raises(InputError, match=r"price of in, and|no price of an API"):
        parse_api_price(wrong)


def test_plan_and_what_if_tell_the_same_bill_of_an_api(found, tmp_path):
    words = [
        word
        for name, value in (ASKED | {"api_price": PRICE}).items()
        if name not in ("tune", "rate")
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]

    code = exit_code(
        ["what-if", *words, "--no-tune", "--rate", "20,40", "--out", str(tmp_path)]
    )

    assert code == 0
    with (tmp_path / "whatif.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    asked = [float(row["api_usd_per_month"]) for row in rows]
    assert asked[0] == pytest.approx(found.api.usd_per_month)
    assert asked[1] == pytest.approx(2 * asked[0], rel=1e-3)


def test_the_bill_of_an_api_stands_in_the_json_and_is_verified(tmp_path):
    words = [
        word
        for name, value in (ASKED | {"api_price": PRICE}).items()
        if name != "tune"
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    path = tmp_path / "plan.json"

    code = exit_code(["plan", *words, "--no-tune", "--out", str(tmp_path), "--quiet"])
    told = json.loads(path.read_text())["api"]

    assert code == 0
    assert told["price"]["usd_per_million_cached_tokens"] == 0.15
    assert told["break_even_per_s"] > 0
    assert exit_code(["verify", str(path)]) == 0
