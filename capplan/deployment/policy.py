"""Policies: what a scheduler may be asked for, and what it was asked for."""

import math
from collections import namedtuple
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


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
    # What it does, or the setting that asks for it:
    orders: bool | str = False  # it keeps requests in an order: ordered.py
    pauses: bool | str = False  # requests sit out with their KV: pausing.py
    swaps: bool | str = False  # it moves KV to the host: swapping.py
    # What it remembers, by name, zero at first:
    request_columns: tuple[str, ...] = ()  # of each request
    replica_columns: tuple[str, ...] = ()  # of each replica
    in_order: bool = False  # requests are admitted in their order of arrival
    slos: tuple[str, ...] = ()  # limits that each class needs, or else one on e2e


def indices(names: Iterable[str]) -> Any:
    """Return the index of each name, as compiled policies read them.

    Examples
    --------
    >>> SETTING = indices({"levels": Knob(4), "ratio": Knob(2.0)})
    >>> SETTING.ratio
    1
    """
    fields = tuple(names)
    return namedtuple("indices", fields)(*range(len(fields)))


@dataclass(frozen=True)
class Policy:
    """A scheduler with its settings; its text names both."""

    name: str  # in the table of schedulers, or a file's with its content's digits
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
        """Return ``NAME``, or ``NAME:setting=number,...`` with all settings."""
        knobs = self.rules.settings
        texts = [
            f"{key}={knobs[key].written(value)}" for key, value in self.settings.items()
        ]
        return f"{self.name}:{','.join(texts)}" if texts else self.name


VLLM_V1 = Policy(
    "vllm-v1", Rules(async_scheduling=True, prefix_caching=True, in_order=True)
)
"""Policy of vLLM's V1 engine, the default."""
