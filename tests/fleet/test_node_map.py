"""Node maps against all assignments of few replicas to nodes."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.fleet.node_map import Group, node_map
from capplan.fleet.nodes import nodes_for
from tests.node_maps import survives


def fits(groups, placed, size, count):
    """Return whether an assignment of replicas to nodes keeps room and the rule."""
    free = [size] * count
    at = iter(placed)
    for group in groups:
        nodes = [next(at) for _ in range(group.count)]
        for node in nodes:
            free[node] -= group.gpus
        if group.count > 1 and len(set(nodes)) == 1:
            return False
    return min(free) >= 0


def fewest_nodes(groups, size):
    """Return the fewest nodes by trying every assignment of replicas to nodes."""
    replicas = sum(group.count for group in groups)
    for count in range(1, 2 * replicas + 1):
        # The first replica stands on the first node, whichever that is.
        for rest in product(range(count), repeat=replicas - 1):
            if fits(groups, (0, *rest), size, count):
                return count
    raise AssertionError("each replica on a node of its own keeps the rule")


def fewest_nodes_by_room(groups, size):
    """Return the same for more replicas: by all free GPUs that each group can leave."""
    count = -(-sum(group.gpus * group.count for group in groups) // size)
    while not rooms_after(groups, (size,) * count):
        count += 1
    return count


def rooms_after(groups, room):
    """Return the free GPUs of nodes, sorted, in all ways by the rule."""
    rooms = {room}
    for group in groups:
        most = max(1, group.count - 1)
        rooms = {
            tuple(sorted(free - n * group.gpus for free, n in zip(r, on, strict=True)))
            for r in rooms
            for on in shares(group.count, [min(most, f // group.gpus) for f in r])
        }
    return rooms


def shares(count, most):
    """Yield all ways to share out a count, with so many for each at most."""
    if not most:
        yield from [()] if count == 0 else []
        return
    for first in range(min(count, most[0]) + 1):
        for rest in shares(count - first, most[1:]):
            yield (first, *rest)


def check(groups, size, found):
    """Check that each replica stands once and whole, in the room there is."""
    gpus = {}
    for node in found.nodes:
        assert sum(part.gpus for part in node) <= size
        for part in node:
            key = part.group, part.replica
            gpus[key] = gpus.get(key, 0) + part.gpus
    assert gpus == {
        (index, replica): group.gpus
        for index, group in enumerate(groups)
        for replica in range(group.count)
    }
    for index, group in enumerate(groups):
        if group.count > 1:
            assert survives(found, index, group.count)


def groups_of(sizes, most_groups, most):
    group = st.builds(Group, st.sampled_from(sizes), st.integers(1, most))
    return st.lists(group, min_size=1, max_size=most_groups)


@given(groups_of([1, 2, 4, 8], 4, 4).filter(lambda g: sum(x.count for x in g) <= 7))
def test_powers_of_two_stand_on_the_fewest_nodes_of_any_assignment(groups):
    found = node_map(groups, 8)

    check(groups, 8, found)
    assert len(found.nodes) == fewest_nodes(groups, 8)


@given(groups_of([1, 2, 4], 5, 4).filter(lambda g: sum(x.count for x in g) <= 6))
def test_so_they_do_on_small_nodes(groups):
    found = node_map(groups, 4)

    check(groups, 4, found)
    assert len(found.nodes) == fewest_nodes(groups, 4)


@given(
    groups_of([1, 2, 4, 8], 4, 9).filter(
        lambda g: sum(x.count * x.gpus for x in g) <= 36
    )
)
def test_so_they_do_with_more_replicas_by_the_room_that_each_group_leaves(groups):
    found = node_map(groups, 8)

    check(groups, 8, found)
    assert len(found.nodes) == fewest_nodes_by_room(groups, 8)


@given(groups_of([1, 2, 3, 5, 6], 4, 3).filter(lambda g: sum(x.count for x in g) <= 6))
def test_other_sizes_keep_the_rule_and_take_no_more_than_apart(groups):
    found = node_map(groups, 8)

    check(groups, 8, found)
    assert len(found.nodes) >= fewest_nodes(groups, 8)
    assert len(found.nodes) <= sum(len(node_map([g], 8).nodes) for g in groups)


@given(groups_of([1, 2, 4, 8, 12, 16, 24], 6, 40), st.sampled_from([1, 4, 8, 16]))
def test_large_fleets_keep_the_rule_in_whole_nodes(groups, size):
    found = node_map(groups, size)

    check(groups, size, found)
    assert found.nodes_without_rule <= len(found.nodes)
    assert all(found.nodes)


@given(groups_of([1, 2, 4, 8], 5, 20))
def test_one_more_replica_never_takes_fewer_nodes(groups):
    more = [Group(groups[0].gpus, groups[0].count + 1), *groups[1:]]

    assert len(node_map(more, 8).nodes) >= len(node_map(groups, 8).nodes)


@pytest.mark.parametrize(
    ("groups", "size", "nodes", "stranded"),
    [
        ([(4, 5)], 8, 3, 4),  # 20 GPUs
        ([(2, 3)], 8, 2, 10),  # one node would hold all three
        ([(2, 1)], 8, 1, 6),  # a single replica has no second domain
        ([(2, 2), (2, 2)], 8, 2, 8),  # both spread over the same two nodes
        ([(8, 1), (1, 2)], 8, 3, 14),  # 10 GPUs: the pair cannot share the first node
        ([(4, 3), (1, 2)], 8, 3, 10),  # 14 GPUs: of two nodes one is full of pairs
        ([(4, 2), (1, 8)], 8, 2, 0),
        ([(16, 2)], 8, 4, 0),  # whole nodes
        ([(12, 2)], 8, 4, 8),  # their halves may not share a node
        ([(12, 2), (4, 2)], 8, 4, 0),  # but those of others fill the rest
        ([(1, 0), (4, 2)], 8, 2, 8),
        ([(1, 3)], 1, 3, 0),
    ],
)
def test_nodes_worked_by_hand(groups, size, nodes, stranded):
    found = node_map([Group(*group) for group in groups], size)

    assert (len(found.nodes), found.stranded_gpus) == (nodes, stranded)


def test_what_the_rule_costs_is_told_by_the_nodes_without_it():
    groups = [Group(8, 1), Group(1, 2)]

    found = node_map(groups, 8)

    assert found.nodes_without_rule == nodes_for([(8, 1), (1, 2)], 8)[0] == 2
    assert len(found.nodes) == 3


def test_no_replicas_take_no_nodes():
    assert node_map([], 8).nodes == ()
    assert node_map([Group(4, 0)], 8).nodes == ()


def test_a_fleet_of_thousands_is_packed_at_once():
    groups = [Group(gpus, 1500) for gpus in (1, 2, 4, 8)]

    found = node_map(groups, 8)

    assert len(found.nodes) == 1500 * 15 / 8 + 0.5  # 2,812 full ones and a half
    check(groups, 8, found)
