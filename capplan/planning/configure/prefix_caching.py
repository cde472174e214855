"""Prefix caching of a configuration: on where requests share prefixes."""

from dataclasses import replace

from capplan.deployment.configuration import Configuration
from capplan.errors import warn
from capplan.planning.configure.features import MOVING
from capplan.planning.configure.scheduling import is_vllm
from capplan.planning.settings.plan import FleetSettings


def with_caching_as_used(
    configuration: Configuration, settings: FleetSettings, shares_prefixes: bool
) -> Configuration:
    """Return a configuration without prefix caching where no request shares a prefix.

    Its schedule is then the same but for preempted requests, its bound is higher and
    its simulation faster. It stays on where the user sets it, and where it keeps
    recurrent states, since chunks of prompts then end with a block. Warn where requests
    share prefixes and the engine finds less of them than is simulated, or nothing.
    """
    if settings.given((*MOVING, "prefill_replicas", "availability")):
        configuration = without_states(configuration, settings, shares_prefixes)
    engine = configuration.engine
    if shares_prefixes and engine.bounded_groups and not engine.keeps_states:
        _warn_of_prefixes(configuration, settings)
    if settings.prefix_caching is not None or shares_prefixes or engine.keeps_states:
        return configuration
    engine = replace(engine, prefix_caching=False)
    unused = configuration.engine.prefix_caching
    return replace(configuration, engine=engine, caching_unused=unused)


def without_states(
    configuration: Configuration, settings: FleetSettings, shares_prefixes: bool
) -> Configuration:
    """Return a configuration without prefix caching where that keeps states.

    That is not modelled where requests or replicas move.
    """
    if not configuration.engine.keeps_states:
        return configuration
    engine = replace(configuration.engine, prefix_caching=False)
    configuration = replace(configuration, engine=engine)
    if shares_prefixes:
        _warn_of_prefixes(configuration, settings)
    return configuration


def _warn_of_prefixes(configuration: Configuration, settings: FleetSettings) -> None:
    if configuration.engine.prefix_caching:
        text = (
            f"{settings.llm}: some layers have a sliding window; prefix hits are those "
            "of the layers with full attention, and the engine has fewer where it "
            "evicted the blocks of a window"
        )
    elif settings.prefix_caching is not False and is_vllm(configuration.engine):
        text = (
            f"{settings.llm}: some layers have a recurrent state; prefix hits are not "
            "modelled with DCP, prefill_schedule_interval, other schedulers, or where "
            "requests or replicas move, and every request computes its whole prompt"
        )
    else:
        return
    warn(text)
