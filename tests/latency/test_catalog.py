"""Where profiles are found: the user's folders first, then the shipped ones."""

import os

import pytest

from capplan.errors import InputError, ProfileError
from capplan.latency.catalog import (
    find_profile,
    known_profile,
    list_profiles,
    profile_path,
)
from capplan.latency.profile_file import save_profile
from capplan.llm.catalog import llm


@pytest.fixture
def shipped():
    profile = find_profile("Llama-3.1-8B", "H100-SXM", 1)
    assert profile is not None
    return profile


def store(profile, folder, tp=None):
    path = profile_path(folder, profile.gpu, profile.llm, tp or profile.tp)
    save_profile(profile, path)
    return path


def test_the_users_own_profile_comes_before_the_shipped(tmp_path, shipped):
    store(shipped.model_copy(update={"source": "my machine"}), tmp_path)

    profile = find_profile(shipped.llm, shipped.gpu, 1, [tmp_path])

    assert profile.source == "my machine"
    assert find_profile(shipped.llm, shipped.gpu, 1).source == shipped.source


def test_the_first_of_several_folders_wins(tmp_path, shipped):
    for name in ("first", "second"):
        store(shipped.model_copy(update={"source": name}), tmp_path / name)

    folders = [tmp_path / "first", tmp_path / "second"]

    assert find_profile(shipped.llm, shipped.gpu, 1, folders).source == "first"
    assert find_profile(shipped.llm, shipped.gpu, 1, folders[::-1]).source == "second"


@pytest.mark.parametrize(
    ("llm", "gpu", "tp"),
    [("Llama-3.1-8B", "H100-SXM", 7), ("Nothing-1B", "H100-SXM", 1)],
)
def test_a_profile_that_is_nowhere_is_none(llm, gpu, tp):
    assert find_profile(llm, gpu, tp) is None


@pytest.mark.parametrize(
    "name", ["mine.yaml", "a/b/c/d/mine.yml", "L4/Other-7B/tp8.yaml"]
)
def test_a_profile_is_found_by_its_content_wherever_it_lies(tmp_path, shipped, name):
    own = shipped.model_copy(update={"gpu": "machine-of-ours"})
    save_profile(own, tmp_path / name)
    (tmp_path / "scenario.yaml").write_text("rate: 3\n")
    (tmp_path / "broken.yaml").write_text("[")

    assert find_profile(own.llm, "machine-of-ours", 1, [tmp_path]) == own


def test_a_file_stands_for_a_folder_with_it_alone(tmp_path, shipped):
    path = store(shipped.model_copy(update={"source": "mine"}), tmp_path)

    assert find_profile(shipped.llm, shipped.gpu, 1, [path]).source == "mine"


def test_a_profile_that_was_changed_is_read_again(tmp_path, shipped):
    path = store(shipped.model_copy(update={"gpu": "before"}), tmp_path)
    list_profiles([tmp_path])
    path.write_text(path.read_text().replace("before", "after"))
    os.utime(path, ns=(0, 1))

    assert list_profiles([tmp_path])[0].gpu == "after"


def test_two_profiles_of_one_configuration_are_refused_by_name(tmp_path, shipped):
    for name in ("one.yaml", "two.yaml"):
        save_profile(shipped, tmp_path / name)

    with pytest.raises(ProfileError, match=r"one\.yaml and .*two\.yaml: both are of"):
        list_profiles([tmp_path])


def test_a_folder_without_a_profile_is_refused(tmp_path):
    (tmp_path / "scenario.yaml").write_text("rate: 3\n")

    with pytest.raises(InputError, match=r"no profile in it; expected \.yaml files"):
        list_profiles([tmp_path])
    with pytest.raises(InputError, match=r"absent: no such file or folder"):
        list_profiles([tmp_path / "absent"])


def test_a_file_that_calls_itself_a_profile_must_be_one(tmp_path, shipped):
    store(shipped, tmp_path)
    (tmp_path / "mine.yaml").write_text("schema: capplan-profile/1\ngpu: L4\n")

    with pytest.raises(ProfileError, match=r"mine\.yaml: key llm is missing"):
        list_profiles([tmp_path])


def test_a_list_is_sorted_by_degree_and_starts_with_the_users_own(tmp_path, shipped):
    for tp in (8, 16, 2):
        store(shipped.model_copy(update={"tp": tp}), tmp_path)

    own = list_profiles([tmp_path])[:3]

    assert [listed.tp for listed in own] == [2, 8, 16]
    assert all(tmp_path in listed.path.parents for listed in own)
    assert len(list_profiles([tmp_path])) == 3 + len(list_profiles())


@pytest.mark.parametrize("gpu", ["B300-SXM", "GB300", "RTX-PRO-6000"])
@pytest.mark.parametrize(
    "llm", ["Llama-3.1-70B-FP8", "Qwen3-235B-A22B-NVFP4", "gpt-oss-120b"]
)
def test_gpus_with_full_kernel_tables_have_profiles(gpu, llm):
    listed = [p for p in list_profiles() if (p.gpu, p.llm) == (gpu, llm)]

    assert {p.tp for p in listed} >= {2, 4}
    assert all(find_profile(llm, gpu, p.tp).how == "kernel-sum" for p in listed)


@pytest.mark.parametrize(
    ("name", "gpu", "tp"),
    [
        ("Qwen3.5-27B", "RTX-PRO-6000", 1),
        ("Qwen3.5-397B-A17B-NVFP4", "B200-SXM", 4),
        ("MiniMax-M3", "H200-SXM", 8),
        ("DeepSeek-V3.2", "B200-SXM", 8),
        ("GLM-5.2-FP8", "H200-SXM", 8),
        ("GLM-5.2-NVFP4", "GB300", 4),
        ("Gemma-4-26B-A4B", "H100-SXM", 1),
        ("Gemma-4-31B", "H200-SXM", 2),
        ("Kimi-K2.6-NVFP4", "GB200", 4),  # by the shapes of Kimi-K2.5
        ("Qwen3-VL-32B", "L40S", 2),  # by those of Qwen3
        ("Llama-3.3-70B-NVFP4", "B200-SXM", 1),
    ],
)
def test_llms_of_2026_have_profiles_of_measured_kernels(name, gpu, tp):
    found = known_profile(llm(name), gpu, tp)

    assert found is not None
    assert found.how == "kernel-sum"
    sglang = name.startswith(("DeepSeek-V3.2", "GLM-5.2"))
    assert found.engine == ("sglang" if sglang else "vllm")
