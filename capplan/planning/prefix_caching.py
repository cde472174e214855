"""Prefix caching of a configuration: on where requests share prefixes."""

import warnings
from dataclasses import replace

from capplan.deployment.configuration import Configuration
from capplan.errors import CapplanWarning
from capplan.planning.scheduling import is_vllm
from capplan.planning.settings import FleetSettings


def with_caching_as_used(
    configuration: Configuration, settings: FleetSettings, shares_prefixes: bool
) -> Configuration:
    """Return a configuration without prefix caching where no request shares a prefix.

    Its schedule is then the same but for preempted requests, its bound is higher and
    its simulation faster. What the user sets is kept. Warn where requests share
    prefixes and the engine finds less of them than is simulated, or nothing.
    """
    if shares_prefixes and configuration.engine.bounded_groups:
        _warn_of_prefixes(configuration, settings)
    if settings.prefix_caching is not None or shares_prefixes:
        return configuration
    unused = configuration.engine.prefix_caching
    engine = replace(configuration.engine, prefix_caching=False)
    return replace(configuration, engine=engine, caching_unused=unused)


def _warn_of_prefixes(configuration: Configuration, settings: FleetSettings) -> None:
    if configuration.engine.prefix_caching:
        text = (
            f"{settings.llm}: some layers have a sliding window; prefix hits are those "
            "of the layers with full attention, and the engine has fewer where it "
            "evicted the blocks of a window"
        )
    elif settings.prefix_caching is not False and is_vllm(configuration.engine):
        text = (
            f"{settings.llm}: some layers have a recurrent state; prefix hits are then "
            "not modelled, and every request computes its whole prompt"
        )
    else:
        return
    warnings.warn(text, CapplanWarning, stacklevel=3)
