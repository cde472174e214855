"""What first screens say alike."""

import pytest

from capplan.fleet.price import GIVEN, Price
from capplan.report.first_screen import prices_told


@pytest.mark.parametrize(
    ("price", "told"),
    [
        (Price(2.0, "RunPod", "2026-10-07"), "price of 7 October 2026"),
        (Price(2.0, "AWS", "2026-10"), "price of October 2026"),
        (Price(2.0, "AWS"), "price without a date"),
        (Price(2.0, GIVEN), "price as you gave it"),
        (None, ""),
    ],
)
def test_the_age_of_a_price_is_told_in_words(price, told):
    assert prices_told(price) == told
