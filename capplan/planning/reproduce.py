"""Make a plan's inputs and simulations again, for ``capplan verify``."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from capplan.bounds.certificate import Reproduction
from capplan.deployment import EngineSettings
from capplan.errors import CapplanWarning
from capplan.planning.candidates import judge
from capplan.planning.inputs import ask, configuration_of
from capplan.planning.proof import bound_inputs
from capplan.planning.settings import PlanSettings


def reproduce(document: Mapping[str, Any]) -> Reproduction:
    """Return what a plan was made from, and its replica count simulated again.

    Files that the plan names are read from where they are; when they, or the
    profiles, are not what they were, the inputs' digest tells.

    Raises
    ------
    InputError
        When a file is missing, or a setting is no longer known.
    """
    block = document["certificate"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapplanWarning)
        question, tried = ask(PlanSettings(**document["request"]))
        one = configuration_of(tried, block["gpu"], block["tp"])
        inputs = bound_inputs(question, one)
    one = replace(one, engine=EngineSettings(**block["limits"]))
    count = block["replica_count"]
    attained = {
        replicas: judge(question, one, replicas, block["router"])
        for replicas in (count, count - 1)
        if replicas > 0
    }
    return Reproduction(
        inputs, {n: found.probe.slo_attainment for n, found in attained.items()}
    )
