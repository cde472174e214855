"""Two parts of the replicas by the size of the request, worked by hand."""

import pytest
from asking import Asked

from capplan.simulator.state import Count


@pytest.mark.parametrize(
    ("prompt", "predicted", "chosen"),
    [(60, 40, 1), (60, 41, 3), (101, 1, 3)],  # of (5, 4 | 3, 2, 2)
)
def test_the_fewest_requests_of_the_part_for_that_size(prompt, predicted, chosen):
    asked = Asked("size-split:tokens=100,share=0.4", 5)

    r = asked.ask(prompt, predicted_tokens=predicted, loads=(5, 4, 3, 2, 2))

    assert r == chosen


def test_the_prompt_alone_may_decide():
    asked = Asked("size-split:tokens=100,of=prompt")

    assert asked.ask(60, predicted_tokens=900, loads=(9, 0)) == 0


@pytest.mark.parametrize(
    ("share", "open_replicas", "short"),
    [(0.5, 4, 2), (0.5, 3, 2), (0.0, 3, 1), (1.0, 3, 2), (0.5, 1, 1)],
)
def test_each_part_has_a_replica_if_two_are_open(share, open_replicas, short):
    asked = Asked(f"size-split:share={share}", 4)
    asked.state.counts[Count.OPEN] = open_replicas

    # With fewer requests the further on, the last of its part.
    loads = (3, 2, 1, 0)
    assert asked.ask(10, loads=loads) == short - 1
    assert asked.ask(9999, loads=loads) == open_replicas - 1
