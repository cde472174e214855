"""Offers as of a day: of each the newest row by then counts."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError, PriceWarning, collected_warnings
from capplan.fleet.dated import in_force
from capplan.fleet.offer import Offer
from capplan.fleet.prices import Market, catalog_offers, offers, price
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.money.node_prices import node_prices
from capplan.planning.money.prices import list_offers
from capplan.planning.money.purchase_texts import Wish
from capplan.planning.settings.plan import OffersSettings, PlanSettings
from capplan.report.provenance import made_by
from capplan.settings import SettingError
from capplan.today import current_day

HEAD = "provider,gpu,node,gpus,kind,usd_per_gpu_h,term_months,as_of,region\n"
ROWS = (
    "Acme,H100-SXM,a8,8,on-demand,3.00,,2026-01-10,\n"
    "Acme,H100-SXM,a8,8,on-demand,2.50,,2026-06-10,\n"
    "Acme,H100-SXM,a8,8,on-demand,2.00,,2026-11-10,\n"
)


@pytest.fixture
def file(tmp_path):
    """A price file of rows."""

    def write(rows=ROWS):
        path = tmp_path / "offers.csv"
        path.write_text(HEAD + rows)
        return path

    return write


def asked(path, day):
    """Return what is asked per GPU-hour as of a day."""
    market = Market(file=path, day=day and date.fromisoformat(day))
    return [offer.usd_per_gpu_h for offer in offers("H100-SXM", market)]


@pytest.mark.parametrize(
    ("day", "usd"),
    [
        ("2026-01-10", 3.0),  # the day of the row itself counts
        ("2026-06-09", 3.0),
        ("2026-06-10", 2.5),
        ("2026-12-01", 2.0),
        (None, 2.0),  # without a day the newest
    ],
)
def test_of_an_offer_the_newest_row_by_the_day_counts(file, day, usd):
    assert asked(file(), day) == [usd]


def test_rows_of_a_month_are_of_its_first_day(file):
    path = file("Acme,H100-SXM,a8,8,on-demand,3.00,,2026-03,\n")

    assert asked(path, "2026-03-01") == [3.0]
    assert 3.0 not in asked(path, "2026-02-28")


def test_of_rows_of_one_day_the_cheapest_counts(file):
    path = file(
        "Acme,H100-SXM,a8,8,on-demand,3.00,,2026-03-01,\n"
        "Acme,H100-SXM,a8,8,on-demand,2.90,,2026-03-01,\n"
    )

    assert asked(path, None) == [2.9]


def test_other_regions_and_terms_are_other_offers(file):
    path = file(
        "Acme,H100-SXM,a8,8,on-demand,3.00,,2026-01-01,north\n"
        "Acme,H100-SXM,a8,8,on-demand,2.90,,2026-03-01,south\n"
        "Acme,H100-SXM,a8,8,reserved,2.00,12,2026-01-01,north\n"
        "Acme,H100-SXM,a8,8,reserved,1.50,36,2026-03-01,north\n"
    )

    kept = in_force(Market(file=path).own_rows)

    assert len(kept) == 4


def test_a_guess_does_not_replace_a_list_price():
    price_of = {"gpu": "H100-SXM", "provider": "Acme"}
    firm = Offer(**price_of, usd_per_gpu_h=3.0, as_of="2026-01-01")
    guess = Offer(**price_of, usd_per_gpu_h=1.0, as_of="2026-06-01", basis="guess")

    assert set(in_force([firm, guess])) == {firm, guess}


days = st.one_of(
    st.just(""),
    st.integers(0, 60).map(lambda n: str(date(2026, 1, 1) + timedelta(n))),
)
rows = st.lists(
    st.builds(
        Offer,
        gpu=st.just("H100-SXM"),
        usd_per_gpu_h=st.sampled_from([1.0, 2.0, 3.0]),
        provider=st.sampled_from(["A", "a", "B"]),
        kind=st.sampled_from(["on-demand", "spot"]),
        as_of=days,
    ),
    max_size=12,
)


@given(rows, st.none() | st.integers(-5, 65))
def test_the_rows_in_force_are_those_that_no_other_row_by_the_day_replaces(found, n):
    day = None if n is None else date(2026, 1, 1) + timedelta(n)

    def same(a, b):
        return a.provider.lower() == b.provider.lower() and a.kind == b.kind

    def when(offer):
        return date.fromisoformat(offer.as_of) if offer.as_of else date.min

    known = [offer for offer in found if day is None or when(offer) <= day]
    expected = {
        (offer.provider.lower(), offer.kind, offer.as_of, offer.usd_per_gpu_h)
        for offer in known
        if not any(
            same(offer, other)
            and (when(other), -other.usd_per_gpu_h)
            > (when(offer), -offer.usd_per_gpu_h)
            for other in known
        )
    }

    got = [
        (offer.provider.lower(), offer.kind, offer.as_of, offer.usd_per_gpu_h)
        for offer in in_force(found, day)
    ]

    assert set(got) == expected
    assert len(got) == len(expected)


def test_the_age_of_a_price_is_counted_to_the_price_date(file):
    at = {"prices": str(file()), "llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 1}

    def doubts(day):
        settings = PlanSettings(**at, slo="ttft=1s", rate=1, price_date=day).dated()
        with collected_warnings():  # of rows that are newer
            found = only_configuration(settings).price
        return found.is_stale, "days old" in found.note

    assert doubts("2026-04-10") == (False, False)  # 90 days after 2026-01-10
    assert doubts("2026-04-11") == (True, True)


def test_newer_rows_are_not_used_and_it_is_said(file):
    settings = OffersSettings(
        prices=str(file()), gpu="H100-SXM", price_date="2026-07-01"
    )

    found = list_offers(settings)

    own = [offer for offer in found.offers if offer.provider == "Acme"]
    assert [offer.usd_per_gpu_h for offer in own] == [2.5]
    (text,) = found.warnings
    assert "newer than 2026-07-01, not used: Acme a8 (on-demand, 2026-11-10)" in text


def test_a_day_before_all_prices_is_refused():
    settings = PlanSettings(
        llm="Llama-3.1-8B",
        gpu="H100-SXM",
        slo="ttft=1s",
        rate=1,
        price_date="2019-05-01",
    )
    first = min(offer.as_of for offer in catalog_offers() if offer.as_of)

    with pytest.raises(InputError, match=r"price_date is 2019-05-01, before the first"):
        only_configuration(settings)
    with pytest.raises(InputError, match=f"any kind, of {first}"):
        list_offers(OffersSettings(price_date="2019-05-01"))


def test_an_undated_row_of_ones_own_is_of_any_day(file):
    path = file("Acme,H100-SXM,a8,8,on-demand,3.00,,,\n")

    assert asked(path, "2019-05-01") == [3.0]


def test_a_price_given_needs_no_offer_of_the_day():
    settings = PlanSettings(
        llm="Llama-3.1-8B",
        gpu="H100-SXM",
        tp=1,
        slo="ttft=1s",
        rate=1,
        price={"H100-SXM": "2.5"},
        price_date="2019-05-01",
    )

    assert only_configuration(settings).price.usd_per_gpu_h == 2.5


def test_a_discount_is_of_the_price_that_held_on_the_day(file):
    path = file(ROWS + "Acme,H100-SXM,a8,8,reserved,-20%,12,,\n")

    def reserved(day):
        market = Market(file=path, kind="reserved:12", day=day)
        return [offer.usd_per_gpu_h for offer in offers("H100-SXM", market)]

    assert reserved(date(2026, 7, 1)) == [pytest.approx(2.5 * 0.8)]
    assert reserved(None) == [pytest.approx(2.0 * 0.8)]


def test_spot_is_compared_with_the_on_demand_price_of_its_time(file):
    path = file(ROWS + "Acme,H100-SXM,a8,8,spot,2.40,,2026-07-01,\n")

    assert len(Market(file=path).own_rows) == 4

    dear = file(ROWS + "Acme,H100-SXM,a8,8,spot,2.40,,2026-11-11,\n")
    with pytest.raises(InputError, match=r"spot \$2.4 is not below on-demand \$2 "):
        _ = Market(file=dear).own_rows


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_a_budget_pays_the_newest_row_of_a_term_not_the_cheapest(file):
    path = file(
        ROWS
        + "Acme,H100-SXM,a8,8,reserved,1.10,12,2026-02-01,\n"
        + "Acme,H100-SXM,a8,8,reserved,1.60,12,2026-08-01,\n"
    )

    def term(day):
        settings = PlanSettings(
            llm="Llama-3.1-8B",
            gpu="H100-SXM",
            tp=1,
            prices=str(path),
            price_date=day,
        )
        (found,) = node_prices(settings, only_configuration(settings), [Wish(12)]).terms
        return found.usd_per_node_h

    assert term(None) == pytest.approx(1.6 * 8)
    assert term("2026-03-01") == pytest.approx(1.1 * 8)


def test_two_days_that_differ_are_refused():
    with pytest.raises(SettingError, match="expected one day"):
        PlanSettings(as_of="2026-01-01", price_date="2026-01-02")


def test_what_is_no_day_is_refused():
    with pytest.raises(SettingError, match="price_date"):
        OffersSettings(price_date="2026-13-01")


def test_the_catalog_as_of_a_day_has_no_newer_price():
    with collected_warnings(without=(PriceWarning,)):
        for day in (date(2026, 9, 1), date(2026, 10, 15)):
            found = price("H100-SXM", Market(day=day), today=day)
            assert found is None or found.as_of <= str(day)


def test_the_day_is_that_of_source_date_epoch(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1762646400")
    assert PlanSettings().dated().as_of == "2025-11-09"
    assert "2025-11-09" in made_by()

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(
        InputError, match="SOURCE_DATE_EPOCH is 'yesterday'; expected a Unix"
    ):
        current_day()

    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert current_day() == date.today()
