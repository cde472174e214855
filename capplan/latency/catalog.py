"""Find the profile of an LLM on a GPU type among the user's and the shipped ones."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from capplan.errors import InputError, ProfileError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.fleet.gpu import Gpu
from capplan.latency.profile import Profile
from capplan.latency.profile_file import load_profile, load_rank_profile
from capplan.latency.rank_profile import RankProfile
from capplan.latency.yaml_file import read_once
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import twins
from capplan.llm.layout import parse_layout
from capplan.shipped import shipped

_TP_ALONE = re.compile(r"tp\d+\.ya?ml")
_OF_RANKS = re.compile(r"(?:tp\d+-)?(?:dp\d+)?-?(?:ep\d+)?(?:\.[a-z_]+)*\.yaml")


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
    """
    return own_profiles(folders) + _shipped_profiles()


@cache
def _shipped_profiles() -> list[Listed]:
    return sorted(
        # by its path: tests compare these with contents
        Listed(path.parts[-3], path.parts[-2], int(path.stem[2:]), path)
        for path in _shipped_files()
        if _TP_ALONE.fullmatch(path.name)  # others are of ranks, as tp8-ep8
    )


@cache
def _shipped_files() -> list[Path]:
    """Return the files of all shipped profiles, which stay as they are."""
    return list(shipped("profiles").glob("*/*/*.yaml"))


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
            f"{folder}: no profile in it; expected .yaml files with schema: "
            f"{Profile.SCHEMA}"
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
        return [path for path in _yaml_files(folder) if _is_tp_alone(path)]
    return [folder]


def _yaml_files(folder: Path) -> list[Path]:
    """Return the YAML files in a folder, or that file."""
    if not folder.exists():
        raise InputError(f"{folder}: no such file or folder")
    paths = sorted(folder.rglob("*.y*ml")) if folder.is_dir() else [folder]
    return [path for path in paths if path.suffix in (".yaml", ".yml")]


def _is_tp_alone(path: Path) -> bool:
    is_named = path.is_file() and _TP_ALONE.fullmatch(path.name) is not None
    return is_named or says_it_is(path, Profile)


def says_it_is(path: Path, kind: type[Profile]) -> bool:
    """Return whether a file says that it is a profile, or one of ranks."""
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    schema = kind.SCHEMA.partition("/")[0].encode()
    mark = rb"^[\"']?schema[\"']?\s*:\s*[\"']?" + schema + b"/"
    try:
        return re.search(mark, path.read_bytes(), re.MULTILINE) is not None
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None


def load_listed(path: Path) -> Profile:
    """Return the profile of a file, read once until it changes."""
    return read_once(path, load_profile)


def _by_content(path: Path) -> Listed:
    profile = load_listed(path)
    return Listed(profile.gpu, profile.llm, profile.tp, path)


def rank_profiles(
    folders: Sequence[Path] = (), *, gpu: str | None = None, llm: str | None = None
) -> Iterator[RankProfile]:
    """Yield the profiles of ranks, the user's first, those of a GPU type and LLM.

    They lie beside those of TP degrees: ``dp8-ep8.yaml``, and ``dp8-ep8.deepep.yaml``
    with another all-to-all or engine. Of a layout's the first is that of no other.
    """
    at = None if gpu is None else full_gpu_name(gpu)
    llms = None if llm is None else names_alike(llm)
    yield from own_rank_profiles(folders, gpu=gpu, llm=llm)
    paths = [
        path
        for path in _shipped_files()
        if at in (None, path.parts[-3])
        and (llms is None or path.parts[-2] in llms)
        and _OF_RANKS.fullmatch(path.name)
        and not _TP_ALONE.fullmatch(path.name)
    ]
    paths.sort(key=lambda path: (path.parent, path.name.count("."), path))
    for path in paths:
        yield read_once(path, load_rank_profile)


def own_rank_profiles(
    folders: Sequence[Path], *, gpu: str | None = None, llm: str | None = None
) -> Iterator[RankProfile]:
    """Yield the user's profiles of ranks alone, those of a GPU type and LLM."""
    at = None if gpu is None else full_gpu_name(gpu)
    llms = None if llm is None else names_alike(llm)
    for path in (path for folder in folders for path in _own_of_ranks(Path(folder))):
        profile = read_once(path, load_rank_profile)
        if at in (None, profile.gpu) and (llms is None or profile.llm in llms):
            yield profile


def _own_of_ranks(folder: Path) -> list[Path]:
    return [path for path in _yaml_files(folder) if says_it_is(path, RankProfile)]


def named_rank_profile(text: str, folders: Sequence[Path] = ()) -> RankProfile | None:
    """Return the profile of ``GPU/LLM/dp8-ep8``, or None.

    An engine or all-to-all may follow, as in ``B200/DeepSeek-R1/dp8-ep8.deepep``.
    """
    gpu, _, rest = text.partition("/")
    llm, _, name = rest.rpartition("/")
    layout, *qualities = name.removesuffix(".yaml").split(".")
    if not (gpu and llm):
        return None
    wanted = parse_layout(layout)
    for profile in rank_profiles(folders, gpu=gpu, llm=llm):
        known = (profile.engine, profile.all_to_all)
        if profile.layout == wanted and set(qualities) <= set(known):
            return profile
    return None


def folders_of_tp(folders: Sequence[Path]) -> list[Path]:
    """Return the folders but those with profiles of ranks alone."""

    def holds_ranks_alone(folder: Path) -> bool:
        of_ranks = _own_of_ranks(folder)
        return bool(of_ranks) and own_tp_alone(folder) in ([], of_ranks)

    return [folder for folder in map(Path, folders) if not holds_ranks_alone(folder)]
