"""A profile of kernels with the engine's own time on top."""

from pathlib import Path

from capplan.engines.catalog import ENGINES, EngineName
from capplan.errors import InputError, ProfileError, warn
from capplan.latency.engine_rows import (
    EngineRow,
    engine_time,
    is_newer,
    older_row,
    widened,
)
from capplan.latency.engine_time import EngineTime
from capplan.latency.profile import BACKTEST, CALIBRATED, LOAD_TESTS, Profile
from capplan.latency.profile_file import AnyProfile
from capplan.latency.rank_profile import RankProfile
from capplan.llm.catalog import llm


def with_engine_time(
    profile: AnyProfile,
    experts: bool,
    overhead: str | None = None,
    wanted: EngineName | None = None,
) -> AnyProfile:
    """Return a profile of kernels with the engine's time; others as they are.

    ``overhead`` is ``none``, a file, or None for the shipped times. Before all of these
    is the time of a user's own load tests. A row that names the LLM is taken before the
    time that a shipped profile has of its own, and this before the rows of its kind.
    ``wanted`` chooses engine and version.
    """
    path = None if overhead in (None, "none") else Path(str(overhead))
    of, own = profile.kernels_from, profile.engine_time
    kind = (of or "kernel-sum", profile.gpu, profile.llm, experts)
    if of is None and (own is None or path is None):
        if path is not None:
            engine_time(*kind, path=path)  # is it sound?
        _warn_unused(profile, overhead if own is None else None, wanted)
        return profile
    if overhead == "none":
        return profile.model_copy(update={"engine_time": None})
    time = _chosen(profile, kind, wanted, path)
    if isinstance(time, EngineRow):
        time = time.at(profile.tp)
    if time is not None and wanted is not None and is_newer(wanted, time):
        warn(
            f"{profile.name}: no engine newer than {time.engine_name} was measured; "
            f"{wanted} is planned with its times, and may carry more"
        )
        time = widened(time)
    if isinstance(time, EngineRow):
        profile = calibrated(profile, time) if time.llms else _untested(profile)
        time = time.time
    if isinstance(profile, RankProfile):
        time = _of_other_families(profile, time)
    return profile.model_copy(update={"engine_time": time})


def _of_other_families(
    profile: RankProfile, time: EngineTime | None
) -> EngineTime | None:
    """Return it with other families' error in place of that of its own LLM with TP.

    Those were of TP too, so that it is a lower bound of the error of ranks.
    """
    if time is None or time.served is None or time.served.left_out == "family":
        return time
    kind = (profile.kernels_from or "kernel-sum", profile.gpu, "", True)
    row = engine_time(*kind, wanted=EngineName(time.engine)) or engine_time(*kind)
    return time.model_copy(update={"served": None if row is None else row.served})


def _chosen(
    profile: Profile, kind: tuple, wanted: EngineName | None, path: Path | None
) -> EngineTime | None:
    """Return the profile's own time, or that of the row that fits best."""
    own = profile.engine_time
    row = engine_time(*kind, wanted=wanted, path=path)
    if path is not None:
        if row is None:
            what = "of experts" if kind[-1] else "dense"
            engine = f", {wanted}" if wanted else ""
            raise ProfileError(
                f"{path}: no row is of {profile.kernels_from}, {profile.gpu}, "
                f"{what}{engine}, as {profile.name} is"
            )
        return row
    named = own.engine if own is not None and own.engine in ENGINES else ""
    is_own = wanted is None or named in ("", wanted.engine)
    tested = profile.is_load_tested
    if own is not None and is_own and (tested or row is None or not row.llms):
        # Its own is nearer, but how far an estimate is off its kind tells; of one that
        # was load-tested not where its kind differs by a factor of two.
        served = own.served or (row.served if row else None)
        if tested and own.served is None and served is not None and served.is_wide:
            served = None
        return own.model_copy(update={"served": served})
    if row is None and wanted is not None:
        of, gpu, _, experts = kind
        row = engine_time(of, gpu, "", experts)  # of its kind: its error is the wider
        if row is not None:
            warn(
                f"{profile.name}: no {wanted} was measured on GPUs of this kind; "
                f"planned with the times of {row.engine_name}"
            )
    return row


def _warn_unused(
    profile: Profile, overhead: str | None, wanted: EngineName | None
) -> None:
    given = {"--engine-overhead": overhead, "--engine": wanted}
    for flag in [flag for flag, value in given.items() if value is not None]:
        warn(f"{profile.name}: holds the engine's time already; {flag} changes nothing")


def calibrated(base: AnyProfile, time: EngineTime, **tested: str | int) -> AnyProfile:
    """Return a profile with an engine's time of its own in place of any it had.

    ``tested`` is what the user measured of it, by keys of ``meta``.
    """
    kernels = base.source.partition(CALIBRATED)[0]
    source = f"{kernels}{CALIBRATED}{time.source}"
    base = _untested(base)
    meta = {**base.meta, **tested}
    return base.model_copy(
        update={
            "how": "calibrated",
            "source": source,
            "engine_time": time,
            "meta": meta,
        }
    )


def _untested(profile: AnyProfile) -> AnyProfile:
    """Return a profile without what a user measured of the time that it had."""
    rest = {k: v for k, v in profile.meta.items() if k not in (LOAD_TESTS, BACKTEST)}
    return profile.model_copy(update={"meta": rest})


def before(profile: Profile, experts: bool) -> Profile | None:
    """Return a profile as planned with the version of its engine before, if any was."""
    of, time = profile.kernels_from, profile.engine_time
    if of is None or time is None:
        return None
    row = older_row(time, of, profile.gpu, profile.llm, experts)
    if row is None:
        return None
    update = {"engine_time": row.at(profile.tp).time, "how": "calibrated"}
    return profile.model_copy(update=update)


def as_planned(profile: AnyProfile) -> AnyProfile:
    """Return a profile with the engine's time that a plan adds by default."""
    try:
        experts = llm(profile.llm).experts > 0
    except InputError:  # an LLM of no catalog
        experts = False
    return with_engine_time(profile, experts)
