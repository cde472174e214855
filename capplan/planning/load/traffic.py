"""The requests to serve: read, given arrival times, long enough, with a warm-up."""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from capplan.conflicts import conflicts
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.errors import HorizonWarning, InputError, warn
from capplan.input_file import has_more_than
from capplan.planning.configure.images import seen
from capplan.planning.configure.scheduling import widest_alone
from capplan.planning.load.conversations import (
    conversations,
    served_sessions,
    session_load,
    sessions_asked,
)
from capplan.planning.load.load import MOST_OF_USERS, ROUNDS, Load, UserLoad, timed
from capplan.planning.load.unbatched import unbatched
from capplan.planning.load.unserved import without_oversized
from capplan.planning.settings.plan import (
    CapacitySettings,
    PlanSettings,
    SimulateSettings,
)
from capplan.planning.settings.traffic import (
    ObjectiveSettings,
    RequestSettings,
    SessionSettings,
    TrafficSettings,
)
from capplan.simulator.checks import unserved
from capplan.simulator.results.metrics import length_biased_mean, requests_needed
from capplan.units import format_duration, parse_duration_s
from capplan.workload.arrivals import no_times, rescale
from capplan.workload.catalog import open_workload
from capplan.workload.days import DAY_S
from capplan.workload.described import Tally, described
from capplan.workload.lengths import synthetic_workload
from capplan.workload.predictors import foreseen
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import can_be_streamed, iterate_trace
from capplan.workload.scale import scaled_traffic
from capplan.workload.slo import Slo, base_classes
from capplan.workload.synthesis import extend, reshaped
from capplan.workload.trace import Trace
from capplan.workload.users import Users

AnyLoad = TypeVar("AnyLoad", bound=Load)

STREAMED_BYTES = 256 * 2**20
"""A log larger than this is streamed by default."""
_CHUNK_REQUESTS = 200_000
_HEAD_BYTES = 2**20
_HOUR_S = 3600.0
"""A trace as long has hours that differ, which other gaps shift. [s]"""
_REQUESTS_FOR_ALL = 1000
"""Requests that show that all meet their SLO."""
_STAYS = 10
"""Stays of a request alone, as the batch sees them, that the first sample spans."""
_MOST_FOR_STAYS = 200_000
"""Requests of the first sample at most, where its length is for stays to pass."""


def read_traffic(settings: TrafficSettings, rng: np.random.Generator) -> Load:
    """Return the requests that the settings name, as they are, and when they arrive."""
    return arriving(read_requests(settings), settings, rng)


def arriving(trace: Trace, settings: TrafficSettings, rng: np.random.Generator) -> Load:
    """Return requests as they were read, and when they arrive by the settings."""
    process, rate_per_s, day_s = None, float("nan"), DAY_S
    if settings.arrivals is not None or trace.arrival_s is None:
        if settings.scale is not None and trace.arrival_s is None:
            raise InputError(f"{no_times(trace)} (--scale multiplies those of a trace)")
        rate_per_s = settings.rate or (settings.scale or 1.0) * trace.rate_per_s
        if not np.isfinite(rate_per_s):
            raise InputError(no_times(trace))
        process = settings.arrivals or "poisson"
        trace = timed(trace, process, rate_per_s, rng)
    elif settings.rate is not None:
        day_s *= trace.rate_per_s / settings.rate
        trace = _rescaled(trace, settings.rate)
    elif settings.scale is not None:
        trace = scaled_traffic(trace, settings.scale, settings.seed)
    trace = foreseen(trace, settings.predictor, rng)
    return Load(trace, process, rate_per_s, seed=settings.seed, day_s=day_s)


def _rescaled(trace: Trace, rate_per_s: float) -> Trace:
    """Return a trace at another rate; warn where that makes a day shorter or longer."""
    rescaled = rescale(trace, rate_per_s)
    before_s, after_s = trace.duration_s, rescaled.duration_s
    if before_s >= _HOUR_S and not math.isclose(before_s, after_s, rel_tol=0.01):
        warn(
            f"{trace.source}: --rate {rate_per_s:g} scales the gaps of the trace: "
            f"{format_duration(before_s)} of its times become "
            f"{format_duration(after_s)}; --scale {before_s / after_s:.3g} gives as "
            "many requests a second and keeps its hours"
        )
    return rescaled


def asked(
    users: Users,
    read: Trace,
    settings: PlanSettings | SimulateSettings | CapacitySettings,
    rng: np.random.Generator,
) -> UserLoad:
    """Return requests as they were read, to be asked by users."""
    if read.has_turns:
        raise InputError(
            f"{read.source}: its turns come after answers; expected no --users beside"
        )
    note = f"asked by {users}"
    if read.arrival_s is not None:
        note += ", whatever their own times are"
    trace = replace(read, arrival_s=None, notes=(*read.notes, note))
    trace = foreseen(trace, settings.predictor, rng)
    load = UserLoad(trace, str(users), seed=settings.seed, users=users)
    if load.falls_in_step:
        think = format_duration(users.mean_think_s)
        warn(
            f"users who all think for exactly {think} end up asking at the same "
            "moments; people's times vary: "
            f"--think exp:{users.mean_think_s:g}s"
        )
    return load


def read_requests(settings: RequestSettings) -> Trace:
    """Return the requests that the settings name."""
    trace = _named(settings)
    if isinstance(settings, SessionSettings):
        trace = conversations(trace, settings)
    elif trace.has_turns:
        raise InputError(
            f"{trace.source}: its turns come after answers, which capplan plan, "
            "simulate and capacity serve; expected requests with arrivals"
        )
    return seen(_reshaped(trace, settings), settings)


def _reshaped(trace: Trace, settings: RequestSettings) -> Trace:
    lengths = settings.output_scale, settings.max_new_tokens
    return reshaped(trace, settings.shared_prefix, *lengths)


def _named(settings: RequestSettings) -> Trace:
    options = {
        "reader_name": settings.reader,
        "sharegpt_rule": settings.sharegpt_rule,
        "tokenizer": settings.tokenizer,
        "salvage": settings.salvage or None,
        "columns": settings.columns or None,
    }
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    if settings.trace is not None:
        if isinstance(settings, SessionSettings) and settings.has_sessions:
            given["turns"] = True
        trace = read_trace(settings.trace, seed=settings.seed, **given)
        logging.getLogger(__name__).info("%s: %s", settings.trace, described(trace))
        return trace
    workload = settings.workload
    if settings.input_len or settings.output_len:
        workload = synthetic_workload(settings.input_len, settings.output_len)
    if workload is None:
        raise InputError(
            "no requests; give --trace FILE, --workload NAME, or --input-len and "
            "--output-len TOKENS"
        )
    return open_workload(workload, seed=settings.seed, **given)


def judged_traffic(
    settings: PlanSettings | SimulateSettings,
    slo: Slo | None,
    rng: np.random.Generator,
    configurations: Sequence[Configuration],
    read: Trace | None = None,
) -> Load:
    """Return the requests that a fleet is judged by, the same for every command.

    Oversized requests are dropped where the settings say so. Drawn arrivals are
    resampled, as many requests as can show the attainment, and leave out a warm-up.
    Without an SLO the requests are taken as they are. ``read`` are those of the
    settings where they were read already.
    """
    users = settings.asking
    read = read_requests(settings) if read is None else read
    if (sessions := sessions_asked(read, settings)) is not None:
        of = session_load(read, sessions, settings), settings, slo, configurations
        return served_sessions(*of)
    load = (
        arriving(read, settings, rng)
        if users is None
        else asked(users, read, settings, rng)
    )
    return judged(load, settings, slo, rng, configurations)


def judged(
    load: AnyLoad,
    settings: ObjectiveSettings,
    slo: Slo | None,
    rng: np.random.Generator,
    configurations: Sequence[Configuration],
) -> AnyLoad:
    """Return requests as a fleet is judged by them; see :func:`judged_traffic`."""
    engines = [configuration.engine for configuration in configurations]
    if slo is not None and (scopes := slo.of_conversations):
        raise InputError(
            f"--slo {scopes[0]}: is of conversations; expected --sessions or "
            "--session-rate beside it, or no such limit"
        )
    base = without_oversized(load.base, engines, drop=settings.drop_oversized)
    if base is not load.base:
        load = replace(load, base=base, saturations={})
    stay_s = _longest_stay_s(base, configurations)
    if slo is not None:
        slo.columns(base.request_class, base.class_names)
        slo.groups(base.class_names)
        load = _long_enough(load, slo, rng, stay_s, settings.extend)
        load = replace(load, as_replayed=settings.extend is False)
        _check_windows(load, slo, stay_s)
    if isinstance(load, UserLoad) and settings.extend is not False:
        wanted = min(2 * ROUNDS * load.users.count, MOST_OF_USERS)
        count = load.request_count and max(load.request_count, wanted)
        load = replace(load, request_count=count, may_repeat=True)
    if slo is None and base_classes(base.class_names)[0] != base.class_names:
        warn(
            f"{base.source}: the requests' own limits are not judged without an SLO; "
            "give --slo trace, or with limits for the others --slo ttft=1s"
        )
    if isinstance(load, UserLoad) and load.asks_once:
        warn(
            f"{base.source}: {load.users.count:,} users and {len(base):,} requests: "
            "each user asks once at most"
        )
    load = load.warmed_up(stay_s)
    if settings.warm_up is not None:
        given_s = parse_duration_s(settings.warm_up)
        return replace(load, warmup_s=given_s, has_given_warmup=True)
    return load


def _check_windows(load: Load, slo: Slo, stay_s: float) -> None:
    """Refuse windows of arrivals at one rate, and those shorter than a request."""
    width_s = slo.attain_in_s
    if width_s is None or width_s == math.inf:
        return
    if load.clock is None:
        raise InputError(
            "--attain-in is for rates that vary, of a trace with its own times; these "
            f"requests are {load.process}, at one rate: leave it out"
        )
    if width_s < stay_s:
        raise InputError(
            f"--attain-in is {format_duration(width_s)}; expected more than the "
            f"{format_duration(stay_s)} that a request takes alone"
        )


def _long_enough(
    load: AnyLoad,
    slo: Slo,
    rng: np.random.Generator,
    stay_s: float,
    may_extend: bool | None,
) -> AnyLoad:
    """Return the traffic with as many requests as show whether the SLO is met.

    Drawn arrivals are drawn in samples of that many. A trace with its own times is
    left as it is unless ``may_extend`` is True: then its own gaps are repeated.
    """
    base = load.base
    wanted = requests_wanted(base, slo, stay_s)
    if load.process is not None and may_extend is not False:
        return replace(load, request_count=wanted)
    if len(base) >= wanted:
        return load
    short = (
        f"the trace has {len(base):,} requests over {base.duration_s:.0f} s; "
        f"{wanted:,} are needed to judge {100 * slo.attainment:.6g} % in time"
    )
    if not may_extend:
        warn(f"{short}: see the 95 % interval", HorizonWarning)
        return load
    longer = extend(base, wanted, rng)
    warn(f"{short}; extended by resampling", HorizonWarning)
    return replace(load, base=replace(longer, source=base.source))


def requests_wanted(trace: Trace, slo: Slo, stay_s: float) -> int:
    """Return how many requests of this load give a first look at the SLO.

    Enough that ten miss it at the highest target, and that the arrivals span ten
    stays.
    """
    highest = max(group.target for group in slo.groups(trace.class_names))
    for_percentile = _REQUESTS_FOR_ALL if highest >= 1 else requests_needed(highest)
    for_stays = trace.rate_per_s * _STAYS * stay_s
    if not np.isfinite(for_stays):
        return int(for_percentile)
    return int(max(for_percentile, min(np.ceil(for_stays), _MOST_FOR_STAYS)))


def _longest_stay_s(trace: Trace, configurations: Sequence[Configuration]) -> float:
    """Return the stay alone on a replica of the requests found in a batch. [s]

    Of several configurations the longest.
    """
    widest = (widest_alone(each) for each in configurations)
    alone = (unbatched(trace, tables, engine) for engine, tables in widest)
    return max((length_biased_mean(each.e2e_s) for each in alone), default=0.0)


def is_streamed(settings: SimulateSettings) -> bool:
    """Return whether the trace is read in chunks: when set, or for a large CSV."""
    if settings.stream is not None:
        if settings.stream and settings.trace is None:
            raise InputError("--stream needs --trace FILE")
        return settings.stream
    if settings.given(row.beside for row in conflicts() if row.feature == "stream"):
        return False
    path = None if settings.trace is None else Path(settings.trace)
    if path is None or not path.is_file() or not has_more_than(path, STREAMED_BYTES):
        return False
    return can_be_streamed(path, settings.reader, settings.columns)


def chunks(settings: SimulateSettings, engine: EngineSettings) -> Iterator[Trace]:
    """Yield the requests, without the oversized ones where they are to be dropped."""
    dropped = 0
    tally, given = Tally(), (str(settings.trace), _CHUNK_REQUESTS, settings.columns)
    for trace in iterate_trace(*given, salvage=settings.salvage, tally=tally):
        trace = _reshaped(trace, settings)
        if settings.drop_oversized:
            too_large = unserved(trace, engine)
            dropped += int(too_large.sum())
            if too_large.all():
                continue
            trace = trace.select(np.flatnonzero(~too_large))
        yield trace
    logging.getLogger(__name__).info("%s: %s", settings.trace, tally)
    if dropped:
        warn(f"{settings.trace}: {dropped:,} requests fit no replica; dropped")


def about_how_many(path: str) -> int | None:
    """Estimate the requests of a file by the length of its first lines.

    None for a compressed file.
    """
    with open(path, "rb") as raw:
        head = raw.read(_HEAD_BYTES)
    lines = head.count(b"\n")
    if head.startswith(b"\x1f\x8b") or not lines:
        return None
    return max(1, int(Path(path).stat().st_size / len(head) * lines))
