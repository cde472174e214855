"""Coordinates of charts, by hand: the plot is x 58 to 466, y 236 (bottom) to 12."""

from xml.etree import ElementTree

import numpy as np
import pytest

from capplan.report.charts.svg_chart import (
    COLOURS,
    MOST_LINES,
    WIDTH,
    Axis,
    Line,
    Rule,
    chart,
    figure,
    legend_of,
)

X = Axis("load", str, 0.0, 10.0, ticks=(0.0, 10.0))
Y = Axis("share", str, 0.0, 100.0, ticks=(0.0, 50.0, 100.0))


def drawn(lines=(), rules=(), x=X, y=Y):
    """Return the elements of a chart by class or tag, in order."""
    parts = {}
    for part in ElementTree.fromstring(chart(x, y, lines, rules)):
        parts.setdefault((part.tag, part.get("class")), []).append(part)
    return parts


def path(parts, name="line"):
    return [part.get("d") for part in parts.get(("path", name), [])]


def line(x, y, **extra):
    return Line("a", np.array(x, float), np.array(y, float), **extra)


def test_a_line_goes_from_the_lower_left_to_the_upper_right_corner():
    parts = drawn([line([0, 5, 10], [0, 50, 100])])

    assert path(parts) == ["M58.0 236.0L262.0 124.0L466.0 12.0"]


def test_the_middle_of_a_log_axis_is_the_geometric_mean_and_zero_its_end():
    log = Axis("load", str, 1.0, 100.0, log=True)

    parts = drawn([line([0, 10, 100], [0, 0, 0])], x=log)

    # The last label, "100.0", is 34 px wide: half of it stands beyond the axis.
    assert path(parts) == ["M58.0 236.0L260.0 236.0L462.0 236.0"]


def test_points_outside_are_drawn_at_the_ends_of_the_axes():
    assert path(drawn([line([-5, 20], [-1, 101])])) == ["M58.0 236.0L466.0 12.0"]


def test_points_that_are_not_finite_are_left_out():
    parts = drawn([line([0, 5, np.inf, 10], [0, np.nan, 50, 100])])

    assert path(parts) == ["M58.0 236.0L466.0 12.0"]
    assert path(drawn([line([1], [np.nan])])) == []


def test_lines_have_different_colours_in_order():
    parts = drawn([line([0, 10], [0, 0]), line([0, 10], [1, 1])])

    strokes = [part.get("stroke") for part in parts["path", "line"]]
    assert strokes == list(COLOURS[:2])


def test_every_tick_is_a_grid_line_with_its_value():
    parts = drawn()

    assert path(parts, "grid") == [
        *("M58 236.0H466", "M58 124.0H466", "M58 12.0H466"),
        *("M58.0 12V236", "M466.0 12V236"),
    ]
    texts = [part.text for part in parts["text", None]]
    assert texts == ["0.0", "50.0", "100.0", "0.0", "10.0"]


@pytest.mark.parametrize(
    ("rule", "where"),
    [(Rule("r", y=75), "M58 68.0H466"), (Rule("r", x=2.5), "M160.0 12V236")],
)
def test_a_rule_crosses_the_plot(rule, where):
    assert path(drawn(rules=[rule]), "rule") == [where]


@pytest.mark.parametrize("rule", [Rule("r", x=11), Rule("r", y=-1), Rule("r")])
def test_a_rule_outside_the_axes_is_not_drawn(rule):
    assert path(drawn(rules=[rule]), "rule") == []


def test_error_bars_go_from_low_to_high():
    bars = line([0, 10], [50, 50], low=np.array([25, 0]), high=np.array([75, 100]))

    parts = drawn([bars])

    assert path(parts, "bar") == ["M58.0 180.0V68.0", "M466.0 236.0V12.0"]


def test_circles_are_filled_where_said_and_name_their_values():
    parts = drawn([line([0, 10], [0, 100], markers=True, filled=(True, False))])

    circles = parts["circle", None]
    assert [(c.get("cx"), c.get("cy")) for c in circles] == [
        ("58.0", "236.0"),
        ("466.0", "12.0"),
    ]
    assert [c.get("fill") for c in circles] == [COLOURS[0], "#fff"]
    assert [c[0].text for c in circles] == ["0.0: 0.0", "10.0: 100.0"]


def test_circles_are_filled_by_default():
    parts = drawn([line([0, 10], [0, 100], markers=True)])

    assert {circle.get("fill") for circle in parts["circle", None]} == {COLOURS[0]}


def test_labels_are_escaped():
    evil = '"><script>'

    svg = chart(Axis(evil, str, 0, 1), Y, [], [Rule(evil, y=50)])

    assert "<script" not in svg
    assert ElementTree.fromstring(svg).get("aria-label") == f"share against {evil}"


def test_the_sixth_line_has_the_first_colour_and_dashes_in_its_legend():
    lines = [line([0, 10], [y, y]) for y in range(6)]

    drawn_lines = drawn(lines)["path", "line"]
    _, swatch = legend_of(lines)[5]
    assert drawn_lines[5].get("stroke") == COLOURS[0]
    assert drawn_lines[5].get("stroke-dasharray") == "5 3 1 3"
    assert drawn_lines[0].get("stroke-dasharray") is None
    assert f"{COLOURS[0]} 8px 9px" in swatch


def test_six_lines_are_told_apart_without_colours_and_the_rest_is_grey():
    lines = [line([0, 10], [y, y]) for y in range(17)]

    parts = drawn(lines)["path", "line"]

    rest, told = parts[:11], parts[11:]  # the rest lies below
    assert len({part.get("stroke-dasharray") for part in told}) == MOST_LINES
    assert {part.get("stroke") for part in rest}.isdisjoint(COLOURS)
    assert [label for label, _ in legend_of(lines)] == ["a"] * 6 + ["11 more"]


def test_points_that_no_line_joins_have_a_shape_each_in_the_legend_too():
    lines = [line([k], [50], markers=True, joined=False) for k in range(3)]

    parts = drawn(lines)

    assert len(parts["circle", None]) == 1
    assert len({part.get("d").split("m")[1] for part in parts["path", None]}) == 2
    assert [label[0] for label, _ in legend_of(lines)] == list("●■▲")


def test_no_label_lies_in_the_plot_where_lines_are_and_the_legend_has_those_of_rules():
    rules = [Rule("asked 50 %", y=50), Rule("limit", x=3), Rule("outside", y=200)]

    found = figure("a", X, Y, [line([0, 10], [0, 100])], rules)

    for text in ElementTree.fromstring(found.svg).iter("text"):
        beside = text.get("text-anchor") == "end" and float(text.get("x")) < 58
        below = float(text.get("y") or 0) > 236
        assert beside or below or "rotate(-90)" in text.get("transform", "")
    assert [label for label, _ in found.legend] == ["asked 50 %", "limit"]


@pytest.mark.parametrize("most", [90.0, 4e5, 3e7])
def test_no_label_of_a_tick_is_cut_or_lies_over_that_of_its_axis(most):
    axis = Axis("tokens", "{:,.0f}".format, 0.0, most)

    svg = ElementTree.fromstring(chart(axis, axis, []))

    ends, middles = [], []
    for text in svg.iter("text"):
        # Digits are about 7.5 px wide at this size, commas half of it.
        wide = 7.5 * len(text.text.replace(",", "")) + 3.7 * text.text.count(",")
        if text.get("text-anchor") == "end":
            ends.append(float(text.get("x")) - wide)
        elif text.get("class") is None:
            middles.append(float(text.get("x")) + wide / 2)
    assert min(ends) >= 16  # where the axis's own label ends
    assert max(middles) <= WIDTH


def test_wide_numbers_leave_room_for_the_name_of_the_axis_in_a_wide_font():
    y = Axis("tokens/s", "{:,.0f}".format, 0, 200_000)
    x = Axis("hour", str, 0, 10, ticks=(0, 10))

    parts = list(ElementTree.fromstring(chart(x, y, [])))

    ends = [p for p in parts if p.get("text-anchor") == "end" and p.text == "200,000"]
    # 6 digits of 8.6 px and a comma of 4.3 px in DejaVu Sans; the name takes 17 px.
    assert float(ends[0].get("x")) - (6 * 8.6 + 4.3) >= 17


def test_a_sign_before_a_number_has_room_too():
    x = Axis("fitted", str, 0, 10, ticks=(0, 10))
    y = Axis("measured over fitted", "{:+.1%}".format, -0.02, 0.02)

    parts = list(ElementTree.fromstring(chart(x, y, [])))

    at = [p for p in parts if p.text == "+2.0%"][-1]
    # 11.3 px of the sign, two digits, a point and 12.8 px of the % in DejaVu Sans; the
    # letters of the name stand on a line at 13 px.
    assert float(at.get("x")) - (11.3 + 2 * 8.6 + 4.3 + 12.8) >= 15


def test_spans_go_from_x_until_there_and_are_a_pixel_wide_at_least():
    ends = {"low": np.array([0.0, 50]), "high": np.array([50.0, 100])}
    span = line([0, 5], [25, 75], until=np.array([5.0, 5]), **ends)

    parts = drawn([span])

    first, second = parts["rect", "span"]
    assert (first.get("x"), first.get("width")) == ("58.0", "204.0")
    assert (first.get("y"), first.get("height")) == ("124.0", "112.0")
    assert (second.get("x"), second.get("width")) == ("262.0", "1.0")
    assert path(parts) == []
