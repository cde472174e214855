"""Each cost line is quantity × unit price = amount."""

from dataclasses import replace

from capplan.fleet.price import Price
from capplan.planning.cost import CostLine, cost
from capplan.report.bill import bill, line_texts


def test_every_line_is_its_quantity_times_its_unit_price_in_words(plan):
    texts = {line.what: " ".join(line_texts(line)) for line in bill(plan)}

    # 120 requests/s of 200.1 output tokens: 10^6 / 24,012 s = 0.01157 h.
    assert texts == {
        "per hour": "40 GPUs × $2.49 per GPU-hour = $99.60",
        "per month": "730 h × $99.60 per hour = $72,708",
        "per year": "8,760 h × $99.60 per hour = $872,496",
        "per million output tokens": "0.0116 h × $99.60 per hour = $1.15*",
        "per million total tokens": "0.00285 h × $99.60 per hour = $0.284*",
    }


def test_an_estimate_has_a_star():
    line = CostLine("per hour", 1, "GPU", 2.0)

    assert line_texts(line)[-1] == "= $2.00"
    assert line_texts(replace(line, estimated=True))[-1] == "= $2.00*"


def test_a_guessed_price_stars_every_line(plan, best):
    guessed = cost(40, Price(2.49, "somebody", "2026-06", "a guess"))

    lines = bill(replace(plan, best=replace(best, cost=guessed)))

    assert [line.estimated for line in lines] == [True] * 3


def test_without_a_price_or_a_candidate_there_is_no_bill(plan, best, infeasible):
    assert bill(replace(plan, best=replace(best, cost=None))) == ()
    assert bill(infeasible) == ()
