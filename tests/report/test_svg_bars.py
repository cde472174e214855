"""Bars by hand: the longest is 252 px from x 132."""

from xml.etree import ElementTree

from capplan.report.charts.svg_bars import Bar, bars


def drawn(*rows):
    return list(ElementTree.fromstring(bars("price", rows)))


def test_bars_are_as_long_as_their_values_and_marks_stand_on_them():
    parts = drawn(Bar("a", 10.0, "$10"), Bar("b", 5.0, "$5", 2.5))

    assert [p.get("width") for p in parts if p.tag == "rect"] == ["252.0", "126.0"]
    assert "M195.0 31v15" in [p.get("d") for p in parts]
    assert [p.text for p in parts if p.tag == "text"] == ["a", "$10", "b", "$5"]


def test_what_has_no_value_has_a_text_and_no_bar():
    parts = drawn(Bar("<c>", None, "infeasible"))

    assert [p.tag for p in parts] == ["text", "text", "path"]
    assert parts[0].text == "<c>"


def test_a_bar_may_begin_beside_the_axis():
    (bar,) = [p for p in drawn(Bar("a", 10.0, "", start=5.0)) if p.tag == "rect"]

    assert (bar.get("x"), bar.get("width")) == ("258", "126.0")


def test_a_long_label_stands_left_of_its_bar_within_the_chart():
    label, *_ = [
        p
        for p in drawn(Bar("reserved, 12 months", 10.0, "$23,364*"))
        if p.tag != "path"
    ]

    # 17 letters of at most 8.6 px, ending at the axis.
    assert label.get("text-anchor") == "end"
    assert float(label.get("x")) >= 17 * 7.6
