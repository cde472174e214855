"""Conversations as the settings ask for them: which run, and what of them is served."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capplan.conflicts import conflicts
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError, warn
from capplan.planning.configure.scheduling import widest_alone
from capplan.planning.load.session_load import SessionLoad
from capplan.planning.load.unbatched import unbatched
from capplan.planning.load.unserved import without_oversized
from capplan.planning.settings.plan import (
    CapacitySettings,
    FleetSettings,
    PlanSettings,
    SimulateSettings,
)
from capplan.planning.settings.traffic import SessionSettings
from capplan.simulator.results.metrics import requests_needed
from capplan.units import parse_duration_s
from capplan.workload.forest import session_of
from capplan.workload.predictors import foreseen
from capplan.workload.running import (
    Sessions,
    capped,
    replayed,
    timeless,
    with_first,
    within,
)
from capplan.workload.sessions import with_thinking
from capplan.workload.slo import FIRST, Slo
from capplan.workload.trace import Trace

ServedSettings = PlanSettings | SimulateSettings | CapacitySettings


def conversations(trace: Trace, settings: SessionSettings) -> Trace:
    """Return a trace with its waits and thoughts as asked; refuse one without turns."""
    if not trace.has_turns:
        given = settings.given((*SessionSettings.model_fields, "replay"))
        if given:
            raise InputError(
                f"{trace.source}: no conversations, for --{given[0].replace('_', '-')};"
                " expected a column session, or id with after (docs/guides/sessions.md)"
            )
        return trace
    trace = with_thinking(trace, settings.thinking or "kept")
    if settings.wait_cap is not None:
        trace = capped(trace, parse_duration_s(settings.wait_cap))
    if isinstance(settings, SimulateSettings) and settings.replay == "open":
        trace = replayed(trace)
        warn(
            f"{trace.source}: turns arrive as they were recorded, some before the "
            "answers that they go on with: a slower fleet looks better than it is"
        )
    return trace


def sessions_asked(trace: Trace, settings: SessionSettings) -> Sessions | None:
    """Return which sessions of a trace run; None where its requests just arrive.

    In a simulation those of the trace itself, unless others are asked for.
    """
    if settings.running is not None or not trace.has_turns:
        return settings.running
    if settings.sessions is not None:
        raise InputError("--sessions auto is of capplan capacity; expected a number")
    if isinstance(settings, SimulateSettings):
        return None
    refuse_beside_turns(trace, settings)
    if not np.isfinite(trace.rate_per_s):
        raise InputError(
            f"{trace.source}: conversations without times; give --sessions N, so many "
            "at once, or --session-rate R, at which they begin"
        )
    return Sessions(None, trace.rate_per_s)


def refuse_beside_turns(trace: Trace, settings: SessionSettings) -> None:
    """Refuse what does not go with sessions, where the trace alone says that it has."""
    beside = {
        name: row
        for row in conflicts()
        for name in row[:2]
        if "session_rate" in row[:2] and name not in SessionSettings.model_fields
    }
    for name in settings.given(beside):
        flag = name.replace("_", "-")
        raise InputError(
            f"{trace.source}: its turns come after answers, beside --{flag}"
            f"{beside[name].because}"
        )


def session_load(
    trace: Trace, sessions: Sessions, settings: FleetSettings
) -> SessionLoad:
    """Return sessions of a trace, of which so many run or begin as asked."""
    rng = np.random.default_rng(settings.seed)
    trace = foreseen(trace, settings.predictor, rng)
    label = session_of(trace)
    note = f"{sessions}, drawn from {int(label.max()) + 1:,}"
    trace = timeless(trace.changed(session=label, notes=(*trace.notes, note)))
    return SessionLoad(
        trace, str(sessions), request_count=1, seed=settings.seed, sessions=sessions
    )


def served_sessions(
    load: SessionLoad,
    settings: ServedSettings,
    slo: Slo | None,
    configurations: Sequence[Configuration],
) -> SessionLoad:
    """Return sessions of turns that the engines take, as a fleet is judged by them."""
    engines = [configuration.engine for configuration in configurations]
    base = _ended(load.base, settings, engines)
    base = without_oversized(base, engines, drop=settings.drop_oversized)
    if slo is not None and FIRST in slo.by_class:
        base = with_first(base)
    wanted = 0
    if slo is not None:
        slo.columns(base.request_class, base.class_names)
        groups = slo.groups(base.class_names)
        wanted = requests_needed(max(group.target for group in groups))
    load = replace(load, base=base).alone(_alone_s(base, configurations), wanted)
    if settings.warm_up is None:
        return load
    given_s = parse_duration_s(settings.warm_up)
    return replace(load, warmup_s=given_s, has_given_warmup=True)


def _ended(
    trace: Trace,
    settings: ServedSettings,
    engines: Sequence[EngineSettings],
) -> Trace:
    """Return sessions whose turns the engines take, and warn of those that end."""
    limits = (min(e.longest_request_tokens, e.max_model_len) for e in engines)
    longest = max(limits, default=0)
    if not longest:
        return trace
    taken = within(trace, longest, settings.at_limit or "end")
    for note in taken.notes[len(trace.notes) :]:
        warn(f"{trace.source}: {note}")
    return taken


def _alone_s(trace: Trace, configurations: Sequence[Configuration]) -> np.ndarray:
    """Return how long each request takes alone on a replica, on the fastest. [s]"""
    widest = (widest_alone(each) for each in configurations)
    alone = [unbatched(trace, tables, engine).e2e_s for engine, tables in widest]
    return np.minimum.reduce(alone) if alone else np.zeros(len(trace))
