"""Policies: what a scheduler may be asked for, and what it was asked for."""

import math
from collections import namedtuple
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from capplan.errors import InputError, nearest
from capplan.units import parse_duration_s


class Knob(NamedTuple):
    """A setting of a policy; whole numbers only where its default is one.

    With ``choices``, a word is given and its place among them is the value; a duration
    is given as ``50ms`` and is in seconds. The default of an ``optional`` one stands
    for "not given": it is outside of the range, and texts leave it out.
    """

    default: float
    least: float = 1
    most: float = 2**31 - 1
    choices: tuple[str, ...] = ()
    is_duration: bool = False
    optional: bool = False

    def parsed(self, text: str) -> float:
        """Return the value of a text, or NaN."""
        if self.choices:
            return self.choices.index(text) if text in self.choices else math.nan
        try:
            value = (
                parse_duration_s(text) if self.is_duration else type(self.default)(text)
            )
        except (ValueError, InputError):
            return math.nan
        return value if self.least <= value <= self.most else math.nan

    @property
    def expected(self) -> str:
        """What may be given."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.is_duration:
            return f"a time from {self.least:g}s to {self.most:g}s"
        return f"a number from {self.least} to {self.most}"

    def written(self, value: float) -> str:
        """Return a value as it is given."""
        if self.choices:
            return self.choices[int(value)]
        return f"{value}s" if self.is_duration else f"{value}"


class Rules(NamedTuple):
    """What a policy may be asked for, and what the core must know of a scheduler."""

    settings: dict[str, Knob] = {}  # noqa: RUF012 (never changed)
    async_scheduling: bool = False
    prefix_caching: bool = False
    caches_late: bool = False  # what an iteration computes is found by the next one
    reserves: bool = False  # requests take their blocks when admitted, prompts whole
    prompt_budget: bool = False  # max_num_batched_tokens is of prompts, decodes on top
    # What it does, or the setting that asks for it:
    orders: bool | str = False  # it keeps requests in an order: ordered.py
    pauses: bool | str = False  # requests sit out with their KV: pausing.py
    swaps: bool | str = False  # it moves KV to the host: swapping.py
    # What it remembers, by name, zero at first:
    request_columns: tuple[str, ...] = ()  # of each request
    replica_columns: tuple[str, ...] = ()  # of each replica
    in_order: bool = False  # requests are admitted in their order of arrival
    # While no request waits and no prompt is unfinished, all that run decode; None: so
    # does a scheduler that keeps no order and remembers nothing of requests.
    keeps_batch: bool | None = None
    slos: tuple[str, ...] = ()  # limits that each class needs, or else one on e2e
    # Of a router:
    remembers: int = 0  # holders of each replica: simulator/memory/prefix_memory.py
    rings: bool = False  # it has a ring of hashes: simulator/memory/hash_ring.py
    keyed: bool = False  # it sends requests of a session or prefix group to one replica


def indices(names: Iterable[str], first: int = 0) -> Any:
    """Return the index of each name, from ``first`` on, as compiled policies read them.

    Examples
    --------
    >>> SETTING = indices({"levels": Knob(4), "ratio": Knob(2.0)})
    >>> SETTING.ratio
    1
    """
    fields = tuple(names)
    return namedtuple("indices", fields)(*range(first, first + len(fields)))


@dataclass(frozen=True)
class Policy:
    """A policy with its settings; its text names both."""

    name: str  # in the table of its family, or a file's with its content's digits
    rules: Rules = field(compare=False, repr=False)
    values: tuple[float, ...] = ()  # of all its settings, in the order of its rules

    @property
    def settings(self) -> dict[str, float]:
        """Values of all settings by name."""
        return dict(zip(self.rules.settings, self.values, strict=True))

    def does(self, what: str) -> bool:
        """Return whether it ``orders``, ``pauses`` or ``swaps``."""
        asked = getattr(self.rules, what)
        return bool(self.settings.get(asked, asked))

    def __str__(self) -> str:
        """Return ``NAME``, or ``NAME:setting=number,...`` with all that are given."""
        knobs = self.rules.settings
        texts = [
            f"{key}={knobs[key].written(value)}"
            for key, value in self.settings.items()
            if not (knobs[key].optional and value == knobs[key].default)
        ]
        return f"{self.name}:{','.join(texts)}" if texts else self.name


class Family(NamedTuple):
    """Policies of a kind, one file each, with their ``RULES``."""

    kind: str
    files: Mapping[str, str]  # by the names of the policies
    package: str

    def module(self, name: str) -> ModuleType:
        """Return the module of the named policy."""
        if name not in self.files:
            raise InputError(
                f"{self.kind} {name!r} is not known{nearest(name, self.files)}; "
                f"expected one of {', '.join(sorted(self.files))}"
            )
        module = import_module(f"{self.package}.{self.files[name]}")
        module.__dict__.setdefault("RULES", Rules())
        return module

    def parse(self, given: str) -> Policy:
        """Return the policy of ``NAME`` or ``NAME:setting=number,...``."""
        name = given.partition(":")[0]
        return parse_policy(self.kind, given, name, self.module(name).RULES)


def parse_policy(family: str, given: str, name: str, rules: Rules) -> Policy:
    """Return the policy of ``NAME:setting=number,...``, by the rules of its name."""
    knobs = rules.settings
    settings = {key: knob.default for key, knob in knobs.items()}
    _, colon, rest = given.partition(":")
    for part in rest.split(",") if colon else ():
        key, _, text = part.partition("=")
        if key not in knobs:
            raise InputError(
                f"{family} {given!r}: {key!r} is not a setting of {name}"
                f"{nearest(key, knobs)}; it has {_named(knobs)}"
            )
        knob = knobs[key]
        value = knob.parsed(text)
        if math.isnan(value):
            example = knob.written(knob.least if knob.optional else knob.default)
            raise InputError(
                f"{family} {given!r}: {key} is {text!r}; expected {knob.expected}, as "
                f"in {name}:{key}={example}"
            )
        settings[key] = value
    return Policy(name, rules, tuple(settings.values()))


def _named(knobs: dict[str, Knob]) -> str:
    """Return the names of settings, those that are numbers as one range."""
    words = [key for key in knobs if not key.isdigit()]
    numbers = [key for key in knobs if key.isdigit()]
    if numbers:
        words.append(f"{numbers[0]} to {numbers[-1]}")
    return ", ".join(words) or "none"


VLLM_V1 = Policy(
    "vllm-v1", Rules(async_scheduling=True, prefix_caching=True, in_order=True)
)
"""Policy of vLLM's V1 engine, the default."""
