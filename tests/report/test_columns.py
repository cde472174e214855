"""Numbers for people: shares never rounded up, counts and dollars to three digits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.report.columns import (
    DASH,
    at,
    column,
    format_count,
    format_fine_usd,
    format_share,
)
from capplan.report.page import Table
from capplan.report.pages.candidates import COLUMNS


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.989999, "98.99 %"),
        (0.99, "99 %"),
        (0.9999999, "99.99 %"),
        (1.0, "100 %"),
        (0.29, "29 %"),  # 0.29 * 10_000 is 2899.9999999999995
        (0.00009, "0 %"),
        (float("nan"), DASH),
        (float("-inf"), DASH),
    ],
)
def test_a_share_is_rounded_down_to_a_hundredth_of_a_percent(share, expected):
    assert format_share(share) == expected


@given(st.floats(0, 1))
def test_a_share_is_shown_at_most_a_hundredth_of_a_percent_too_low(share):
    shown = float(format_share(share).removesuffix(" %"))

    assert shown - 1e-6 <= 100 * share < shown + 0.01 + 1e-9


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_share_below_the_target_never_reads_as_the_target(met, target):
    if met < target:
        assert format_share(met / 10_000) != format_share(target / 10_000)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0"),
        (7, "7"),
        (12.3456, "12.3"),
        (0.012345, "0.0123"),
        (999.4, "999"),
        (999.6, "1,000"),
        (1234.5, "1,234"),
        (20_000, "20,000"),
        (float("inf"), DASH),
    ],
)
def test_a_count_has_thousands_or_three_digits(count, expected):
    assert format_count(count) == expected


@pytest.mark.parametrize(
    ("usd", "expected"),
    [
        (0, "$0.00"),
        (0.04143, "$0.0414"),
        (0.9949, "$0.995"),
        (0.9951, "$1.00"),
        (2.494, "$2.49"),
        (12_345.6, "$12,346"),
    ],
)
def test_dollars_have_three_digits_below_one_and_cents_above(usd, expected):
    assert format_fine_usd(usd) == expected


def test_what_a_candidate_lacks_is_a_dash(plan):
    pruned = plan.candidates[2]

    texts = {each.name: each.text(pruned) for each in COLUMNS if each.heading}

    assert texts == dict.fromkeys(texts, DASH) | {
        "gpu": "A100-80GB-SXM",
        "tp": "1",
        "lower_bound_gpu_count": "5",
    }


def test_every_path_of_a_candidate_leads_somewhere(plan):
    for name, value in ((each.name, each.value) for each in COLUMNS):
        found = [value(candidate) for candidate in plan.candidates]
        known = name in ("infeasible_reason", "pruned_reason", "launch_notes")
        known = known or name.startswith("cautious_")  # of one in doubt
        known = known or name.startswith(("prefill_", "decode_"))  # of two pools
        assert known or found[0] is not None or name in _UNKNOWN_OF_A_TRACE


_UNKNOWN_OF_A_TRACE = {"settled", "recovery_s", "peak"}  # of a short one
_UNKNOWN_OF_A_TRACE |= {"node_count"}  # of GPUs priced one by one
_UNKNOWN_OF_A_TRACE |= {"sessions"}  # of requests that just arrive


@pytest.mark.parametrize("path", ["nothing", "run.nothing", "probes.x"])
def test_a_path_that_leads_nowhere_is_an_error(best, path):
    with pytest.raises((AttributeError, KeyError)):
        at(best, path)


def test_only_columns_with_a_heading_are_shown():
    assert 0 < len(Table(COLUMNS, ()).shown) < len(COLUMNS)


def test_a_column_shows_its_value_in_its_format():
    found = column("real", heading="real part", show=lambda value: f"<{value}>")

    assert found.text(3 + 4j) == "<3.0>"
    assert math.isclose(found.value(2j), 0)


def test_a_column_within_a_part_is_empty_where_there_is_no_part():
    inner = column("end", path="1").within("part")

    assert inner.value({"part": (1, 2)}) == 2
    assert inner.text({"part": None}) == DASH
