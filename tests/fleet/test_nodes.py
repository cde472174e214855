import pytest
from hypothesis import given
from hypothesis import strategies as st

import capplan.fleet.nodes as catalog
from capplan.errors import InputError
from capplan.fleet.nodes import Node, find_node, least_memory_gib, nodes_for


def first_fit_decreasing(replicas, gpus_per_node):
    """Return nodes and GPUs left over, placing one replica after the other."""
    free, nodes, used = [], 0, 0
    for size, count in sorted(replicas, reverse=True):
        for _ in range(count):
            used += size
            whole, rest = divmod(size, gpus_per_node)
            nodes += whole
            if not rest:
                continue
            # Of the nodes with room, the one with the least.
            able = sorted((room, at) for at, room in enumerate(free) if room >= rest)
            if able:
                free[able[0][1]] -= rest
            else:
                free.append(gpus_per_node - rest)
                nodes += 1
    return nodes, nodes * gpus_per_node - used


@pytest.mark.parametrize(
    ("replicas", "gpus_per_node", "found"),
    [
        ([(4, 5)], 8, (3, 4)),  # 20 GPUs on three nodes of eight
        ([(8, 3)], 8, (3, 0)),
        ([(1, 9)], 8, (2, 7)),
        ([(3, 5)], 8, (3, 9)),  # two on a node, with two GPUs left in each
        ([(16, 2)], 8, (4, 0)),  # two nodes for each replica
        ([(4, 1), (2, 2), (1, 1)], 8, (2, 7)),
        ([(12, 1), (4, 1)], 8, (2, 0)),  # the small one fills the half node
        ([], 8, (0, 0)),
    ],
)
def test_whole_nodes_by_hand(replicas, gpus_per_node, found):
    assert nodes_for(replicas, gpus_per_node) == found


REPLICAS = st.lists(
    st.tuples(st.integers(1, 12), st.integers(0, 9)),
    max_size=4,
    unique_by=lambda x: x[0],
)


@given(REPLICAS, st.sampled_from([1, 2, 4, 6, 8]))
def test_as_many_nodes_as_when_replicas_are_placed_one_by_one(replicas, gpus_per_node):
    assert nodes_for(replicas, gpus_per_node) == first_fit_decreasing(
        replicas, gpus_per_node
    )


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(0, 10**6)), max_size=4
    )
)
def test_sizes_that_divide_one_another_leave_less_than_a_node_empty(replicas):
    gpus = sum(size * count for size, count in replicas)

    nodes, stranded = nodes_for(replicas, 8)

    assert nodes == -(-gpus // 8)
    assert stranded == 8 * nodes - gpus


def test_a_node_is_found_whatever_its_case():
    assert find_node("P5.48XLARGE").gpus == 8
    assert find_node("p5.48xlarge", "GCP") is None
    assert find_node("x9.huge") is None


def test_a_name_that_two_providers_use_needs_the_provider(monkeypatch):
    two = (Node("box", "one", "L4", 1), Node("box", "other", "L4", 2))
    monkeypatch.setattr(catalog, "nodes", lambda: two)

    with pytest.raises(InputError, match="'box' is offered by one, other; name the"):
        find_node("box")

    assert find_node("box", "Other").gpus == 2


def test_every_node_of_the_catalog_has_gpus():
    assert min(node.gpus for node in catalog.nodes()) >= 1
    assert min(node.nvlink_domain_gpus or 1 for node in catalog.nodes()) >= 1


@pytest.mark.parametrize(
    ("gpu", "gib"),
    [("B200-SXM", 224), ("H200-SXM", 200), ("GB200", 240), ("RTX4090", None)],
)
def test_the_least_host_memory_of_a_gpu_is_of_the_smallest_node(gpu, gib):
    """Nebius' nodes of eight B200 have 1,792 GiB, of eight H200 1,600."""
    assert least_memory_gib(gpu) == gib
