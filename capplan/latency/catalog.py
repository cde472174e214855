"""Find the profile of an LLM on a GPU type among the user's and the shipped ones."""

from collections.abc import Sequence
from pathlib import Path

from capplan.errors import ProfileError
from capplan.latency.profile import Profile
from capplan.latency.profile_file import load_profile
from capplan.shipped import shipped


def profile_path(folder: Path, gpu: str, llm: str, tp: int) -> Path:
    """Return the path of a profile in a folder of profiles."""
    return folder / gpu / llm / f"tp{tp}.yaml"


def find_profile(
    llm: str, gpu: str, tp: int, folders: Sequence[Path] = ()
) -> Profile | None:
    """Return the profile of an LLM on a GPU type at a TP degree, or None.

    The user's folders are searched before the shipped profiles, in order.
    """
    for folder in (*folders, shipped("profiles")):
        path = profile_path(Path(folder), gpu, llm, tp)
        if path.is_file():
            profile = load_profile(path)
            if (profile.gpu, profile.llm, profile.tp) != (gpu, llm, tp):
                raise ProfileError(
                    f"{path}: is of {profile.name}; expected {llm} on {gpu}, TP {tp}"
                )
            return profile
    return None


def list_profiles(folders: Sequence[Path] = ()) -> list[Path]:
    """Return the files of all profiles, the user's before the shipped ones."""
    paths: list[Path] = []
    for folder in (*folders, shipped("profiles")):
        paths += sorted(
            Path(folder).glob("*/*/tp*.yaml"),
            key=lambda path: (
                path.parts[-3:-1],
                int(path.stem[2:]) if path.stem[2:].isdigit() else 0,
            ),
        )
    return paths
