"""The simulator schedules as the real engine did, iteration by iteration."""

from pathlib import Path

import pytest
from recorded import copies, first_difference, read, simulated, tags

from tests.uncompiled import in_python, is_set, run_uncompiled

HERE = Path(__file__).parent
OWN = HERE / "data"
SHARED = HERE.parents[2] / "shared" / "data" / "vllm_golden"
SESSIONS = SHARED.parent / "vllm_sessions"
OFFLOAD = SHARED.parent / "vllm_offload"
TIERS = OWN / "tiers"
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    "tag", ["chat_a0", "chat_a1", "chatevict_a0", "chatevict_a1", "tree_a0"]
)
def test_conversations_find_their_earlier_turns_as_the_engine_does(tag):
    if not SESSIONS.is_dir():
        pytest.skip(f"{SESSIONS} is absent; the recordings there are not shipped")

    difference = first_difference(read(SESSIONS, tag))

    assert difference == ""


RECORDED = {tag: read(OWN, tag) for tag in tags(OWN)}
OF_SETS = [tag for tag in RECORDED if is_set(RECORDED[tag].engine)]


@pytest.mark.parametrize("tag", [tag for tag in RECORDED if tag not in OF_SETS])
def test_the_schedule_is_that_of_the_engine(tag):
    difference = first_difference(RECORDED[tag])

    assert difference == ""


@in_python
@pytest.mark.parametrize("tag", OF_SETS)
def test_the_schedule_of_a_set_is_that_of_the_engine(tag):
    test_the_schedule_is_that_of_the_engine(tag)


def assert_same_with_tier(folder, tag):
    """Assert that schedule and copies are those of the engine."""
    recording = read(folder, tag)
    assert first_difference(recording) == ""
    use = simulated(recording, record_iterations=True).pools[0].tier
    found = use.loads, use.loaded_blocks, use.stores, use.stored_blocks
    assert found == copies(folder, tag)
    flushed = sum(iteration["flushed"] != "" for iteration in recording.iterations)
    assert use.flushed_iterations == flushed


@in_python
@pytest.mark.parametrize("tag", tags(TIERS))
def test_a_tier_is_that_of_the_engine(tag):
    assert_same_with_tier(TIERS, tag)


@in_python
@pytest.mark.parametrize("tag", ["off_a0", "off_a1", "offall_a1"])
def test_a_tier_is_that_of_the_engine_on_a_shared_recording(tag):
    if not OFFLOAD.is_dir():
        pytest.skip(f"{OFFLOAD} is absent; the recordings there are not shipped")

    assert_same_with_tier(OFFLOAD, tag)


@pytest.mark.thorough
def test_the_schedules_of_sets_are_those_of_the_engine_without_compilation():
    # With async scheduling, on what is shipped; the others are slow.
    run_uncompiled(__file__, "-k", "_a1 and not shared")


def test_before_0_24_a_full_cache_evicted_another_block():
    old, new = (read(folder, "full_cache_a1") for folder in (OWN / "vllm-0.23.0", OWN))

    difference = first_difference(old)

    assert difference == "iteration 26: engine ran r3:16+24, simulator r3:32+8"
    assert new.iterations[26]["sched"] == "r3:32+8"
