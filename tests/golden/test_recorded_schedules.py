"""The simulator schedules as the real engine did, iteration by iteration."""

from pathlib import Path

import pytest
from recorded import first_difference, read, simulated, tags

HERE = Path(__file__).parent
OWN = HERE / "data"
SHARED = HERE.parents[2] / "shared" / "data" / "vllm_golden"
SHARED_TAGS = [
    f"{name}_a{depth}"
    for name in ("sharegpt", "seqs16", "azure_preempt", "mooncake_chunk", "prefix")
    for depth in (0, 1)
]


@pytest.mark.thorough
@pytest.mark.parametrize("tag", SHARED_TAGS)
def test_the_schedule_is_that_of_the_engine_on_a_shared_recording(tag):
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent; the recordings there are not shipped")

    difference = first_difference(read(SHARED, tag))

    assert difference == ""


OWN_TAGS = tags(OWN)
WITH_ANSWERS_FOUND = [tag for tag in OWN_TAGS if read(OWN, tag).finds_answers]


@pytest.mark.parametrize("tag", sorted({*OWN_TAGS} - {*WITH_ANSWERS_FOUND}))
def test_the_schedule_is_that_of_the_engine(tag):
    difference = first_difference(read(OWN, tag))

    assert difference == ""


@pytest.mark.parametrize("tag", WITH_ANSWERS_FOUND)
def test_the_engine_finds_earlier_turns_that_the_simulator_computes_again(tag):
    recording = read(OWN, tag)

    found = simulated(recording, record_iterations=False).times.cached_tokens

    engine = sum(int(row["cached_tokens"]) for row in recording.requests)
    assert engine == 2640
    assert found.sum() == 0


def test_before_0_24_a_full_cache_evicted_another_block():
    old, new = (read(folder, "full_cache_a1") for folder in (OWN / "vllm-0.23.0", OWN))

    difference = first_difference(old)

    assert difference == "iteration 26: engine ran r3:16+24, simulator r3:32+8"
    assert new.iterations[26]["sched"] == "r3:32+8"
