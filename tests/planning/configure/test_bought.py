"""Which offers a plan buys, and what it says of those that it does not."""

import warnings

import pytest

from capplan.errors import InputError, PriceWarning
from capplan.planning.configure.configuration import configurations
from capplan.planning.configure.excluded import Excluded
from capplan.planning.settings.plan import PlanSettings

H100 = {"llm": "Llama-3.1-8B", "gpu": "H100", "latency_ms": "10,0,0,0,0"}


def found(**asked):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PriceWarning)
        rows = list(configurations(PlanSettings(**H100, **asked)))
    return rows, [str(warning.message) for warning in caught]


def test_offers_that_are_not_bought_are_said(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        "gpu,provider,kind,usd_per_gpu_h,as_of\nH100,me,on-demand,3,2026-11-01\n"
        "H100,me,reserved-1y,2,2026-11-01\n"
    )

    (row,), texts = found(tp="1", prices=str(path))
    (year,), others = found(tp="1", prices=str(path), kind="reserved:12")

    (said,) = [text for text in texts if "not bought" in text]
    assert "me (reserved, 12 months); this plan buys on-demand" in said
    assert row.price.usd_per_gpu_h == 3.0
    assert year.price.usd_per_gpu_h == 2.0
    assert any("me (on-demand); this plan buys reserved:12" in text for text in others)


def test_a_replica_that_fits_no_node_to_buy_is_excluded_with_the_reason():
    (one, two), _ = found(tp="1,2", nodes="a3-highgpu-1g")

    assert one.price.node == "a3-highgpu-1g"
    assert isinstance(two, Excluded)
    assert two.reason == "GCP a3-highgpu-1g: it has 1 GPU, not 2"


def test_a_gpu_that_the_nodes_to_buy_do_not_have_is_excluded():
    (row,), _ = found(tp="1", nodes="p5en.48xlarge")

    assert isinstance(row, Excluded)
    assert "p5en.48xlarge" in row.reason


def test_nodes_that_nobody_knows_are_refused():
    with pytest.raises(InputError, match="--nodes x9: in no catalog"):
        found(tp="1", nodes="x9")


def test_what_is_asked_for_stands_in_the_warning_that_there_is_no_price():
    (row,), texts = found(tp="1", provider="Azure", kind="spot")

    assert row.price is None
    assert any("no price is known for H100-SXM spot of Azure" in x for x in texts)
