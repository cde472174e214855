"""Charts of a profile are one HTML file that opens offline, complete or absent."""

import re

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.latency.catalog import find_profile
from capplan.latency.measurements import points_from_rows
from capplan.report.charts.profile import profile_figures
from capplan.report.charts.svg_chart import Axis, Line, chart
from capplan.report.pages.profiles import write_plot

POINTS = points_from_rows([("decode", 8, 8, 1024, 0.02), ("prefill", 1, 512, 0, 0.02)])


@pytest.fixture(scope="module")
def profile():
    return find_profile("Llama-3.1-8B", "H100-SXM", 1)


def test_a_profile_alone_is_drawn_as_curves_with_their_interval(profile, tmp_path):
    path = tmp_path / "deep" / "curves.html"

    write_plot(profile, path)

    shown = path.read_text(encoding="utf-8")
    for context in ("512", "2,048", "8,192"):
        assert f"context {context}" in shown
    assert shown.count('class="area"') == 4  # of each curve
    assert "src=" not in shown
    assert "profile.json" not in shown  # there is none beside it


def test_points_add_residuals_of_the_phases_that_were_measured(profile):
    figures = {figure.title: figure for figure in profile_figures(profile, POINTS)}

    residuals = figures["Residual by phase"]
    assert [label for label, _ in residuals.legend] == ["● prefill", "■ decode"]
    assert residuals.svg.count("<title>") == 2
    assert "Measured against fitted" in figures


def test_without_a_known_error_no_interval_is_drawn(profile):
    figures = profile_figures(profile.model_copy(update={"errors": {}}))

    assert not any('class="area"' in figure.svg for figure in figures)


def test_the_shaded_area_ends_at_low_and_high():
    ends = np.array([0.0, 10.0])
    line = Line("x", ends, ends, ends - 1, ends + 2, shaded=True)
    axis = Axis("x", str, -10.0, 20.0)

    svg = chart(axis, axis, [line])

    area = re.search(r'class="area"[^>]* d="M([^"]*)Z"', svg).group(1)
    corners = [tuple(map(float, point.split())) for point in area.split("L")]
    # y grows downwards, and a third of the axis is ten units.
    tenth = (corners[0][1] - corners[1][1]) / 10
    assert len(corners) == 4
    assert corners[0][1] - corners[3][1] == pytest.approx(3 * tenth, abs=0.2)
    assert corners[1][1] - corners[2][1] == pytest.approx(3 * tenth, abs=0.2)


@pytest.mark.parametrize("name", ["curves.png", "curves", "curves.html.gz"])
def test_a_name_that_is_no_web_page_is_refused(profile, tmp_path, name):
    with pytest.raises(InputError, match=r"expected a name in \.html"):
        write_plot(profile, tmp_path / name)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_refused_with_its_name(profile, tmp_path):
    (tmp_path / "taken").write_text("")

    with pytest.raises(InputError, match="taken is a file; expected a folder"):
        write_plot(profile, tmp_path / "taken" / "curves.html")
