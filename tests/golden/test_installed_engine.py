"""An installed vLLM still schedules as the one that was recorded.

Runs where ``vllm`` can be imported, or where ``CAPPLAN_VLLM_PYTHON`` names a Python
that can.
"""

import gzip
import importlib.util
import os
import sys
from functools import partial

import judged
import pytest
import recorded_disaggregated
from compare import DATA, case, run
from random_cases import (
    FEATURES,
    random_cut_drafts,
    random_drafted_states,
    random_set,
    random_states,
)
from recorded import first_difference, read

TAGS = [
    "just_fits_a0",
    "just_fits_a1",
    "groups_a1",
    "turns_a1",
    "drafts_preempt_a0",
    "drafts_cached_a1",
    "images_cached_a1",
    "drafted_states_tight_a1",
    "lora_drafts_a0",
    "priority_images_a1",
]


def python_with_vllm() -> str:
    named = os.environ.get("CAPPLAN_VLLM_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed and CAPPLAN_VLLM_PYTHON names no Python")
    return sys.executable


DRAWS = [
    random_states,
    random_drafted_states,
    random_cut_drafts,
    partial(random_set, features=("cached", "lora")),
    partial(random_set, features=("cached", "images")),
]


def drawn(draw):
    """Return random cases by their tags."""
    return {case["tag"]: case for case in map(draw, range(24))}


def together():
    """Return random cases with all features by their tags."""
    seeds = 0, 2, 3, 6, 9, 12, 13, 14  # vLLM ends with others, or stands still
    return {each["tag"]: each for each in (random_set(s, FEATURES) for s in seeds)}


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """Record in one process, since vLLM takes seconds to start; return the folder."""
    folder = tmp_path_factory.mktemp("again")
    every = [{tag: case(tag) for tag in TAGS}, *map(drawn, DRAWS), together()]
    cases = {tag: each for part in every for tag, each in part.items()}
    assert len(cases) == sum(map(len, every))
    run(python_with_vllm(), "record.py", cases, folder)
    return folder


@pytest.mark.vllm
def test_the_installed_engine_schedules_as_the_recorded_one(again):
    found = [first_difference(read(again, tag)) for tag in TAGS]

    assert found == [""] * len(TAGS)


@pytest.mark.vllm
@pytest.mark.parametrize("draw", DRAWS)
def test_random_cases_are_scheduled_as_the_installed_engine_does(draw, again):
    found = {tag: first_difference(read(again, tag)) for tag in drawn(draw)}

    assert found == dict.fromkeys(found, "")


@pytest.mark.vllm
@pytest.mark.parametrize("compared", [first_difference, judged.first_difference])
def test_all_features_together_are_scheduled_as_the_installed_engine_does(
    compared, again
):
    found = {tag: compared(read(again, tag)) for tag in together()}

    assert found == dict.fromkeys(found, "")


SLOW = pytest.mark.slow  # each starts vLLM once more
# Four decode with drafts: of the budget less is left than a block of r4's prompt.
SHORT_OF_A_BLOCK = {
    **random_set(0, {"drafts", "lora", "states"}),
    "block_size": 16,
    "blocks": 200,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 24,
    "drafts": 3,
    "synthetic_length": 1,
    "max_loras": 2,
    "max_cpu_loras": 2,
    "requests": [
        *([0, 1, output, -1, 0, -1] for output in (60, 10, 15, 20)),
        [0, 64, 5, -1, 0, -1],
        [0.001, 5, 60, -1, 0, -1],
    ],
    "adapters": [0, 0, 0, 0, 1, 2],
}


@pytest.mark.vllm
@pytest.mark.parametrize(
    "one",
    [
        pytest.param(random_set(7, {"cached", "lora", "stages"}), marks=SLOW),
        pytest.param(random_set(55, {"cached", "images", "lora"}), marks=SLOW),
        SHORT_OF_A_BLOCK,
    ],
)
def test_the_installed_engine_ends_where_adapters_of_requests_sit_out(one, tmp_path):
    """Others take their place; where all run again, there are too many."""
    cases = {one["tag"]: {**one, "async_sched": 1}}

    with pytest.raises(RuntimeError, match=r"len\(scheduled_loras\) <= "):
        run(python_with_vllm(), "record.py", cases, tmp_path)


@pytest.mark.vllm
def test_the_installed_engine_stands_still_where_images_wait_for_each_other(tmp_path):
    """A draft reads ahead: who is to go on needs two images, and others hold them."""
    one = {**random_set(47, {"cached", "drafts", "images"}), "async_sched": 1}

    with pytest.raises(RuntimeError, match="a request never fits"):
        run(python_with_vllm(), "record.py", {one["tag"]: one}, tmp_path)


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("folder", "tags"),
    [
        (DATA / "disaggregated", ["held_a0", "pair_tight_a1", "launch_fleet_a1"]),
        (DATA / "disaggregated_drafts", ["in_vain_a1", "launch_fleet_a1"]),
    ],
)
def test_the_installed_engine_hands_prompts_over_as_the_recorded_one(
    tmp_path, folder, tags
):
    cases = {tag: recorded_disaggregated.read(folder, tag).case for tag in tags}

    run(python_with_vllm(), "record_disaggregated.py", cases, tmp_path)

    for tag in tags:
        iterations, requests = f"iter_{tag}.csv.gz", f"req_{tag}.csv"
        kept = gzip.decompress((folder / iterations).read_bytes())
        assert gzip.decompress((tmp_path / iterations).read_bytes()) == kept
        assert (tmp_path / requests).read_bytes() == (folder / requests).read_bytes()
