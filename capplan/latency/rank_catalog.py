"""Find profiles of ranks that step together among the user's and the shipped ones.

They lie beside those of TP degrees, which know nothing of them: ``dp8-ep8.yaml``, and
``dp8-ep8.deepep.yaml`` or ``dp8-ep8.trtllm.yaml`` with another all-to-all or engine.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from capplan.errors import InputError
from capplan.latency.catalog import full_gpu_name, names_alike, own_tp_alone
from capplan.latency.profile_file import load_rank_profile
from capplan.latency.rank_profile import RankProfile
from capplan.latency.yaml_file import read_once
from capplan.llm.layout import parse_layout
from capplan.shipped import shipped

_MARK = re.compile(
    rb"^[\"']?schema[\"']?\s*:\s*[\"']?capplan-rank-profile/", re.MULTILINE
)
_SHIPPED = re.compile(r"(?:tp\d+-)?(?:dp\d+)?-?(?:ep\d+)?(?:\.[a-z_]+)*\.yaml")
_TP_ALONE = re.compile(r"tp\d+\.yaml")


def rank_profiles(
    folders: Sequence[Path] = (), *, gpu: str | None = None, llm: str | None = None
) -> Iterator[RankProfile]:
    """Yield the profiles of ranks, the user's first, those of a GPU type and LLM."""
    at = None if gpu is None else full_gpu_name(gpu)
    llms = None if llm is None else names_alike(llm)
    yield from own_rank_profiles(folders, gpu=gpu, llm=llm)
    yield from map(load_rank, _shipped(at, llms))


def own_rank_profiles(
    folders: Sequence[Path], *, gpu: str | None = None, llm: str | None = None
) -> Iterator[RankProfile]:
    """Yield the user's profiles of ranks alone, those of a GPU type and LLM."""
    at = None if gpu is None else full_gpu_name(gpu)
    llms = None if llm is None else names_alike(llm)
    for path in (path for folder in folders for path in _own(Path(folder))):
        profile = load_rank(path)
        if at in (None, profile.gpu) and (llms is None or profile.llm in llms):
            yield profile


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
    return [folder for folder in map(Path, folders) if not _holds_ranks_alone(folder)]


def _holds_ranks_alone(folder: Path) -> bool:
    of_ranks = _own(folder)
    return bool(of_ranks) and own_tp_alone(folder) in ([], of_ranks)


def load_rank(path: Path) -> RankProfile:
    """Return the profile of ranks of a file, read once until it changes."""
    return read_once(path, load_rank_profile)


def is_rank_profile(path: Path) -> bool:
    """Return whether a file says that it is a profile of ranks."""
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    try:
        return _MARK.search(path.read_bytes()) is not None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _own(folder: Path) -> list[Path]:
    """Return the profiles of ranks in one of the user's folders, or that file."""
    if not folder.exists():
        raise InputError(f"{folder}: no such file or folder")
    paths = sorted(folder.rglob("*.y*ml")) if folder.is_dir() else [folder]
    return [path for path in paths if is_rank_profile(path)]


def _shipped(gpu: str | None, llms: Sequence[str] | None) -> list[Path]:
    """Return the shipped ones, a layout's first that of no other engine."""
    paths = [
        path
        for path in shipped("profiles").glob("*/*/*.yaml")
        if gpu in (None, path.parts[-3])
        and (llms is None or path.parts[-2] in llms)
        and _SHIPPED.fullmatch(path.name)
        and not _TP_ALONE.fullmatch(path.name)
    ]
    return sorted(paths, key=lambda path: (path.parent, path.name.count("."), path))
