"""Which requests run in the next iteration of a replica: one file per policy.

A scheduler is ``schedule(state, replica) -> horizon``. It puts together the
replica's next iteration with the functions of ``batch.py`` and returns for how
many iterations the same batch runs if nothing arrives: 0 when nothing can run
before a result is collected; otherwise 1 is always correct.

Its file also has ``RULES``, what the door must know of it, and
``refused(trace, engine, settings)``: which requests it would never finish, shape
(n,), bool, and the reason. It is imported, and so compiled, when it is named.

A user's own file is named by its path: see own_file.py.
"""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from capplan.errors import InputError
from capplan.simulator.schedulers.own_file import (
    copy_of,
    file_of,
    load,
    named_by_content,
    with_content,
)

SCHEDULERS = {
    "vllm-v1": "vllm_v1",
    "vllm-v1-priority": "vllm_v1_priority",
    "orca": "orca",
    "static": "static",
    "sarathi": "sarathi",
    "vllm-v0": "vllm_v0",
    "fastgen": "fastgen",
    "fastserve": "fastserve",
    "alise": "alise",
    "oracle": "oracle",
    "sa": "sa",
    "accelgen": "accelgen",
}


class Knob(NamedTuple):
    """A setting of a scheduler; whole numbers only where its default is one.

    With ``choices``, a word is given and its place among them is the value.
    """

    default: float
    least: float = 1
    most: float = 2**31 - 1
    choices: tuple[str, ...] = ()

    def parsed(self, text: str) -> float:
        """Return the value of a text, or NaN."""
        if self.choices:
            return self.choices.index(text) if text in self.choices else math.nan
        try:
            value = type(self.default)(text)
        except ValueError:
            return math.nan
        return value if self.least <= value <= self.most else math.nan

    @property
    def expected(self) -> str:
        """What may be given."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return f"a number from {self.least} to {self.most}"

    def written(self, value: float) -> str:
        """Return a value as it is given."""
        return self.choices[int(value)] if self.choices else f"{value}"


class Rules(NamedTuple):
    """What a scheduler may be asked for, and what the core must know of it."""

    settings: dict[str, Knob] = {}  # noqa: RUF012 (never changed)
    async_scheduling: bool = False
    prefix_caching: bool = False
    reserves: bool = False  # requests take their blocks when admitted, prompts whole
    prompt_budget: bool = False  # max_num_batched_tokens is of prompts, decodes on top
    plans: bool | str = False  # it keeps a plan of each request, in its own order
    swaps: bool | str = False  # it moves KV to the host; or the setting that asks so
    in_order: bool = False  # requests are admitted in their order of arrival
    slos: tuple[str, ...] = ()  # limits that each class needs, or else one on e2e


def check_name(given: str) -> str:
    """Return ``NAME`` or ``NAME:setting=number,...`` when a policy has the name.

    A file's gets the digits of its content. Nothing is imported; ``parse_scheduler``
    checks the settings.
    """
    name, colon, rest = given.partition(":")
    if file_of(name):
        return f"{named_by_content(name)}{colon}{rest}"
    if name not in SCHEDULERS:
        raise InputError(
            f"scheduler {name!r} is not known{_nearest(name, SCHEDULERS)}; expected "
            f"one of {', '.join(sorted(SCHEDULERS))}, or a file such as ./mine.py"
        )
    return given


def needs_compiling(given: str) -> bool:
    """Return whether a policy is to be compiled when it is imported."""
    from capplan.simulator.jit import is_cold

    name = check_name(given).partition(":")[0]
    return is_cold(copy_of(name) if file_of(name) else SCHEDULERS[name])


def scheduler(name: str) -> ModuleType:
    """Return the module of the named policy, with ``schedule`` and ``RULES``."""
    if file_of(name):
        return load(name)
    check_name(name)
    return import_module(f"{__name__}.{SCHEDULERS[name]}")


def parse_scheduler(given: str) -> tuple[str, dict[str, float]]:
    """Return name and all settings of ``NAME`` or ``NAME:setting=number,...``.

    Examples
    --------
    >>> parse_scheduler("orca:max_len=4096")
    ('orca', {'max_len': 4096})
    """
    name, colon, rest = given.partition(":")
    if file_of(name):
        name = with_content(name)
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
        value = knob.parsed(text)
        if math.isnan(value):
            example = f"{name}:{key}={knob.written(knob.default)}"
            raise InputError(
                f"scheduler {given!r}: {key} is {text!r}; expected {knob.expected}, as "
                f"in {example}"
            )
        settings[key] = value
    return name, settings


def described(given: str) -> str:
    """Return a scheduler by its name and all its settings.

    Examples
    --------
    >>> described("static:padded=1"), described("vllm-v1")
    ('static:max_len=2048,padded=1', 'vllm-v1')
    """
    name, settings = parse_scheduler(given)
    knobs = scheduler(name).RULES.settings
    texts = [f"{key}={knobs[key].written(value)}" for key, value in settings.items()]
    return f"{name}:{','.join(texts)}" if texts else name


def _nearest(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
