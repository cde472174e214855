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

    Profiles of the LLM are used, and those of LLMs with the same shapes. ``folders``
    are the user's.
    """
    listed = list_profiles(folders)
    known = [
        load_listed(found.path)
        for name in (llm.name, *twins(llm))
        for found in listed
        if found.llm == name
    ]
    return estimate_from(known, llm, gpu, tp)


def estimate_from(
    known: Sequence[Profile], llm: Architecture, gpu: Gpu, tp: int
) -> Profile:
    """Return the estimate from known profiles of an LLM, the user's first.

    Between two other TP degrees on the same GPU it is interpolated, where NVLink joins
    its GPUs: over PCIe the time of an all-reduce has no simple law. Otherwise the
    profile of the nearest degree on the same GPU is scaled by data sheets, or that of
    the nearest GPU of its vendor, since kernels of another reach other shares of their
    rates; without one, the data sheet alone is used.
    """
    llm.check_tp(tp)
    same_gpu = [profile for profile in reversed(known) if profile.gpu == gpu.name]
    here = {profile.tp: profile for profile in same_gpu}
    here.pop(tp, None)
    source = nearest(list(here.values()) or _of_vendor(known, gpu), gpu, tp)
    if source is None:
        return roofline_profile(llm, gpu, tp)
    alike = {degree: one for degree, one in here.items() if _kind(one) == _kind(source)}
    if alike and min(alike) < tp < max(alike) and gpu.nvlink_bytes_per_s_per_direction:
        twins_too = [p.model_copy(update={"llm": llm.name}) for p in alike.values()]
        return across_tp(twins_too, tp, llm, gpu)
    return across_gpu(source, llm, gpu, tp=tp)


def _kind(profile: Profile) -> tuple[object, ...]:
    """Return what profiles share that one line through TP degrees may join."""
    types = (profile.dtype, profile.quantization, profile.kv_dtype)
    return (*types, profile.kernels_from, profile.engine_time)


def nearest(profiles: Sequence[Profile], gpu: Gpu, tp: int) -> Profile | None:
    """Return the profile nearest by architecture, TP degree and then data sheet."""

    def distance(profile: Profile) -> tuple[int, int, float, str]:
        doublings = abs(profile.tp.bit_length() - tp.bit_length())
        generations, apart = gpu.distance(find_gpu(profile.gpu))
        return generations, doublings, apart, profile.gpu

    return min(profiles, key=distance, default=None)


def _of_vendor(profiles: Sequence[Profile], gpu: Gpu) -> list[Profile]:
    """Return the profiles of GPUs that have a data sheet and are of the same vendor."""
    return [
        profile
        for profile in profiles
        if profile.gpu in gpu_names() and find_gpu(profile.gpu).vendor == gpu.vendor
    ]
