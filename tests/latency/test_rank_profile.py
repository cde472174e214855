"""Profiles of ranks: their files, what is refused, and where they are found."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from capplan.errors import CapplanError, InputError, ProfileError
from capplan.latency.catalog import (
    find_profile,
    folders_of_tp,
    list_profiles,
    named_rank_profile,
    rank_profiles,
)
from capplan.latency.profile_file import (
    load_profile,
    load_rank_profile,
    profile_text,
    save_profile,
)
from capplan.latency.rank_profile import RankProfile
from capplan.latency.rank_tables import RankWork
from capplan.llm.layout import parse_layout
from capplan.shipped import shipped

CONTENT = {
    "gpu": "H200-SXM",
    "llm": "DeepSeek-R1",
    "tp": 1,
    "dp": 4,
    "ep": 4,
    "engine": "vllm",
    "source": "a test",
    "how": "kernel-sum",
    "all_to_all": "deepep",
    "imbalance": 1.5,
    "decode_form": "aladdin",
    "fused_form": "aladdin",
    "decode": {"constant_s": 1e-3, "per_request_s": 1e-5, "per_context_s": 1e-8},
    "fused": {"constant_s": 1e-3, "per_token_s": 2e-6},
    "experts": {"tokens": [4, 8, 4096], "tokens_s": [2e-3, 4e-3, 8e-3]},
    "experts_prefill": {"tokens": [4, 4096], "tokens_s": [3e-3, 9e-3]},
    "exchange": {"tokens": [1, 1024], "tokens_s": [1e-4, 1e-3]},
    "exchange_prefill": {"tokens": [1, 1024], "tokens_s": [2e-4, 2e-3]},
    "errors": {"experts": {"held_out_mean_abs": 0.02}},
}


def profile(**changes) -> RankProfile:
    return RankProfile.model_validate(CONTENT | changes)


def test_an_iteration_is_put_together_from_its_parts():
    tables = profile().rank_tables(64, 64)

    found_s = tables.iteration_time_s([RankWork(2, 1000)] * 4)

    # A 1000 + 20 + 10 µs, X 1.5 times the 4 ms of 8 tokens, C on the way to 1 ms.
    exchange_s = 1e-4 + (1e-3 - 1e-4) / 1023
    assert found_s == pytest.approx(1.03e-3 + 6e-3 + exchange_s)


def test_one_rank_of_a_profile_folds_into_the_tables_that_are_simulated():
    folded = profile(dp=1, tp=4).rank_tables(16, 16).folded()

    # A of 8 requests without context, X of 8 tokens times the imbalance, and C.
    exchange_s = 1e-4 + 7 * (1e-3 - 1e-4) / 1023
    assert folded.decode_s[8] == pytest.approx(1.08e-3 + 6e-3 + exchange_s)
    assert folded.check(16, 16) is folded


def test_a_part_without_work_takes_no_time():
    none = {"tokens": [1, 512], "tokens_s": [0.0, 0.0]}

    tables = profile(exchange=none).rank_tables(8, 8)

    assert not tables.exchange_s.any()


def test_a_profile_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "H200-SXM" / "DeepSeek-R1" / "dp4-ep4.deepep.yaml"

    save_profile(profile(), path)

    assert load_rank_profile(path) == profile()
    assert profile_text(load_rank_profile(path)) == path.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dp": 1, "ep": 1}, "tp1 is TP alone; expected DP or EP above 1"),
        ({"ep": 3}, "EP 3 does not divide the 4 GPUs .* expected EP 2"),
        ({"ep": 0}, "ep is 0; expected >= 1"),
        ({"dp": 4096}, "less than or equal to 1024"),
        ({"imbalance": 0.9}, "imbalance is 0.9; expected >= 1"),
        ({"nextn": -1}, "nextn is -1; expected >= 0"),
        ({"errors": {"moe": {}}}, "moe is no part; expected prefill, decode, mixed"),
        (
            {"experts": {"tokens": [8, 4], "tokens_s": [1e-3, 2e-3]}},
            "tokens must rise",
        ),
        (
            {"experts": {"tokens": [4, 8], "tokens_s": [1e-3]}},
            "tokens_s has 1 values; expected 2",
        ),
        ({"exchange": {"tokens": [], "tokens_s": []}}, "at least 1 item"),
        ({"experts": {"tokens": [4], "tokens_s": [-1.0]}}, "expected >= 0"),
        (
            {"experts": {"tokens": [4], "tokens_s": [1e9]}},
            "experts.tokens_s is 1000000000.0; expected at most",
        ),
        ({"speed": 3}, "unknown key speed"),
        ({"all_to_all": None}, "all_to_all"),
    ],
)
def test_a_forged_file_is_refused_in_one_line(tmp_path, change, message):
    path = tmp_path / "forged.yaml"
    path.write_text(
        yaml.safe_dump({"schema": "capplan-rank-profile/1"} | CONTENT | change)
    )

    with pytest.raises(CapplanError, match=message) as refused:
        load_rank_profile(path)

    assert "\n" not in str(refused.value)


def test_neither_kind_of_profile_is_read_as_the_other(tmp_path):
    tp_alone = next(entry for entry in list_profiles() if entry.tp == 8).path
    ranks = tmp_path / "H200-SXM" / "DeepSeek-R1" / "dp4-ep4.yaml"
    save_profile(profile(), ranks)

    with pytest.raises(ProfileError, match="expected 'capplan-rank-profile/1'"):
        load_rank_profile(tp_alone)
    with pytest.raises(ProfileError, match="expected 'capplan-profile/1'"):
        load_profile(ranks)


def test_profiles_of_ranks_beside_one_of_tp_are_not_taken_for_it(tmp_path):
    split = profile(tp=8, dp=1, ep=8)
    save_profile(split, tmp_path / "H200-SXM" / "DeepSeek-R1" / "tp8-ep8.yaml")
    with pytest.raises(InputError, match="no profile in it"):
        list_profiles([tmp_path])
    assert folders_of_tp([tmp_path]) == []

    tp_alone = find_profile("DeepSeek-R1", "H200-SXM", 8)
    save_profile(tp_alone, tmp_path / "mine.yaml")

    assert find_profile("DeepSeek-R1", "H200-SXM", 8, [tmp_path]) == tp_alone
    assert folders_of_tp([tmp_path]) == [tmp_path]
    found = named_rank_profile("H200-SXM/DeepSeek-R1/tp8-ep8", [tmp_path])
    assert found == split


def test_a_profile_of_ones_own_goes_before_those_shipped(tmp_path):
    save_profile(profile(), tmp_path / "any name.yml")

    names = ("H200/DeepSeek-R1/dp4-ep4", "H200/DeepSeek-R1/dp4-ep4.deepep")

    assert [named_rank_profile(name, [tmp_path]) for name in names] == [profile()] * 2
    assert named_rank_profile("H200/DeepSeek-R1/dp4-ep4.other", [tmp_path]) is None
    assert named_rank_profile("dp4-ep4", [tmp_path]) is None
    only = tmp_path / "any name.yml"
    assert next(rank_profiles([only])) == profile()
    with pytest.raises(InputError, match="no such file"):
        next(rank_profiles([tmp_path / "absent"]))


SHIPPED = sorted(
    path
    for path in shipped("profiles").glob("*/*/*.yaml")
    if "dp" in path.name or "ep" in path.name
)


def test_profiles_of_ranks_are_shipped():
    assert len(SHIPPED) > 100


@pytest.mark.thorough
def test_shipped_profiles_of_ranks_are_of_what_their_paths_say():
    for path in SHIPPED:
        found = load_rank_profile(path)
        layout, *qualities = path.name.removesuffix(".yaml").split(".")

        assert (found.gpu, found.llm) == path.parts[-3:-1], path
        assert found.layout == parse_layout(layout), path
        assert set(qualities) <= {found.engine, found.all_to_all}, path


@pytest.mark.thorough
def test_shipped_profiles_of_ranks_take_longer_with_more_requests():
    for path in SHIPPED:
        found = load_rank_profile(path)
        tables = found.rank_tables(256, 8192)
        batches = (1, 8, 64, 256)
        times_s = [
            tables.iteration_time_s([RankWork(b, 1024 * b)] * tables.ranks)
            for b in batches
        ]

        assert np.all(np.diff(times_s) > 0), path
        assert times_s[0] > 1e-3, path


def test_a_folder_of_shipped_profiles_lists_tp_degrees_alone():
    for listed in list_profiles():
        assert listed.path.name == f"tp{listed.tp}.yaml"
        assert Path(listed.path).is_file()
