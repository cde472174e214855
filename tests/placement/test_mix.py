"""Mélange's allocation against optima proven elsewhere and cases worked by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.mix import MixProblem, allocate_mix, gpus_for, read_mix
from capplan.placement.result import Status

FILE = Path(__file__).parent / "data" / "mix_allocation.json"
PROVEN = json.loads(FILE.read_text())["proven_optimum_usd_per_h"]


@pytest.mark.thorough
@pytest.mark.parametrize("solver", ["scip", "highs"])
@pytest.mark.parametrize("case", PROVEN, ids=lambda case: f"{case['rate']}")
def test_proven_optimum_is_found_and_proven(case, solver):
    problem = read_mix(FILE, case["rate"], case["slices"])

    mix = allocate_mix(problem, solver)

    assert mix.status == Status.OPTIMAL
    assert mix.usd_per_h == pytest.approx(case["usd_per_h"], abs=1e-3)
    assert (gpus_for(problem, mix.slices) == mix.gpu_count).all()


def test_a_cheap_gpu_takes_what_it_can_and_the_rest_goes_to_the_other():
    # One $1 GPU serves bucket 0 alone; bucket 1 needs the $3 type, which has room for
    # half of bucket 0 as well, but not for all: 1 + 3 beats 3 + 3.
    problem = MixProblem(
        np.array([1.0, 1.0]),
        ("small", "large"),
        np.array([1.0, 3.0]),
        np.array([[1.0, 2.5], [0.0, 1.25]]),
        slices=2,
    )

    mix = allocate_mix(problem)

    assert mix.gpu_count.tolist() == [1, 1]
    assert mix.usd_per_h == 4
    assert mix.gap == 0


def test_an_allocation_that_leaves_a_slice_out_is_refused():
    problem = read_mix(FILE, 32, 4)
    mix = allocate_mix(problem)
    spoiled = mix.slices.copy()
    spoiled[np.argwhere(spoiled > 0)[0][0]] = 0

    with pytest.raises(InputError, match="sum"):
        gpus_for(problem, spoiled)


def test_a_bucket_that_no_gpu_serves_is_named():
    with pytest.raises(InputError, match="bucket 1 fits no GPU type"):
        MixProblem(np.ones(2), ("a",), np.ones(1), np.array([[1.0], [0.0]]))


def test_a_file_without_gpus_is_refused(tmp_path):
    file = tmp_path / "mix.json"
    file.write_text('{"share_of_requests": [[1]]}')

    with pytest.raises(InputError, match=r"mix.json: 'gpus' is missing"):
        read_mix(file, 1, 4)


def test_cp_sat_is_not_asked_for_shares_of_a_gpu():
    with pytest.raises(InputError, match="expected scip or highs"):
        allocate_mix(read_mix(FILE, 32, 4), "cp-sat")
