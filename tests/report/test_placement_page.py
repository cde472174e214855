"""A placement as text, JSON, CSV and HTML."""

import csv
import io
import json

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.mip import solve
from capplan.placement.problem import PlacementProblem
from capplan.placement.replica import affine_replica
from capplan.placement.result import Placement, Status
from capplan.planning.plan.placing import Placed
from capplan.planning.settings.place import PlaceSettings
from capplan.report import to_files
from capplan.report.pages.placement import (
    facts,
    headline,
    placement_page,
    placement_values,
)
from capplan.report.render.csv_table import table_csv
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text


@pytest.fixture
def problem():
    """Four requests, two to a replica by KV; the third has a name with markup."""
    replica = affine_replica(20, fixed_s=0.01, request_s=0, context_s=1e-6, max_batch=8)
    return PlacementProblem(
        replica,
        np.full(4, 5),
        np.full(4, 5),
        np.ones(4),
        np.ones(4),
        names=("a", "b", "<c>", "d"),
    )


def rows_of(problem, placement):
    return table_csv(placement_page(Placed(problem, placement)).csv["placement.csv"])


def known(status, count, bound, **more):
    return Placement(status, None, count, bound, "volume", "x", "x", "", 2.5, **more)


@pytest.mark.parametrize(
    ("placement", "sentence"),
    [
        (known(Status.OPTIMAL, 1, 1), "1 replica, and no fewer are possible."),
        (
            known(Status.FEASIBLE, 4, 3),
            "4 replicas; at least 3 needed (gap 25 %, not proven optimal).",
        ),
        (
            known(
                Status.INFEASIBLE, None, 3, conflict=("at most 2 replicas", "(e) KV")
            ),
            "No placement: at most 2 replicas and (e) KV exclude it.",
        ),
        (
            known(Status.UNKNOWN, None, 3),
            "No placement found in 2.5 s; at least 3 replicas needed.",
        ),
    ],
)
def test_the_headline_says_what_is_proven(placement, sentence):
    assert headline(placement) == sentence


def test_json_csv_and_page_agree(problem):
    placement = solve(problem)

    document = json.loads(json_text(placement_values(problem, placement)))
    rows = list(csv.DictReader(io.StringIO(rows_of(problem, placement))))
    page = html(placement_page(Placed(problem, placement)))

    assert document["replica_count"] == document["lower_bound"] == 2
    assert document["gap"] == 0
    assert [row["name"] for row in rows] == ["a", "b", "<c>", "d"]
    for row, request in zip(rows, document["requests"], strict=True):
        assert int(row["replica"]) == request["replica"]
    assert [load["kv_peak_tokens"] for load in document["replicas"]] == [20, 20]
    assert "100\u00a0% (20 of 20)" in page
    assert headline(placement) in page


def test_without_a_placement_the_files_say_so(problem):
    placement = known(Status.UNKNOWN, None, 2)

    document = json.loads(json_text(placement_values(problem, placement)))

    assert (document["replica_count"], document["gap"]) == (None, None)
    assert document["replicas"] == document["requests"] == []
    assert rows_of(problem, placement) == ""
    assert "No placement found" in html(placement_page(Placed(problem, placement)))


def test_facts_count_new_and_ongoing_requests(problem):
    placement = solve(problem)

    assert ("requests", "4: 4 new, 0 that keep their replica") in facts(
        problem, placement
    )


def test_results_and_export_are_written_where_the_settings_say(
    problem, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "capplan.planning.plan.placing.place",
        lambda _: Placed(problem, solve(problem)),
    )
    settings = PlaceSettings(out=tmp_path / "out", export=tmp_path / "model.lp")

    _, written = to_files.place(settings)

    names = ["placement.json", "placement.csv", "report.html", "report.md"]
    assert [path.name for path in written] == names
    assert all(path.stat().st_size > 0 for path in written)
    assert (tmp_path / "model.lp").read_text().startswith("\\*")


def test_an_export_into_no_folder_is_refused_before_the_work(tmp_path):
    with pytest.raises(InputError, match="missing is not a folder"):
        to_files.place(PlaceSettings(export=tmp_path / "missing" / "m.lp"))


def test_results_into_a_file_are_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="expected a folder"):
        to_files.place(PlaceSettings(out=tmp_path / "file"))
