import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.units import (
    format_bytes,
    format_duration,
    format_usd,
    parse_duration_s,
    parse_usd_per_h,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500us", 0.0005),
        ("7µs", 7e-6),
        (" 200 ms ", 0.2),
        ("1.5s", 1.5),
        ("2m", 120),
        ("2min", 120),
        ("1e-1h", 360),
        (".5d", 43_200),
    ],
)
def test_a_duration_is_read_in_its_unit(text, seconds):
    assert parse_duration_s(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "ms", "200", "1.5 years", "1s2", "1e999s", "nans"]
)
def test_text_that_is_not_a_duration_is_refused(text):
    with pytest.raises(InputError, match="is not a duration; expected"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["2.49", "$2.49", "2.49/h", " $ 2.49/h "])
def test_a_price_may_have_a_dollar_sign_and_a_unit(text):
    assert parse_usd_per_h(text) == 2.49


@pytest.mark.parametrize("text", ["-1", "2.49/day", "free", "1e400"])
def test_text_that_is_not_a_price_is_refused(text):
    with pytest.raises(InputError, match="price"):
        parse_usd_per_h(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 µs"),
        (9.99e-7, "0.999 µs"),
        (0.001, "1 ms"),
        (1, "1 s"),
        (599, "599 s"),
        (600, "10 min"),
        (7200, "2 h"),
        (-0.25, "-250 ms"),
        (math.inf, "–"),
        (math.nan, "–"),
    ],
)
def test_a_duration_is_shown_in_the_unit_of_its_magnitude(seconds, text):
    assert format_duration(seconds) == text


@given(seconds=st.floats(1e-6, 1e6))
def test_a_duration_shown_reads_back_within_three_digits(seconds):
    shown = format_duration(seconds)

    assert parse_duration_s(shown) == pytest.approx(seconds, rel=0.006)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (2**10, "1 KiB"), (80 * 2**30, "80 GiB")],
)
def test_memory_is_shown_in_binary_units(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(2.494, "$2.49"), (999.5, "$999.50"), (12345.6, "$12,346")]
)
def test_cents_are_shown_below_a_thousand_dollars(amount, text):
    assert format_usd(amount) == text
