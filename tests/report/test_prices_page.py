import json

import pytest

from capplan.errors import InputError
from capplan.planning.money.prices import list_offers
from capplan.planning.settings.plan import OffersSettings
from capplan.report.pages.prices import prices_page
from capplan.report.render.documents import document


def listed(**asked):
    return list_offers(OffersSettings(**asked))


def test_offers_are_listed_the_cheapest_of_each_gpu_first():
    found = listed(gpu="H100,L4").offers

    assert [row.gpu for row in found] == sorted(row.gpu for row in found)
    for name in ("H100-SXM", "L4"):
        usd = [row.usd_per_gpu_h for row in found if row.gpu == name]
        assert usd == sorted(usd)


def test_filters_leave_only_what_is_asked_for():
    assert {row.kind for row in listed(kind="spot").offers} == {"spot"}
    assert {row.provider for row in listed(provider="aws").offers} == {"AWS"}
    assert {row.region for row in listed(region="us-central1").offers} == {
        "us-central1"
    }
    assert all(row.gpus_per_node >= 8 for row in listed(gpu="H100", tp=8).offers)
    assert {row.node for row in listed(nodes="p5.48xlarge").offers} == {"p5.48xlarge"}


def test_the_offers_that_plans_may_buy_are_marked():
    found = listed(gpu="H100", tp=8)

    assert {offer.provider for offer in found.planned} == {
        *("AWS", "Azure", "GCP", "CoreWeave", "Lambda", "RunPod", "Nebius"),
        *("Hyperstack", "OCI"),
    }
    values = json.loads(document(prices_page(found), "json"))
    marked = [row["node"] for row in values["offers"] if row["taken"]]
    assert sorted(marked) == sorted(offer.node for offer in found.planned)
    assert len(marked) == 9


def test_the_users_own_offers_are_listed_and_taken(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("node,usd_per_node_h\np5.48xlarge,-38%\n")

    found = listed(gpu="H100", prices=str(path))

    (taken,) = found.planned
    assert taken.usd_per_node_h == pytest.approx(0.62 * 55.04)
    assert taken in found.offers


def test_what_is_wrong_with_the_users_offers_is_told_once(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("gpu,usd_per_gpu_h,colour\nH100,2.5,red\nL40S,1,red\n")

    found = listed(prices=str(path))

    assert [text for text in found.warnings if "colour is not read" in text]


def test_a_filter_that_leaves_nothing_says_so():
    with pytest.raises(InputError, match="no offer of H100-SXM spot of nobody"):
        listed(gpu="H100", kind="spot", provider="nobody")


def test_a_node_that_nobody_knows_is_refused():
    with pytest.raises(InputError, match="--nodes x9: in no catalog"):
        listed(nodes="x9")
