"""Exported models: readable by other solvers, whole or absent."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.lp_export import whole_model, write_model
from capplan.placement.problem import PlacementProblem
from capplan.placement.replica import affine_replica


def pair(**changes):
    """Return two requests of which each fills a replica's KV."""
    replica = affine_replica(20, fixed_s=0.01, request_s=0, context_s=0, max_batch=8)
    return PlacementProblem(
        replica, np.full(2, 15), np.full(2, 5), np.ones(2), np.ones(2), **changes
    )


def test_an_lp_file_names_objective_rows_and_binaries(tmp_path):
    write_model(pair(), tmp_path / "model.lp")

    text = (tmp_path / "model.lp").read_text()
    for part in ("Minimize", "y_0 + y_1", "e_0_5", "Binaries", "x_1_1", "End"):
        assert part in text


def test_bins_are_those_of_best_fit_within_the_limit():
    assert len(whole_model(pair()).replicas) == 2
    assert len(whole_model(pair(max_replicas=1)).replicas) == 1


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"suffix is '.txt'; expected .lp or .mps"):
        write_model(pair(), tmp_path / "model.txt")


def test_a_folder_that_is_missing_is_named_and_nothing_is_left(tmp_path):
    with pytest.raises(InputError, match=r"model.lp: cannot be written"):
        write_model(pair(), tmp_path / "missing" / "model.lp")

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_replaced_whole(tmp_path):
    path = tmp_path / "model.mps"
    path.write_text("old")

    write_model(pair(), path)

    assert path.read_text().endswith("ENDATA\n")
    assert list(tmp_path.iterdir()) == [path]
