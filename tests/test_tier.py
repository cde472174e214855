"""Tiers as users write them, and what is refused beside them."""

from dataclasses import replace

import pytest

from capplan.conflicts import conflict_of
from capplan.deployment.engine import EngineSettings
from capplan.deployment.features import features_of_engine
from capplan.deployment.speculation import Speculation
from capplan.deployment.tier import Tier, parse_tier
from capplan.errors import InputError
from capplan.planning.settings.plan import SimulateSettings
from capplan.simulator.checks import check_tier
from capplan.units import parse_duration_s

CHUNKS = "vllm-native@0.32:chunks=3000,blocks_per_chunk=1,answers=0,latency=0.05ms"
TIER = Tier(chunks=10)


def test_a_tier_is_written_in_chunks_and_times():
    tier = parse_tier(f"{CHUNKS},load_block=0.08ms,store_block=0.09ms")

    assert tier == Tier(
        "0.32",
        chunks=3000,
        latency_s=0.05e-3,
        load_block_s=0.08e-3,
        store_block_s=parse_duration_s("0.09ms"),
    )
    assert tier.is_sized


def test_a_tier_in_gib_is_sized_by_the_blocks_of_all_gpus():
    """64 GiB hold 2^16 chunks of 2 blocks of 256 KiB on each of 2 GPUs."""
    tier = parse_tier("vllm-native:gib=64,read=50GB/s,write=25GB/s,blocks_per_chunk=2")

    sized = tier.sized(block_bytes=2**18, copies=2)

    assert sized.version == "0.33"
    assert sized.chunks == 2**16
    assert sized.load_block_s == pytest.approx(2**18 / 50e9)
    assert sized.store_block_s == pytest.approx(2**18 / 25e9)


def test_a_chunk_takes_whole_pages():
    assert Tier(gib=1.0, read_gb_per_s=1, write_gb_per_s=1).sized(5000, 1).chunks == (
        2**30 // 8192
    )


def test_links_of_which_nothing_is_said_are_assumed():
    assert parse_tier("vllm-native:gib=1").is_assumed
    assert not parse_tier("vllm-native:gib=1,read=1GB/s,write=1GB/s").is_assumed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("vllm:chunks=3", "'vllm' is not known; did you mean vllm-native"),
        ("vllm-native@0.31:gib=1", "rules are known of vllm-native@0.32 and @0.33"),
        ("vllm-native", "expected chunks or gib"),
        ("vllm-native:gib=1,chunks=2", "expected chunks or gib"),
        ("vllm-native:gib=1,read=0GB/s", "read is 0GB/s; expected > 0 GB/s"),
        ("vllm-native:gib=1,read=3", "is not a bandwidth"),
        ("vllm-native:gib=1,load_block=1ms", "expected load_block and store_block"),
        ("vllm-native:gib=1,read=1GB/s,load_block=1ms", "expected read or load_block"),
        ("vllm-native:gib=x", "gib is 'x'; expected a number"),
        ("vllm-native:gip=1", "'gip' is not a setting; did you mean gib"),
    ],
)
def test_what_is_no_tier_is_refused_in_one_line(given, said):
    with pytest.raises(InputError) as refused:
        parse_tier(given)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_tier_in_gib_needs_the_bytes_of_a_block():
    with pytest.raises(InputError, match="the bytes of a KV block are not known"):
        parse_tier("vllm-native:gib=1").sized(0, 1)


def test_lmcache_is_an_estimate_by_vllms_rules_in_larger_chunks():
    tier = parse_tier("lmcache:gib=64,read=50GB/s,write=25GB/s")

    assert tier.name == "lmcache"
    assert tier == replace(
        parse_tier("vllm-native:gib=64,read=50GB/s,write=25GB/s,blocks_per_chunk=16"),
        preset="lmcache",
    )
    assert parse_tier("lmcache:gib=64,blocks_per_chunk=4").blocks_per_chunk == 4
    with pytest.raises(InputError, match=r"lmcache has no @0\.5"):
        parse_tier("lmcache@0.5:gib=64")


def test_a_tier_is_refused_without_prefix_caching():
    engine = EngineSettings(tier=TIER, prefix_caching=False)

    with pytest.raises(InputError, match="prefix_caching is False"):
        check_tier(engine)


def test_a_tier_is_not_modelled_beside_images_states_windows_and_ranks():
    engine = EngineSettings(tier=TIER, prefix_caching=True)
    assert conflict_of(features_of_engine(engine)) == ""

    ranks = replace(engine, data_parallel_size=2)
    windows = replace(engine, bounded_groups=1, bounded_blocks=4)

    for refused in (ranks, windows):
        assert "a tier of KV with" in conflict_of(features_of_engine(refused))


def test_answers_are_not_kept_beside_drafts():
    engine = EngineSettings(
        tier=replace(TIER, answers=True),
        prefix_caching=True,
        speculation=Speculation("mtp", (0.5,)),
    )

    assert "answers of a tier with speculative" in conflict_of(
        features_of_engine(engine)
    )


def test_host_memory_is_for_swapping_or_for_a_tier():
    with pytest.raises(InputError, match="host_kv_gib"):
        SimulateSettings(kv_offloading_size=4, host_kv_gib=4)
