"""Plots are one HTML file that opens offline, and are complete or absent."""

import json
import re

import pytest

from capplan.errors import InputError
from capplan.latency.catalog import find_profile
from capplan.latency.measurements import points_from_rows
from capplan.latency.plots import write_plot

POINTS = points_from_rows([("decode", 8, 8, 1024, 0.02), ("prefill", 1, 512, 0, 0.02)])


@pytest.fixture(scope="module")
def profile():
    return find_profile("Llama-3.1-8B", "H100-SXM", 1)


def traces(path) -> list[dict]:
    text = path.read_text(encoding="utf-8")
    call = text[text.rindex("Plotly.newPlot(") :]
    return json.JSONDecoder().raw_decode(call[call.index("[") :])[0]


def test_a_profile_alone_is_drawn_as_curves_with_their_interval(profile, tmp_path):
    path = tmp_path / "deep" / "curves.html"

    write_plot(profile, path)

    names = [trace["name"] for trace in traces(path)]
    for context in ("512", "2,048", "8,192"):
        assert f"context {context}" in names
        assert f"context {context}, interval" in names
    assert "one prompt" in names
    assert not re.search(r'<script[^>]+src="http', path.read_text())


def test_points_add_residuals_of_the_phases_that_were_measured(profile, tmp_path):
    path = tmp_path / "residuals.html"

    write_plot(profile, path, POINTS)

    boxes = {t["name"]: t for t in traces(path) if t["type"] == "box"}
    assert set(boxes) == {"decode", "prefill"}
    assert "Measured against fitted" in path.read_text()


def test_without_a_known_error_no_interval_is_drawn(profile, tmp_path):
    path = tmp_path / "plain.html"

    write_plot(profile.model_copy(update={"errors": {}}), path)

    assert [t["name"] for t in traces(path) if "interval" in t["name"]] == []


@pytest.mark.parametrize("name", ["curves.png", "curves", "curves.html.gz"])
def test_a_name_that_is_no_web_page_is_refused(profile, tmp_path, name):
    with pytest.raises(InputError, match=r"expected a name in \.html"):
        write_plot(profile, tmp_path / name)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_refused_with_its_name(profile, tmp_path):
    (tmp_path / "taken").write_text("")

    with pytest.raises(InputError, match="taken is a file; expected a folder"):
        write_plot(profile, tmp_path / "taken" / "curves.html")
