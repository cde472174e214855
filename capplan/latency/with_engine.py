"""A profile of kernels with the engine's own time on top."""

from pathlib import Path

from capplan.errors import ProfileError
from capplan.latency.engine_time import engine_time
from capplan.latency.profile import Profile


def with_engine_time(
    profile: Profile, experts: bool, overhead: str | None = None
) -> Profile:
    """Return a profile of kernels with the engine's time; others as they are.

    ``overhead`` is ``none``, a file, or None for the shipped times. A calibrated
    profile keeps its own, but for a file.
    """
    if profile.kernels_from is None:
        return profile
    if overhead == "none":
        return profile.model_copy(update={"engine_time": None})
    path = None if overhead is None else Path(overhead)
    time = engine_time(profile.kernels_from, profile.gpu, experts, path)
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
