"""Find the profile of an LLM on a GPU type among the user's and the shipped ones."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from capplan.errors import InputError, ProfileError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.fleet.gpu import Gpu
from capplan.latency.profile import Profile
from capplan.latency.profile_file import SCHEMA, load_profile
from capplan.latency.yaml_file import read_once
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import twins
from capplan.shipped import shipped

_MARK = re.compile(rb"^[\"']?schema[\"']?\s*:\s*[\"']?capplan-profile/", re.MULTILINE)
_NAME = re.compile(r"tp\d+\.ya?ml")


class Listed(NamedTuple):
    """A profile file, and the configuration that it is of."""

    gpu: str
    llm: str
    tp: int
    path: Path


def profile_path(folder: Path, gpu: str, llm: str, tp: int) -> Path:
    """Return the path of a profile that capplan writes into a folder of profiles."""
    return folder / gpu / llm / f"tp{tp}.yaml"


def find_profile(
    llm: str, gpu: str, tp: int, folders: Sequence[Path] = ()
) -> Profile | None:
    """Return the profile of an LLM on a GPU type at a TP degree, or None.

    The user's folders are searched before the shipped profiles, in order.
    """
    for listed in list_profiles(folders):
        if listed[:3] == (gpu, llm, tp):
            return load_listed(listed.path)
    return None


def known_profile(
    llm: Architecture, gpu: Gpu | str, tp: int, folders: Sequence[Path] = ()
) -> Profile | None:
    """Return the profile of an LLM, or of another with the same shapes, or None."""
    at = gpu if isinstance(gpu, str) else gpu.name
    names = (llm.name, *twins(llm))
    found = (find_profile(name, at, tp, folders) for name in names)
    return next((profile for profile in found if profile is not None), None)


def named_profile(text: str, folders: Sequence[Path] = ()) -> Profile | None:
    """Return the profile of ``GPU/LLM/tpN``, its names as plans take them, or None.

    Examples
    --------
    >>> named_profile("H100/meta-llama/Llama-3.1-8B-Instruct/1").name
    'Llama-3.1-8B on H100-SXM, TP 1'
    """
    gpu, llm, tp = parse_which(text)
    for name in names_alike(llm):
        profile = find_profile(name, full_gpu_name(gpu), tp, folders)
        if profile is not None:
            return profile
    return None


def full_gpu_name(text: str) -> str:
    """Return the catalog's name of a GPU; of one that it lacks, the text."""
    try:
        return find_gpu(text).name
    except InputError:
        return text


def names_alike(llm: str) -> tuple[str, ...]:
    """Return the names under which profiles serve an LLM, its own first."""
    try:
        found = find_llm(llm)
    except InputError:  # of the user's own profiles alone
        return (llm,)
    return tuple(dict.fromkeys((llm, found.name, *twins(found))))


def parse_which(text: str) -> tuple[str, str, int]:
    """Return GPU, LLM and TP degree of ``GPU/LLM/tpN``.

    Examples
    --------
    >>> parse_which("H100-SXM/Llama-3.1-8B/tp1")
    ('H100-SXM', 'Llama-3.1-8B', 1)
    """
    gpu, _, rest = text.partition("/")
    llm, _, tp = rest.rpartition("/")
    degree = tp.lower().removeprefix("tp").removesuffix(".yaml").strip()
    if not (gpu and llm and degree.isdigit() and int(degree)):
        raise InputError(
            f"{text!r} names no profile; expected GPU/LLM/TP such as "
            "H100-SXM/Llama-3.1-8B/1"
        )
    return gpu, llm, int(degree)


def list_profiles(folders: Sequence[Path] = ()) -> list[Listed]:
    """Return all profiles, the user's before the shipped ones.

    A user's profile may lie anywhere in its folder, under any name that ends in
    ``.yaml`` or ``.yml``; a file in place of a folder is a profile itself.

    Raises
    ------
    InputError
        When a folder is missing or has no profile.
    ProfileError
        When a profile is wrong, or two are of the same LLM, GPU type and TP degree.
    """
    return own_profiles(folders) + sorted(
        _by_path(path)
        for path in shipped("profiles").glob("*/*/tp*.yaml")
        if _NAME.fullmatch(path.name)  # others are of ranks, as tp8-ep8
    )


def own_profiles(folders: Sequence[Path]) -> list[Listed]:
    """Return the user's profiles alone, by folder."""
    return [listed for folder in folders for listed in _own(Path(folder))]


def _own(folder: Path) -> list[Listed]:
    """Return the profiles of one of the user's folders, by their content."""
    if not folder.exists():
        raise InputError(f"{folder}: no such file or folder")
    paths = own_tp_alone(folder)
    if not paths:
        raise InputError(
            f"{folder}: no profile in it; expected .yaml files with schema: {SCHEMA}"
        )
    found = sorted(map(_by_content, paths))
    for one, other in pairwise(found):
        if one[:3] == other[:3]:
            raise ProfileError(
                f"{one.path} and {other.path}: both are of {one.llm} on {one.gpu}, "
                f"TP {one.tp}; expected one profile of each"
            )
    return found


def own_tp_alone(folder: Path) -> list[Path]:
    """Return the files in a folder that are profiles of TP degrees, or that file."""
    if folder.is_dir():
        return sorted(path for path in folder.rglob("*.y*ml") if _is_profile(path))
    return [folder]


def _is_profile(path: Path) -> bool:
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    if _NAME.fullmatch(path.name):
        return True
    try:
        return _MARK.search(path.read_bytes()) is not None
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None


def load_listed(path: Path) -> Profile:
    """Return the profile of a file, read once until it changes."""
    return read_once(path, load_profile)


def _by_content(path: Path) -> Listed:
    profile = load_listed(path)
    return Listed(profile.gpu, profile.llm, profile.tp, path)


def _by_path(path: Path) -> Listed:
    """Return a shipped profile: their tests compare paths with contents."""
    return Listed(path.parts[-3], path.parts[-2], int(path.stem[2:]), path)
