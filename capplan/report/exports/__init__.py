"""A plan as a deployment: one file per target.

A target is a ``TARGET`` in its own file. All take the commands of the plan's launch
lines; none computes a figure of its own.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from capplan.errors import InputError, nearest

if TYPE_CHECKING:
    from capplan.report.exports.export import Export, Target

TARGETS = {
    "vllm": "vllm_serve",
    "compose": "compose",
    "k8s": "kubernetes",
    "lws": "leader_worker_set",
    "kserve": "kserve",
    "llm-d": "llm_d",
    "dynamo": "dynamo",
    "skypilot": "skypilot",
    "ray": "ray_serve",
}
"""Module of each target."""
LOAD_TEST = "loadtest"
"""Target that is no deployment: one replica, before there are more."""
MODULES = {**TARGETS, LOAD_TEST: "load_test"}
"""Module of each name that ``--to`` takes."""

__all__ = ["LOAD_TEST", "MODULES", "TARGETS", "exported"]


def exported(
    path: Path,
    target: str,
    *,
    image: str | None = None,
    checkpoint: str | None = None,
    cold_start_s: float | None = None,
    given: Mapping[str, str] | None = None,
) -> "tuple[dict[str, str], Export] | str":
    """Return the files of a plan's deployment; where it has none, why.

    ``image``, ``checkpoint`` and ``cold_start_s`` are the user's, in place of the
    target's and the plan's; ``given`` files that a plan names, for its load test. [s]
    """
    if target not in MODULES:
        raise InputError(
            f"--to {target}: expected {', '.join(MODULES)}{nearest(target, MODULES)}"
        )
    # Imported here: `capplan list` needs the names alone.
    from capplan.report.exports.export import text_of
    from capplan.report.exports.plan_file import read_planned

    planned = read_planned(path, checkpoint, cold_start_s)
    if isinstance(planned, str):
        return planned
    if target == LOAD_TEST:
        from capplan.report.exports.load_test import load_test_export

        if image is not None:
            raise InputError(f"--image has no effect on --to {target}")
        export = load_test_export(planned, given)
        return text_of(export, planned, target), export
    for name in given or ():
        flag = f"--{name.replace('_', '-')}"
        raise InputError(f"{flag} has no effect on --to {target}")
    row: Target = import_module(f"{__name__}.{TARGETS[target]}").TARGET
    export = row.write(row.given(planned, target, image))
    return text_of(export, planned, target), export
