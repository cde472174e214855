"""Which requests run in the next iteration of a replica: one file per policy.

A scheduler is ``schedule(state, replica) -> horizon``. It puts together the
replica's next iteration with the functions of ``batch.py`` and returns for how
many iterations the same batch runs if nothing arrives: 0 when nothing can run
before a result is collected; otherwise 1 is always correct.

Its file also has ``RULES``, what the door must know of it, and
``refused(trace, engine, settings)``: which requests it would never finish, shape
(n,), bool, and the reason. It is imported, and so compiled, when it is named.
"""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from capplan.errors import InputError

SCHEDULERS = {
    "vllm-v1": "vllm_v1",
    "orca": "orca",
    "static": "static",
    "sarathi": "sarathi",
    "vllm-v0": "vllm_v0",
    "fastgen": "fastgen",
    "oracle": "oracle",
    "accelgen": "accelgen",
}
DEFAULT_SCHEDULER = "vllm-v1"


class Knob(NamedTuple):
    """A setting of a scheduler; whole numbers only where its default is one."""

    default: float
    least: float = 1
    most: float = 2**31 - 1


class Rules(NamedTuple):
    """What a scheduler may be asked for, and what the core must know of it."""

    settings: dict[str, Knob] = {}  # noqa: RUF012 (never changed)
    async_scheduling: bool = False
    prefix_caching: bool = False
    reserves: bool = False  # requests take their blocks when admitted, prompts whole
    plans: bool | str = False  # it keeps a plan of each request, in its own order
    swaps: bool | str = False  # it moves KV to the host; or the setting that asks so
    slos: tuple[str, ...] = ()  # limits that each class needs, or else one on e2e


def scheduler(name: str) -> ModuleType:
    """Return the module of the named policy, with ``schedule`` and ``RULES``."""
    if name not in SCHEDULERS:
        raise InputError(
            f"scheduler {name!r} is not known{_nearest(name, SCHEDULERS)}; expected "
            f"one of {', '.join(sorted(SCHEDULERS))}"
        )
    return import_module(f"{__name__}.{SCHEDULERS[name]}")


def parse_scheduler(given: str) -> tuple[str, dict[str, float]]:
    """Return name and all settings of ``NAME`` or ``NAME:setting=number,...``.

    Examples
    --------
    >>> parse_scheduler("orca:max_len=4096")
    ('orca', {'max_len': 4096})
    """
    name, colon, rest = given.partition(":")
    knobs = scheduler(name).RULES.settings
    settings = {key: knob.default for key, knob in knobs.items()}
    for part in rest.split(",") if colon else ():
        key, _, text = part.partition("=")
        if key not in knobs:
            known = ", ".join(knobs) or "none"
            raise InputError(
                f"scheduler {given!r}: {key!r} is not a setting of {name}"
                f"{_nearest(key, knobs)}; it has {known}"
            )
        knob = knobs[key]
        try:
            value = type(knob.default)(text)
        except ValueError:
            value = math.nan
        if not knob.least <= value <= knob.most:
            raise InputError(
                f"scheduler {given!r}: {key} is {text!r}; expected a number from "
                f"{knob.least} to {knob.most}, as in {name}:{key}={knob.default}"
            )
        settings[key] = value
    return name, settings


def _nearest(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
