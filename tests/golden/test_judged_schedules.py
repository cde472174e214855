"""The judge schedules as the real engine did, iteration by iteration."""

from pathlib import Path

import pytest
from judged import first_difference
from recorded import read, tags

OWN = Path(__file__).parent / "data"
TAGS = tags(OWN)


@pytest.mark.parametrize("tag", TAGS)
def test_the_schedule_is_that_of_the_engine(tag):
    assert first_difference(read(OWN, tag)) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("tag", tags(OWN / "tiers"))
def test_a_tier_is_that_of_the_engine(tag):
    assert first_difference(read(OWN / "tiers", tag)) == ""
