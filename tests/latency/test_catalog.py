"""Where profiles are found: the user's folders first, then the shipped ones."""

import pytest

from capplan.errors import ProfileError
from capplan.latency.catalog import find_profile, list_profiles, profile_path
from capplan.latency.profile_file import save_profile


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
def test_a_profile_that_is_nowhere_is_none(llm, gpu, tp, tmp_path):
    assert find_profile(llm, gpu, tp, [tmp_path, tmp_path / "absent"]) is None


def test_a_profile_of_something_else_than_its_path_says_is_refused(tmp_path, shipped):
    store(shipped, tmp_path, tp=2)

    with pytest.raises(ProfileError, match=r"is of Llama-3\.1-8B on H100-SXM, TP 1; e"):
        find_profile(shipped.llm, shipped.gpu, 2, [tmp_path])


def test_a_list_is_sorted_by_degree_and_starts_with_the_users_own(tmp_path, shipped):
    for tp in (8, 16, 2):
        store(shipped.model_copy(update={"tp": tp}), tmp_path)

    own = [path for path in list_profiles([tmp_path]) if tmp_path in path.parents]

    assert [path.name for path in own] == ["tp2.yaml", "tp8.yaml", "tp16.yaml"]
    assert list_profiles([tmp_path])[:3] == own
    assert len(list_profiles([tmp_path])) == 3 + len(list_profiles())
