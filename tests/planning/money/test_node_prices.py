"""Terms and spot of a budget: quoted, given, or assumed and starred."""

import pytest

from capplan.errors import InputError
from capplan.fleet.prices import catalog_offers
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.money.node_prices import DISCOUNTS, node_prices
from capplan.planning.money.purchase_texts import Wish, parse_commit

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")

ON_A100 = {"gpu": "A100-40GB-SXM", "provider": "GCP", "as_of": "2026-03-01"}
HEAD = "gpu,node,provider,kind,usd_per_node_h,gpus,term_months,upfront_share,min_nodes"
HEAD += ",region"


def priced(*wishes, **more):
    settings = BudgetSettings(
        **{"llm": "Llama-3.1-8B", "tp": 1, "gpu": "H100-SXM", **more}
    )
    return node_prices(settings, only_configuration(settings), wishes)


@pytest.fixture
def own(tmp_path):
    """Offers of a provider of one's own, by node."""

    def write(*rows):
        path = tmp_path / "offers.csv"
        path.write_text("\n".join([HEAD, *rows]) + "\n")
        return str(path)

    return write


def listed(kind, months):
    """Return what the catalog asks of GCP for a node of one A100."""
    return [
        offer.usd_per_gpu_h
        for offer in catalog_offers()
        if (offer.provider, offer.gpu) == ("GCP", "A100-40GB-SXM")
        if (offer.kind, offer.term_months) == (kind, months)
    ]


def test_terms_that_are_quoted_for_the_node_are_taken_and_not_starred():
    prices = priced(Wish(12), Wish(36), **ON_A100)

    assert [[term.usd_per_node_h] for term in prices.terms] == [
        listed("reserved", 12),
        listed("reserved", 36),
    ]
    assert not any(term.is_assumed for term in prices.terms)
    assert prices.spot is not None
    assert [prices.spot.usd_per_gpu_h] == listed("spot", None)


def test_a_quote_of_another_region_is_not_taken(own):
    file = own(
        "H100-SXM,mine8,me,on-demand,32,8,,,,here",
        "H100-SXM,mine8,me,reserved,20,8,12,,,there",
    )
    asked = {"prices": file, "provider": "me"}

    anywhere, here = priced(Wish(12), **asked), priced(Wish(12), region="here", **asked)

    assert [term.usd_per_node_h for term in anywhere.terms] == [20]
    assert [term.is_assumed for term in here.terms] == [True]


def test_terms_that_nobody_quotes_are_assumed_and_starred():
    prices = priced(Wish(12), Wish(36), price="H100-SXM=4/gpu")

    assert [term.usd_per_node_h for term in prices.terms] == pytest.approx(
        [4 * (1 - DISCOUNTS[12]), 4 * (1 - DISCOUNTS[36])]
    )
    assert all(term.is_assumed for term in prices.terms)
    assert all(term.source.startswith("assumed") for term in prices.terms)
    assert prices.is_per_gpu


def test_what_is_given_goes_before_quotes():
    prices = priced(parse_commit("reserved:12=1.5"), **ON_A100)

    assert [term.usd_per_node_h for term in prices.terms] == [1.5]


def test_offers_of_ones_own_have_lots_and_payments_upfront(own):
    file = own(
        "H100-SXM,mine8,me,on-demand,32,8,,,,",
        "H100-SXM,mine8,me,reserved,20,8,12,0.5,3,",
        "H100-SXM,mine8,me,spot,10,8,,,,",
        "H100-SXM,mine8,other,reserved,8,8,12,,,",
    )

    prices = priced(Wish(12), prices=file, provider="me")

    (term,) = prices.terms
    assert prices.usd_per_node_h == 32
    assert prices.gpus_per_node == 8
    assert (term.usd_per_node_h, term.upfront_share, term.min_nodes) == (20, 0.5, 3)
    assert not term.is_assumed
    assert prices.spot is not None
    assert prices.spot.usd_per_gpu_h == pytest.approx(10 / 8)


def test_a_term_of_another_length_is_not_made_up():
    with pytest.raises(InputError, match="no offer of 24 months"):
        priced(Wish(24), price="H100-SXM=4")


def test_a_budget_buys_on_demand_what_is_not_committed():
    with pytest.raises(InputError, match="takes on-demand"):
        priced(Wish(12), kind="spot")
