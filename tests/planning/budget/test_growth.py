import pytest

from capplan.errors import InputError
from capplan.planning.budget.growth import Growth, growth_text, parse_growth


def test_five_percent_a_month_is_eighty_a_year():
    # money.md 4.4: 5 %/month = 80 %/year; month 36 is 5.5 x month 1.
    growth = parse_growth("5%/month")

    assert growth.rate_factor(13) == pytest.approx(1.80, abs=0.005)
    assert growth.rate_factor(36) == pytest.approx(5.5, abs=0.05)
    assert growth.rate_factor(1) == 1.0


def test_a_yearly_rate_is_reached_after_twelve_months():
    assert parse_growth("40%/year").rate_factor(13) == pytest.approx(1.4)
    assert parse_growth("-50%/year").rate_factor(25) == pytest.approx(0.25)


def test_users_requests_and_tokens_multiply():
    growth = parse_growth("users=10%/month, requests=20%/month,tokens=50%/month")

    assert growth.rate_factor(2) == pytest.approx(1.1 * 1.2)
    assert growth.work_factor(2) == pytest.approx(1.1 * 1.2 * 1.5)


def test_a_scenario_may_hold_a_mapping():
    text = growth_text({"users": "3%/month", "tokens": "10%/year"})

    assert parse_growth(text).users == pytest.approx(0.03)
    assert growth_text(None) is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("3%", "expected 3%/month or 40%/year"),
        ("3", "compound differently"),
        ("-100%/month", "leaves no traffic"),
        ("-150%/year", "more than -100%"),
        ("sales=3%/month", "'sales' does not grow"),
        ("3%/month,users=1%/month", "given twice"),
        ("", "no rate"),
    ],
)
def test_a_growth_that_is_none_is_refused(text, part):
    with pytest.raises(InputError, match=part):
        parse_growth(text)


def test_no_growth_leaves_all_as_it_is():
    assert Growth().work_factor(36) == 1.0
