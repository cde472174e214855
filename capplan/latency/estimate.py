"""Estimate a profile from the nearest measured ones, or from data sheets."""

from collections.abc import Sequence
from pathlib import Path

from capplan.fleet.catalog import gpu as find_gpu
from capplan.fleet.catalog import gpu_names
from capplan.fleet.gpu import Gpu
from capplan.latency.catalog import list_profiles, load_listed
from capplan.latency.profile import Profile
from capplan.latency.roofline import roofline_profile
from capplan.latency.transfer import across_gpu, across_tp
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import twins


def estimated_profile(
    llm: Architecture, gpu: Gpu, tp: int, folders: Sequence[Path] = ()
) -> Profile:
    """Return an estimated profile, marked as an estimate.

    Profiles of two other TP degrees on the same GPU are interpolated. Otherwise the
    nearest profile of the LLM, by TP degree and then by the GPU's data sheet, is scaled
    by data sheets, one of the same GPU first; without one, the data sheet alone is
    used. ``folders`` are the user's.
    """
    names = (llm.name, *twins(llm))
    known = [
        load_listed(listed.path)
        for listed in list_profiles(folders)
        if listed.llm in names
    ]
    return estimate_from(known, llm, gpu, tp)


def estimate_from(
    known: Sequence[Profile], llm: Architecture, gpu: Gpu, tp: int
) -> Profile:
    """Return a profile estimated from those known of the LLM, if any."""
    llm.check_tp(tp)
    same_gpu = [profile for profile in reversed(known) if profile.gpu == gpu.name]
    here = {profile.tp: profile for profile in same_gpu}
    here.pop(tp, None)
    if len(here) >= 2:
        return across_tp(list(here.values()), tp, llm, gpu)
    candidates = list(here.values()) or _of_known_gpus(known)
    if not candidates:
        return roofline_profile(llm, gpu, tp)

    def distance(profile: Profile) -> tuple[int, float, str]:
        doublings = abs(profile.tp.bit_length() - tp.bit_length())
        return doublings, gpu.distance(find_gpu(profile.gpu)), profile.gpu

    return across_gpu(min(candidates, key=distance), llm, gpu, tp=tp)


def _of_known_gpus(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the profiles of GPUs that have a data sheet."""
    return [profile for profile in profiles if profile.gpu in gpu_names()]
