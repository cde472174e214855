import pytest

from capplan.errors import InputError, PriceWarning
from capplan.fleet.catalog import gpu
from capplan.fleet.offers_file import read_offers
from capplan.fleet.prices import Market, catalog_offers


def read(tmp_path, text, name="prices.csv"):
    path = tmp_path / name
    path.write_text(text)
    return read_offers(path, lambda text: gpu(text).name, catalog_offers())


def test_a_price_of_a_node_is_divided_by_its_gpus(tmp_path):
    (offer,) = read(tmp_path, "node,usd_per_node_h\np5.48xlarge,40\n")

    assert (offer.gpu, offer.provider, offer.gpus_per_node) == ("H100-SXM", "AWS", 8)
    assert (offer.usd_per_gpu_h, offer.usd_per_node_h) == (5.0, 40.0)


def test_a_node_of_ones_own_tells_its_gpus(tmp_path):
    (offer,) = read(
        tmp_path, "node,gpu,gpus,nvlink_domain_gpus,usd_per_node_h\nrack,H100,4,2,8\n"
    )

    assert (offer.usd_per_gpu_h, offer.gpus_per_node) == (2.0, 4)
    assert [offer.holds(tp) for tp in (1, 2, 4, 8)] == [True, True, False, False]
    assert offer.node_gap(4) == "its NVLink joins 2 GPUs, not 4"


def test_columns_of_older_files_are_still_read(tmp_path):
    (offer,) = read(
        tmp_path,
        "gpu,provider,sku,gpus_per_node,nvlink_domain_gpus,kind,usd_per_gpu_h\n"
        "H100,me,box,8,8,reserved-1y,2\n",
    )

    assert (offer.node, offer.kind, offer.term_months) == ("box", "reserved", 12)
    assert offer.usd_per_node_h == 16.0


@pytest.mark.parametrize("cell", ["-38%", "- 38 %", "\N{MINUS SIGN}38 %"])
def test_a_negotiated_discount_is_one_cell(tmp_path, cell):
    (offer,) = read(
        tmp_path,
        f"node,kind,term_months,usd_per_node_h\np5.48xlarge,reserved,12,{cell}\n",
    )

    assert offer.usd_per_node_h == pytest.approx(55.04 * 0.62)
    assert offer.kind_and_term == "reserved, 12 months"
    assert offer.note.endswith("of $6.88")


def test_a_discount_is_from_the_offer_of_the_same_file(tmp_path):
    first, second = read(
        tmp_path,
        "gpu,kind,term_months,discount_from,usd_per_gpu_h\n"
        "L4,spot,,,0.5\nL4,reserved,36,spot,-50%\n",
    )

    assert (first.usd_per_gpu_h, second.usd_per_gpu_h) == (0.5, 0.25)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node,usd_per_node_h,usd_per_gpu_h\np5.48xlarge,55,7\n", "both are given"),
        ("gpu,usd_per_node_h,usd_per_gpu_h\nH100,,\n", "neither is given"),
        ("gpu,usd_per_node_h\nH100,20\n", "GPUs of the node are not known"),
        ("node,usd_per_node_h\nx9.huge,20\n", "'x9.huge' is in no catalog and has no"),
        ("usd_per_gpu_h\n2\n", "no node and no gpu"),
        ("node,gpu,usd_per_node_h\np5.48xlarge,L4,20\n", "has H100-SXM, not L4"),
        ("gpu,kind,usd_per_gpu_h\nH100,reserved,2\n", "term_months is empty"),
        ("gpu,kind,usd_per_gpu_h\nH100,rented,2\n", "kind is 'rented'"),
        ("gpu,term_months,usd_per_gpu_h\nH100,0,2\n", "term_months is 0"),
        ("gpu,upfront_share,usd_per_gpu_h\nH100,50,2\n", "upfront_share is 50.0"),
        ("gpu,currency,usd_per_gpu_h\nH100,EUR,2\n", "currency is 'EUR'"),
        ("gpu,usd_per_gpu_h\nMI355X,-10%\n", "of an offer that is not known"),
        ("gpu,usd_per_gpu_h\nH100,-100%\n", "less than 100 % off"),
        (
            "gpu,kind,usd_per_gpu_h\nH100,on-demand,3\nH100,spot,3\n",
            r"spot \$3 is not below on-demand \$3",
        ),
    ],
)
def test_a_row_that_nobody_can_offer_is_refused(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("usd", "what"),
    [
        (3.99 * 730, "a month read as an hour"),
        (3.99 * 8760, "a term read as an hour"),
        (3.99 / 730, "an hour read as a month"),
        (700, "a placeholder"),
    ],
)
def test_a_price_of_another_unit_is_refused_unless_it_is_wanted(tmp_path, usd, what):
    path = tmp_path / "prices.csv"
    path.write_text(f"gpu,usd_per_gpu_h\nH100,{usd}\n")

    with pytest.raises(
        InputError, match=r"expected dollars per hour.*--allow-odd-price"
    ):
        _ = Market(file=path).own

    (offer,) = Market(file=path, allow_odd=True).own
    assert offer.usd_per_gpu_h == pytest.approx(usd)


def test_a_column_that_is_not_read_is_said(tmp_path):
    with pytest.warns(PriceWarning, match="column colour is not read"):
        read(tmp_path, "gpu,usd_per_gpu_h,colour\nH100,3,green\n")
