"""A profile of kernels with the engine's own time on top."""

import warnings
from pathlib import Path

from capplan.errors import CapplanWarning, InputError, ProfileError
from capplan.latency.engine_time import engine_time
from capplan.latency.profile import Profile
from capplan.llm.catalog import llm


def with_engine_time(
    profile: Profile, experts: bool, overhead: str | None = None
) -> Profile:
    """Return a profile of kernels with the engine's time; others as they are.

    ``overhead`` is ``none``, a file, or None for the shipped times, beside which a
    calibrated profile keeps its own.
    """
    path = None if overhead in (None, "none") else Path(str(overhead))
    of = profile.kernels_from
    if of is None and profile.engine_time is None:
        if path is not None:
            engine_time("kernel-sum", profile.gpu, experts, path)  # is it sound?
        if overhead is not None:
            warnings.warn(
                f"{profile.name}: holds the engine's time already; --engine-overhead "
                "changes nothing",
                CapplanWarning,
                stacklevel=2,
            )
        return profile
    if overhead == "none":
        return profile.model_copy(update={"engine_time": None})
    time = engine_time(of or "kernel-sum", profile.gpu, experts, path)
    if of is None and path is None:
        return profile
    if time is None and path is not None:
        kind = "of experts" if experts else "dense"
        raise ProfileError(
            f"{path}: no row is of {profile.kernels_from}, {profile.gpu}, {kind}, "
            f"as {profile.name} is"
        )
    if profile.engine_time is not None and path is None:
        # Its own is nearer, but how far an estimate is off its kind tells.
        served = profile.engine_time.served or (time.served if time else None)
        time = profile.engine_time.model_copy(update={"served": served})
    return profile.model_copy(update={"engine_time": time})


def as_planned(profile: Profile) -> Profile:
    """Return a profile with the engine's time that a plan adds by default."""
    try:
        experts = llm(profile.llm).experts > 0
    except InputError:  # an LLM of no catalog
        experts = False
    return with_engine_time(profile, experts)
