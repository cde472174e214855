import csv
import re
import warnings
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError, PriceWarning
from capplan.fleet import catalog
from capplan.fleet.catalog import gpu, gpu_names, parse_price_overrides, price
from capplan.fleet.price import Price
from capplan.fleet.quotes import BASES, Quote, middle_quote, read_quotes
from capplan.planning.configuration import configurations
from capplan.planning.settings import PlanSettings

TODAY = date(2026, 11, 21)
SHIPPED = Path(catalog.__file__).parent / "data/prices.csv"


def quote(provider, usd, as_of="2026-11-01", basis="list", gpus=None):
    return Quote(
        "H100-SXM",
        provider,
        "",
        "on-demand",
        usd,
        as_of,
        "somewhere",
        gpus_per_node=gpus,
        basis=basis,
    )


def quietly(name, **more):
    """Return the price as of TODAY without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PriceWarning)
        return price(name, today=TODAY, **more)


def name_of(text):
    return gpu(text).name


def test_every_shipped_quote_has_a_source_and_a_gpu_of_the_catalog():
    quotes = read_quotes(SHIPPED, name_of)

    assert len(quotes) > 50
    assert all(quote.source and quote.usd_per_gpu_h > 0 for quote in quotes)
    assert all(quote.day() is None or quote.day() <= TODAY for quote in quotes)


def test_the_default_is_the_quote_in_the_middle_of_the_providers():
    asked = [quote("a", 5.0), quote("b", 2.0), quote("c", 9.0)]

    chosen, rule = middle_quote(asked)

    assert (chosen.provider, chosen.usd_per_gpu_h) == ("a", 5.0)
    assert rule == "the middle of 3 providers that ask $2.00 to $9.00"


def test_of_two_in_the_middle_the_lower_is_taken_so_that_somebody_asks_it():
    asked = [quote("a", 5.0), quote("b", 2.0), quote("c", 9.0), quote("d", 4.0)]

    assert middle_quote(asked)[0].usd_per_gpu_h == 4.0


def test_a_provider_counts_once_with_its_newest_quote():
    asked = [quote("a", 1.0, "2026-01-01"), quote("a", 3.0, "2026-10-01")]

    assert middle_quote(asked)[0].usd_per_gpu_h == 3.0


@pytest.mark.parametrize(
    "weak",
    [
        quote("b", 1.0, ""),
        *(
            quote("b", 1.0, basis=basis)
            for basis in BASES
            if basis not in ("list", "observed")
        ),
    ],
)
def test_an_undated_or_best_effort_quote_yields_to_a_dated_list_price(weak):
    assert middle_quote([weak, quote("a", 3.0)])[0].usd_per_gpu_h == 3.0
    assert middle_quote([weak])[0] is weak


@pytest.mark.parametrize(
    ("name", "tp", "usd_per_node_h", "gpus_per_node"),
    [
        # AWS, us-east-1: nodes of these families have 1, 4 or 8 GPUs
        ("L40S", 1, 1.861, 1),
        ("L40S", 2, 10.493, 4),
        ("L40S", 4, 10.493, 4),
        ("L40S", 8, 30.131, 8),
        ("L4", 1, 0.8048, 1),
        ("L4", 4, 4.6016, 4),
        ("L4", 8, 13.3504, 8),
        ("A10G", 1, 1.006, 1),
        ("A10G", 4, 5.672, 4),
        ("A10G", 8, 16.288, 8),
        ("H100-SXM", 1, 55.04, 8),
        ("H100-SXM", 8, 55.04, 8),
    ],
)
def test_a_replica_is_priced_by_the_smallest_node_of_a_provider_that_holds_it(
    name, tp, usd_per_node_h, gpus_per_node
):
    found = quietly(name, provider="AWS", tp=tp)

    assert found.usd_per_gpu_h == pytest.approx(usd_per_node_h / gpus_per_node, 1e-4)


@pytest.mark.parametrize(
    ("tp", "usd", "offer"),
    [
        # by provider, TP 2: 3.20 3.85 3.99 4.19 6.155 6.88 12.29 (Hyperstack, Nebius,
        # RunPod, Lambda, CoreWeave, AWS, Azure); GCP's a3-highgpu-1g has one GPU.
        # Lambda asks 4.09 on nodes of 4 and 3.99 on nodes of 8.
        (2, 4.19, "Lambda 2x H100"),
        (4, 4.09, "Lambda 4x H100"),
        (8, 3.99, "RunPod Secure"),
    ],
)
def test_the_middle_is_that_of_the_providers_whose_nodes_hold_the_replica(
    tp, usd, offer
):
    found = quietly("H100", tp=tp)

    assert found.usd_per_gpu_h == usd
    assert found.source.startswith(offer)
    assert found.note == (
        f"the middle of 7 providers that ask $3.20 to $12.29 for nodes of {tp} GPUs "
        "or more"
    )


def test_nodes_with_more_gpus_change_no_price_of_a_single_gpu():
    # The middle of the providers, each with its newest list price, before the nodes
    # with several GPUs were listed.
    assert {
        name: found.usd_per_gpu_h for name in gpu_names() if (found := quietly(name))
    } == {
        "A100-40GB-SXM": 2.7447,
        "A100-80GB-SXM": 2.79,
        "A100-80GB-PCIe": 3.673,
        "H100-SXM": 4.29,
        "H100-PCIe": 2.89,
        "H100-NVL": 6.98,
        "H200-SXM": 4.59,
        "B200-SXM": 6.69,
        "B300-SXM": 7.4,
        "GB200": 10.5,
        "L4": 0.8048,
        "L40S": 1.861,
        "A10G": 1.006,
        "V100-16GB-SXM2": 0.79,
        "MI300X": 1.5,
        "MI325X": 1.95,
        "RTX4090": 0.29,
        "RTX-A6000": 0.82,
        "RTX-PRO-6000": 0.66,
    }


def test_a_price_of_a_smaller_node_says_so_and_is_warned_of():
    with pytest.warns(PriceWarning, match="known only for a 1-GPU node"):
        found = price("L40S", kind="spot", today=TODAY, tp=4)

    assert found.usd_per_gpu_h == 0.941
    assert found.note == (
        "the only provider known; known only for a 1-GPU node; "
        "one with 4 GPUs may cost more per GPU"
    )


def test_of_nodes_that_are_all_too_small_the_largest_is_taken():
    with pytest.warns(PriceWarning, match="known only for a 4-GPU node"):
        found = price("A100-80GB-PCIe", today=TODAY, tp=8)

    assert found.usd_per_gpu_h == 19.108 / 4


def test_a_node_of_unknown_size_yields_to_one_that_holds_the_replica():
    unknown, holding, small = (
        quote("a", 1.0),
        quote("b", 9.0, "", gpus=4),
        quote("c", 2.0, gpus=2),
    )

    assert middle_quote([unknown, holding, small], tp=4)[0] is holding
    assert middle_quote([unknown, small], tp=4)[0] is unknown
    assert middle_quote([unknown, small], tp=2)[0] is small


def test_a_price_of_a_node_of_unknown_size_says_so():
    assert quietly("MI300X", tp=8).note.endswith("; node size not known")
    assert "node" not in quietly("MI300X").note


def test_a_replica_larger_than_the_largest_node_is_priced_by_several():
    # A tray of GB200 has 4 GPUs.
    assert quietly("GB200", tp=8) == quietly("GB200", tp=4)


SIZES = st.none() | st.sampled_from([1, 2, 4, 8])
QUOTES = st.lists(
    st.builds(
        quote,
        st.sampled_from("abcd"),
        st.integers(1, 99).map(float),
        st.sampled_from(["", "2026-09", "2026-10-02", "2026-11-01"]),
        st.sampled_from(sorted(BASES)),
        SIZES,
    ),
    min_size=1,
    max_size=8,
)


@given(QUOTES, st.sampled_from([1, 2, 4, 8]))
def test_a_price_is_never_that_of_a_node_too_small_while_another_is_known(quotes, tp):
    chosen, _ = middle_quote(quotes, tp)

    assert chosen in quotes
    if any(quote.holds(tp) for quote in quotes):
        assert tp == 1 or chosen.gpus_per_node >= tp
    assert (chosen.node_gap(tp) == "") == chosen.holds(tp)


@pytest.mark.thorough
@given(QUOTES, st.sampled_from([2, 4, 8]))
def test_quotes_of_nodes_too_small_change_nothing_while_another_holds(quotes, tp):
    holding = [quote for quote in quotes if quote.holds(tp)]

    if holding:
        assert middle_quote(quotes, tp) == middle_quote(holding, tp)


@given(QUOTES, st.sampled_from([1, 2, 4, 8]))
def test_the_order_of_quotes_does_not_matter(quotes, tp):
    chosen, rule = middle_quote(quotes, tp)
    again, same_rule = middle_quote(quotes[::-1], tp)

    assert (again.usd_per_gpu_h, same_rule) == (chosen.usd_per_gpu_h, rule)


def test_a_plan_prices_each_tp_degree_by_nodes_that_hold_it():
    settings = PlanSettings(
        llm="Llama-3.1-8B", gpu="L40S", tp="1,4", latency_ms="10,0,0,0,0"
    )

    with pytest.warns(PriceWarning):
        one, four = configurations(settings)

    assert one.price.usd_per_gpu_h == 1.861
    assert 4 * four.price.usd_per_gpu_h == pytest.approx(10.493, 1e-4)


def test_a_size_in_the_name_of_a_shipped_offer_is_its_node_size():
    told = re.compile(r"/(\d+)(?=[) ]|$)|^(\d+)x |-(\d+)g\b")

    for row in read_quotes(SHIPPED, name_of):
        if found := told.search(row.sku):
            size = next(group for group in found.groups() if group)
            assert row.gpus_per_node == int(size), row


def test_no_quote_is_no_price():
    assert middle_quote([]) is None
    assert price("V100-32GB-SXM2", today=TODAY) is None


def test_a_default_price_says_who_asks_it_and_when():
    # The eight providers' dated list prices of H100-SXM are 3.20 3.85 3.99 4.29
    # 6.155 6.88 10.98 12.29: Hyperstack, Nebius, RunPod, Lambda, CoreWeave, AWS,
    # GCP, Azure; the lower of the two in the middle is Lambda's.
    found = price("H100", today=TODAY)

    assert found.usd_per_gpu_h == 4.29
    assert found.source.startswith("Lambda")
    assert found.as_of == "2026-09-25"


def test_a_provider_and_a_kind_may_be_asked_for():
    aws = price("H100", provider="aws", today=TODAY)
    spot = price("H100", kind="spot", provider="CoreWeave", today=TODAY)

    assert aws.usd_per_gpu_h == 6.88
    assert spot.usd_per_gpu_h == 2.464


def test_an_old_price_is_warned_of():
    with pytest.warns(PriceWarning, match="L4.*96 days old"):
        price("L4", today=TODAY)


def test_a_price_of_90_days_is_not_old():
    assert price("L4", today=date(2026, 11, 15)).usd_per_gpu_h == 0.8048


def test_an_undated_price_is_warned_of():
    with pytest.warns(PriceWarning, match="V100.*undated"):
        price("V100-16GB", today=TODAY)


def test_a_basis_that_nobody_knows_is_refused_with_those_known(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("gpu,usd_per_gpu_h,basis\nH100,2.5,guessed\n")

    with pytest.raises(InputError, match=r"prices.csv:2: basis is 'guessed'; .*guess"):
        price("H100", prices_file=path, today=TODAY)


def test_a_guess_is_warned_of(tmp_path):
    path = tmp_path / "prices.csv"
    header = SHIPPED.read_text().splitlines()[0]
    row = "MI355X,,,,,on-demand,2.50,guess,2026-11-01,a note,"
    path.write_text(f"{header}\n{row}\n")

    with pytest.warns(PriceWarning, match="MI355X.*guess"):
        found = price("MI355X", prices_file=path, today=TODAY)

    assert found.is_guess
    assert "guess" in found.note


def test_an_override_goes_before_all_others(tmp_path):
    mine = tmp_path / "prices.csv"
    mine.write_text("gpu,usd_per_gpu_h\nH100,3.00\n")

    found = price("H100-SXM", {"h100": 2.49}, mine, today=TODAY)

    assert found == Price(2.49, "given by the user")
    assert price("H100-SXM", {"h100": 2.49}, mine, today=TODAY, tp=8) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.csv", "gpu,usd_per_gpu_h,as_of,source\nh100,3.10,2026-11-01,deal\n"),
        ("prices.yaml", "h100: {usd_per_gpu_h: 3.10, as_of: 2026-11-01, source: deal}"),
        ("prices.yml", "H100-SXM: 3.10"),
    ],
)
def test_the_users_own_file_goes_before_the_catalog(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)

    found = price("H100", prices_file=path, today=TODAY)

    assert found.usd_per_gpu_h == 3.10
    assert found.source == ("deal" if "deal" in text else "prices.yml")
    assert price("H100", prices_file=path, today=TODAY, tp=8) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", "gpu,gpus_per_node,usd_per_gpu_h\nL4,1,0.5\nL4,4,0.9\nL4,8,1.5\n"),
        ("p.yaml", "L4: {gpus_per_node: 4, usd_per_gpu_h: 0.9}"),
    ],
)
def test_the_users_own_file_may_name_the_size_of_the_node(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)

    assert price("L4", prices_file=path, tp=2).usd_per_gpu_h == 0.9
    assert price("L4", prices_file=path, tp=4).usd_per_gpu_h == 0.9


def test_a_node_of_the_users_own_file_that_is_too_small_is_warned_of(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("gpu,gpus_per_node,usd_per_gpu_h\nL4,2,0.5\n")

    with pytest.warns(PriceWarning, match="known only for a 2-GPU node"):
        found = price("L4", prices_file=path, tp=4)

    assert found.usd_per_gpu_h == 0.5


def test_a_gpu_that_the_users_file_leaves_out_is_priced_by_the_catalog(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("L4: 0.5")

    assert price("H100", prices_file=path, today=TODAY).usd_per_gpu_h == 4.29


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("p.csv", "gpu,price\nH100,1\n", r"p.csv:1: column usd_per_gpu_h is missing"),
        ("p.csv", "gpu,usd_per_gpu_h\nH100,cheap\n", r"p.csv:2: .*'cheap'"),
        ("p.csv", "gpu,usd_per_gpu_h\nL4,1\nH100,-2\n", r"p.csv:3: .*-2"),
        ("p.csv", "gpu,usd_per_gpu_h\nH100,nan\n", r"p.csv:2: .*nan"),
        ("p.csv", "gpu,usd_per_gpu_h\nH100,0\n", r"p.csv:2: .*0.0; expected more"),
        ("p.yaml", "H100: 0", r"p.yaml: H100: .*0.0; expected more than 0"),
        (
            "p.csv",
            "gpu,usd_per_gpu_h,gpus_per_node\nH100,2,many\n",
            r"p.csv:2: gpus_per_node is 'many'; expected a whole number",
        ),
        (
            "p.csv",
            "gpu,usd_per_gpu_h,gpus_per_node\nH100,2,0\n",
            r"p.csv:2: gpus_per_node is 0; expected 1 or more",
        ),
        ("p.csv", "gpu,usd_per_gpu_h\nP100000,1\n", r"p.csv:2: unknown GPU"),
        (
            "p.csv",
            "gpu,usd_per_gpu_h,as_of\nH100,1,soon\n",
            r"p.csv:2: as_of is 'soon'",
        ),
        ("p.yaml", "- H100", r"p.yaml: expected a mapping"),
        ("p.yaml", "H100: [", r"p.yaml:2: not YAML"),
        ("p.yaml", "H100: cheap", r"p.yaml: H100: .*'cheap'"),
    ],
)
def test_a_malformed_prices_file_is_refused_where_it_is_wrong(
    tmp_path, name, text, complaint
):
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(InputError, match=complaint):
        price("H100", prices_file=path, today=TODAY)


def test_a_missing_prices_file_is_refused():
    with pytest.raises(InputError, match=r"absent.csv: no such file"):
        price("H100", prices_file=Path("absent.csv"), today=TODAY)


@pytest.mark.parametrize(
    "text", ["H100", "H100=", "H100=-1", "H100=a", "H100=nan", "P9999=1"]
)
def test_a_malformed_override_is_refused(text):
    with pytest.raises(InputError):
        parse_price_overrides([text])


def test_a_gpu_for_nothing_is_refused():
    with pytest.raises(InputError, match=r"--price 'H100=0': expected more than 0"):
        parse_price_overrides(["H100=0"])


def test_a_gpu_priced_twice_is_refused():
    with pytest.raises(InputError, match="H100-SXM is given twice"):
        parse_price_overrides(["h100=1", "H100-SXM=2"])


@pytest.mark.parametrize("usd", [0.0, -0.01, float("nan"), float("inf")])
def test_a_price_nobody_can_ask_is_refused(usd):
    with pytest.raises(InputError, match="price"):
        Price(usd, "nobody")


def test_the_collected_prices_are_all_shipped():
    source = Path(__file__).parents[3] / "shared/data/fleet/gpu_prices.csv"
    if not source.exists():
        pytest.skip("the collected prices are not here")
    with source.open(newline="") as file:
        theirs = Counter(float(row["usd_per_gpu_hour"]) for row in csv.DictReader(file))
    theirs -= Counter([2.0])  # MI300X: a guess that quotes have replaced

    ours = Counter(quote.usd_per_gpu_h for quote in read_quotes(SHIPPED, name_of))

    assert theirs - ours == Counter()


def test_the_price_of_the_contributing_guide_is_a_row_of_the_catalog(tmp_path):
    guide = Path(__file__).parents[2] / "CONTRIBUTING.md"
    *_, row = re.findall(r"^A30,.*$", guide.read_text("utf-8"), re.MULTILINE)
    path = tmp_path / "prices.csv"
    path.write_text(f"{SHIPPED.read_text().splitlines()[0]}\n{row}\n")

    (found,) = read_quotes(path, str)

    assert (found.gpus_per_node, found.usd_per_gpu_h) == (4, 1.0)
