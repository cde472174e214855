"""The bill of each provider, beside a slow judge that tries every purchase."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.fleet.bills import Bill, Replicas, bills, one_size, signed
from capplan.fleet.nodes import nodes_for
from capplan.fleet.price import Price

LAMBDA = {1: 4.29, 2: 4.19, 4: 4.09, 8: 3.99}


def menu(**providers):
    """Return a price with nodes by provider, as ``{GPUs: $ of a GPU-hour}``."""
    asks = tuple(
        Price(usd, "list", provider=name, node=f"{name}{size}", gpus_per_node=size)
        for name, sizes in providers.items()
        for size, usd in sizes.items()
    )
    return replace(asks[0], asked=asks)


def holding(price, gpus):
    """Return a price with the nodes that hold a replica alone."""
    asks = tuple(ask for ask in price.asks if ask.gpus_per_node >= gpus)
    return replace(asks[0], asked=asks) if asks else None


def told(bill):
    return [(row.price.gpus_per_node, row.units, row.counts) for row in bill.rows]


@pytest.mark.parametrize(
    ("count", "nodes", "usd"),
    [
        (1, [(1, 1, (1,))], 4.29),
        (7, [(4, 1, (4,)), (2, 1, (2,)), (1, 1, (1,))], 29.03),
        (9, [(8, 1, (8,)), (1, 1, (1,))], 36.21),
        (16, [(8, 2, (16,))], 63.84),
    ],
)
def test_sizes_of_nodes_are_mixed_where_that_bills_less(count, nodes, usd):
    (bill,) = bills([Replicas(1, count, menu(Lambda=LAMBDA))])

    assert told(bill) == nodes
    assert bill.usd_per_h == pytest.approx(usd)


def test_the_bill_is_that_at_the_lower_quartile_of_the_providers():
    asked = {f"p{usd}": {8: float(usd)} for usd in range(1, 10)}
    found = bills([Replicas(4, 2, menu(**asked))])

    assert [bill.usd_per_h for bill in found] == [8.0 * usd for usd in range(1, 10)]
    assert signed(found).provider == "p3"
    assert signed(found[:3]).provider == "p1"
    assert signed(found[:4]).provider == "p1"
    assert signed(found[:5]).provider == "p2"


def test_a_provider_without_nodes_for_all_replicas_bills_nothing():
    price = menu(small={1: 1.0, 2: 1.0}, large={8: 5.0})
    replicas = [Replicas(tp, 1, holding(price, tp)) for tp in (2, 8)]

    assert [bill.provider for bill in bills(replicas)] == ["large"]
    assert bills([replicas[0], Replicas(8, 1, holding(menu(other={8: 1.0}), 8))]) == ()


def test_gpus_that_are_sold_one_by_one_strand_none():
    (bill,) = bills([Replicas(4, 3, Price(2.0, "given"))])

    assert [(row.units, row.gpus_paid) for row in bill.rows] == [(12, 12)]
    assert bill.usd_per_h == 24.0


def judged(pools, sizes):
    """Return the least cost of nodes that hold pools, by trying all of them."""
    need = sum(-(-gpus // min(sizes)) * count for gpus, count in pools)
    most = [range(need + 1) for _ in sizes]
    best = float("inf")
    for counts in itertools.product(*most):
        usd = sum(
            n * size * price
            for n, (size, price) in zip(counts, sizes.items(), strict=True)
        )
        if usd < best and fits(pools, counts, list(sizes)):
            best = usd
    return best


def fits(pools, counts, sizes):
    """Return whether replicas fit nodes, by trying every place for each."""
    room = [size for n, size in zip(counts, sizes, strict=True) for _ in range(n)]
    todo = sorted((g for g, n in pools for _ in range(n)), reverse=True)

    def placed(index):
        if index == len(todo):
            return True
        for free in sorted(set(room)):
            if free >= todo[index]:
                at = room.index(free)
                room[at] -= todo[index]
                if placed(index + 1):
                    return True
                room[at] += todo[index]
        return False

    return placed(0)


CENTS = st.integers(100, 900).map(lambda cents: cents / 100)
MENUS = st.dictionaries(st.sampled_from([1, 2, 4, 8]), CENTS, min_size=1, max_size=3)


@given(MENUS, st.integers(1, 7), st.sampled_from([1, 2, 3, 4]))
def test_no_other_nodes_hold_replicas_of_one_size_for_less(sizes, count, gpus):
    able = {size: usd for size, usd in sizes.items() if size >= gpus}
    if not able:
        return
    (bill,) = bills([Replicas(gpus, count, menu(p=able))])

    assert bill.usd_per_h == pytest.approx(judged([(gpus, count)], able))
    for row in bill.rows:
        replicas = [(gpus, row.counts[0])]
        assert nodes_for(replicas, row.price.gpus_per_node)[0] == row.units


@given(MENUS, st.lists(st.integers(1, 3), min_size=2, max_size=2))
def test_no_other_nodes_hold_replicas_of_two_sizes_for_less(sizes, counts):
    price, pools = menu(p=sizes), list(zip((1, 4), counts, strict=True))
    if max(sizes) < 4:
        return
    replicas = [Replicas(gpus, n, holding(price, gpus)) for gpus, n in pools]
    (bill,) = bills(replicas)

    assert bill.usd_per_h == pytest.approx(judged(pools, sizes))
    for row in bill.rows:
        on = [(gpus, n) for (gpus, _), n in zip(pools, row.counts, strict=True)]
        assert nodes_for(on, row.price.gpus_per_node)[0] == row.units
    assert [sum(row.counts[i] for row in bill.rows) for i in (0, 1)] == counts


PROVIDERS = st.dictionaries(st.sampled_from("abcdefgh"), MENUS, min_size=1, max_size=6)
GPUS = st.sampled_from([1, 2, 4, 8, 16])


@given(PROVIDERS, GPUS, st.integers(1, 200))
def test_the_bill_never_falls_as_the_count_grows(providers, gpus, count):
    price = holding(menu(**providers), min(gpus, 8))
    if price is None:
        return

    def usd(n):
        return signed(bills([Replicas(gpus, n, price)])).usd_per_h

    assert usd(count + 1) >= usd(count) - 1e-6


@given(PROVIDERS, st.integers(1, 9), st.integers(1, 9))
def test_nor_as_one_of_two_counts_grows(providers, first, second):
    price = menu(**providers)
    large = holding(price, 4)
    if large is None:
        return

    def usd(n):
        found = bills([Replicas(1, n, price), Replicas(4, second, large)])
        return signed(found).usd_per_h

    assert usd(first + 1) >= usd(first) - 1e-6


@given(PROVIDERS, st.integers(1, 40))
def test_nodes_of_one_size_cost_no_less_than_mixed_ones(providers, count):
    replicas = [Replicas(1, count, menu(**providers))]
    price = one_size(replicas)
    nodes, _ = nodes_for([(1, count)], price.gpus_per_node)

    bill = signed(bills(replicas))
    assert price.provider == bill.provider
    assert nodes * price.usd_per_node_h >= bill.usd_per_h - 1e-6


def test_a_replica_larger_than_a_node_takes_whole_ones():
    (bill,) = bills([Replicas(12, 2, menu(p={8: 1.0}))])

    assert told(bill) == [(8, 3, (2,))]


def test_a_bill_without_nodes_costs_nothing():
    assert Bill("p", ()).usd_per_h == 0
