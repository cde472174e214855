"""Texts of the report stand out from what is behind them, in both themes."""

import re
from pathlib import Path

import pytest

import capplan.report.render
from capplan.report.charts.svg_chart import COLOURS

CSS = Path(capplan.report.render.__file__).with_name("report.css").read_text()
LEAST = 4.5
"""Contrast of text, WCAG 2.2, 1.4.3."""
LEAST_LINE = 3.0
"""Contrast of lines of charts, 1.4.11."""
BEHIND = {
    "paper": ("ink", "soft", "good", "warn", "bad", "accent"),
    "tint": ("ink", "soft", "good", "warn", "bad", "accent"),
    "best": ("ink", "soft", "good", "warn"),
    "care": ("ink",),
    "fault": ("ink",),
    "grid": ("ink", "soft", "accent"),
}
"""Variables of backgrounds, and of the texts on them."""


def themes():
    """Return the variables of the light theme and of the dark one."""
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)[:2]
    found = dict(re.findall(r"--(\w+): (#\w+)", light))
    return {"light": found, "dark": found | dict(re.findall(r"--(\w+): (#\w+)", dark))}


def full(colour):
    """Return a colour in six digits."""
    return colour if len(colour) == 7 else "#" + "".join(2 * x for x in colour[1:])


def luminance(colour):
    parts = [int(full(colour)[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
    ]
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def mixed(one, other, share):
    """Return a colour with a share of one on the other."""
    ends = [[int(x[k : k + 2], 16) for k in (1, 3, 5)] for x in (one, full(other))]
    parts = zip(*ends, strict=True)
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_judge_knows_black_on_white_and_the_grey_that_just_passes():
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#fff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("behind", "text"), [(b, text) for b, texts in BEHIND.items() for text in texts]
)
def test_each_text_has_the_contrast_that_readers_need(theme, behind, text):
    colours = themes()[theme]

    assert contrast(colours[text], colours[behind]) >= LEAST


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("behind", ["paper", "grid"])
def test_labels_within_the_traffic_of_a_day_are_read(theme, behind):
    colours = themes()[theme]
    (share,) = map(float, re.findall(r"\.day \{[^}]*fill-opacity: ([\d.]+)", CSS))

    filled = mixed(colours["accent"], colours[behind], share)

    assert contrast(colours["ink"], filled) >= LEAST


@pytest.mark.parametrize("colour", COLOURS)
def test_white_numbers_on_the_replicas_of_a_map_are_read(colour):
    assert contrast("#fff", colour) >= LEAST


@pytest.mark.parametrize("colour", COLOURS)
def test_lines_of_charts_are_told_from_white_paper(colour):
    assert contrast(colour, "#fff") >= LEAST_LINE


def test_every_colour_of_a_text_is_a_variable_that_is_tested():
    named = set(re.findall(r"(?<![-\w])color: var\(--(\w+)\)", CSS))
    named |= set(re.findall(r"svg text[^{]*\{ fill: var\(--(\w+)\)", CSS))

    assert named
    assert named <= {text for texts in BEHIND.values() for text in texts}
    assert not re.findall(r"(?<![-\w])color: #", CSS)
