"""Features of the settings that ``conflicts.csv`` knows beside those of an engine."""

from capplan.conflicts import refuse_conflicts
from capplan.deployment.engine import EngineSettings
from capplan.deployment.features import features_of_engine
from capplan.planning.settings.asked import Asked
from capplan.simulator.checks import features_of_router

MOVING = {
    "rebalancer": "rebalancer",
    "dispatcher": "dispatcher",
    "autoscaler": "changing",
    "outage": "changing",
    "rolling_update": "changing",
    "spot": "changing",
}
"""Settings of fleets whose requests or replicas move, and the feature of each."""
_FEATURES = {**MOVING, "latency_ms": "latency_ms", "solver": "solver"}


def features_of(settings: Asked) -> dict[str, str]:
    """Return the flag of each feature that settings give, by feature."""
    given = reversed(settings.given(_FEATURES))
    return {_FEATURES[name]: f"--{name.replace('_', '-')}" for name in given}


def refuse_beside(engine: EngineSettings, settings: Asked) -> None:
    """Refuse an engine's features that do not go with others, or with the settings."""
    given = features_of_engine(engine) | features_of(settings)
    refuse_conflicts(given | features_of_router(settings.router or "jsq"))
