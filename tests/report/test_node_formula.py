"""The formula of whole nodes counts as ``nodes_for`` does, in another engine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.fleet.nodes import nodes_for
from capplan.report.workbook.node_formula import node_formula

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def of_one():
    """The formula of one size, compiled by another engine: f(gpus, node, count)."""
    return compiled([("a", "na")])


@pytest.fixture(scope="module")
def of_two():
    """The formula of two sizes, the larger first."""
    return compiled([("a", "na"), ("b", "nb")])


def compiled(sizes):
    import formulas

    text = "=" + node_formula(sizes, "g")
    function = formulas.Parser().ast(text)[1].compile()
    names = [name.lower() for name in function.inputs]
    return lambda **given: int(function(*(given[name] for name in names)))


@given(st.integers(1, 40), st.integers(1, 500), st.integers(1, 16))
@settings(max_examples=200)
def test_one_size_takes_as_many_nodes(of_one, size, count, node):
    assert of_one(a=size, na=count, g=node) == nodes_for([(size, count)], node)[0]


@given(
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 16),
)
@settings(max_examples=300)
def test_two_sizes_that_share_take_as_many_nodes(of_two, a, na, b, nb, node):
    (a, na), (b, nb) = sorted([(a, na), (b, nb)], reverse=True)

    expected = nodes_for([(a, na), (b, nb)], node)[0]

    assert of_two(a=a, na=na, b=b, nb=nb, g=node) == expected


def test_three_replicas_of_four_gpus_take_two_nodes_of_eight(of_one):
    assert of_one(a=4, na=3, g=8) == 2
