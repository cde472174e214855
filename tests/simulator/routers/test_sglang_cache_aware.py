"""SGLang's cache-aware policy by its source's rules, worked by hand."""

import pytest
from asking import Asked


def knowing(*tokens, router="sglang-cache-aware"):
    """Return a router of two replicas that were sent so many tokens of group 0.

    Those of the second come first: then the first does not match them well enough.
    """
    asked = Asked(router)
    for r in (1, 0):
        if tokens[r]:
            assert asked.ask(tokens[r], tokens[r], loads=(r, 1 - r)) == r
    return asked


@pytest.mark.parametrize(
    ("known", "shared", "loads", "chosen"),
    [
        ((9, 0), 9, (40, 30), 0),  # 40 - 30 <= 32: 0.9 of the prompt
        ((9, 0), 9, (70, 30), 1),  # 40 > 32 and 70 > 33
        ((9, 0), 9, (33, 0), 1),
        ((9, 0), 9, (32, 0), 0),
        ((5, 0), 5, (5, 4), 1),  # 0.5 is not over 0.5
        ((9, 1), 9, (40, 30), 0),  # 0.9 and 0.1
        ((4, 1), 9, (40, 30), 1),  # 0.4 and 0.1
    ],
)
def test_the_match_decides_where_loads_are_alike(known, shared, loads, chosen):
    asked = knowing(*known)

    assert asked.ask(10, shared, loads=loads) == chosen


def test_settings_of_a_launched_router_let_loads_differ_more():
    launched = (
        "sglang-cache-aware:threshold=0.3,abs=64,rel=1.5,period=60s,size=67108864"
    )

    assert knowing(9, 0, router=launched).ask(10, 9, loads=(70, 30)) == 0
    assert knowing(9, 0, router=launched).ask(10, 9, loads=(95, 30)) == 1
    assert knowing(4, 0, router=launched).ask(10, 9, loads=(5, 4)) == 0


def test_of_equal_matches_the_older_one_is_chosen():
    asked = knowing(0, 6)
    assert asked.ask(6, 6, loads=(0, 50)) == 0  # unlike loads: both have it now

    assert asked.ask(6, 6, loads=(4, 5)) == 1


@pytest.mark.parametrize(("size", "chosen"), [(40, 0), (36, 1)])
def test_every_period_leaves_and_then_paths_are_cut_to_the_size(size, chosen):
    # 4 tokens of group 0 and 4 of its own, then 6 of group 1: 14 of 4 characters. The
    # leaf of the first goes, which leaves 40; if that is too much, its path as well.
    asked = Asked(f"sglang-cache-aware:size={size}")
    asked.ask(8, 4, loads=(0, 1), at_s=0.0)
    asked.ask(6, 6, loads=(0, 1), at_s=1.0, prefix_group=1)
    before = asked.ask(5, 4, loads=(1, 0), at_s=29.0)

    asked = Asked(f"sglang-cache-aware:size={size}")
    asked.ask(8, 4, loads=(0, 1), at_s=0.0)
    asked.ask(6, 6, loads=(0, 1), at_s=1.0, prefix_group=1)

    assert before == 0
    assert asked.ask(5, 4, loads=(1, 0), at_s=31.0) == chosen
