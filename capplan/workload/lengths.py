"""Distributions of prompt and output lengths.

Written ``1024`` (fixed) or ``lognormal(median=600,sigma=1)``; ``LENGTHS`` lists them.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.units import number_in
from capplan.workload.trace import MAX_TOKENS

_CALL = re.compile(r"^\s*([a-z]+)\s*\((.*)\)\s*$")


class Family(NamedTuple):
    """A family of length distributions."""

    draw: Callable[[Mapping[str, float], int, np.random.Generator], np.ndarray]
    needs: tuple[str, ...]  # names of its parameters, all required


LENGTHS = {
    "fixed": Family(lambda of, n, rng: np.full(n, of["tokens"]), ("tokens",)),
    "uniform": Family(  # whole numbers
        lambda of, n, rng: rng.integers(int(of["low"]), int(of["high"]) + 1, n),
        ("low", "high"),
    ),
    "normal": Family(
        lambda of, n, rng: rng.normal(of["mean"], of["sd"], n), ("mean", "sd")
    ),
    "lognormal": Family(  # sigma is that of the logarithm
        lambda of, n, rng: rng.lognormal(np.log(of["median"]), of["sigma"], n),
        ("median", "sigma"),
    ),
    "exponential": Family(lambda of, n, rng: rng.exponential(of["mean"], n), ("mean",)),
}
"""Length distributions by name."""


@dataclass(frozen=True)
class Lengths:
    """A length distribution with its parameters."""

    name: str  # one of ``LENGTHS``
    parameters: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.name not in LENGTHS:
            raise InputError(
                f"unknown lengths {self.name!r}; expected {', '.join(LENGTHS)}"
            )
        needs = LENGTHS[self.name].needs
        if set(needs) != set(self.parameters):
            raise InputError(
                f"lengths {self.name} take {' and '.join(needs)}; "
                f"given: {', '.join(self.parameters) or 'nothing'}"
            )
        for name, value in self.parameters.items():
            if not 0 < value <= MAX_TOKENS:
                raise InputError(
                    f"lengths {self.name}: {name} is {value:g}; "
                    f"expected more than 0 and at most {MAX_TOKENS}"
                )
        if self.name == "uniform" and not (
            1 <= self.parameters["low"] <= self.parameters["high"]
        ):
            raise InputError("lengths uniform: expected 1 <= low <= high")

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``n`` lengths, whole and at least 1, shape (n,). [tokens]"""
        drawn = LENGTHS[self.name].draw(self.parameters, n, rng)
        return np.clip(np.rint(drawn), 1, MAX_TOKENS).astype(np.int64)


def parse_lengths(text: str) -> Lengths:
    """Return the distribution written as ``1024`` or ``lognormal(median=…)``."""
    call = _CALL.match(text)
    if not call:
        return Lengths("fixed", {"tokens": _tokens(text)})
    parameters: dict[str, float] = {}
    for part in filter(None, call.group(2).split(",")):
        name, _, value = part.partition("=")
        parameters[name.strip()] = _tokens(value, text)
    return Lengths(call.group(1), parameters)


def parse_mean_length(text: str) -> str:
    """Return ``8000`` or ``8000:800``, a mean and its deviation, as a distribution.

    Examples
    --------
    >>> parse_mean_length("8000"), parse_mean_length("8000:800")
    ('8000', 'normal(mean=8000,sd=800)')
    """
    mean, _, deviation = (part.strip() for part in text.partition(":"))
    varies = deviation.strip("0.") != "" or deviation == "." or text.endswith(":")
    written = f"normal(mean={mean},sd={deviation})" if varies else mean
    try:
        if _CALL.match(mean) or _CALL.match(deviation):
            raise InputError(text)
        parse_lengths(written)
    except InputError:
        raise InputError(
            f"{text!r} is no length; expected tokens such as 8000, or their mean and "
            "standard deviation such as 8000:800"
        ) from None
    return written


def synthetic_workload(input_len: str | None, output_len: str | None) -> str:
    """Return the workload of prompts and answers of given lengths."""
    if input_len is None or output_len is None:
        given, other = ("input_len", "output_len")[:: 1 if input_len else -1]
        raise InputError(f"{given} without {other}; expected both")
    prompt, output = map(parse_mean_length, (input_len, output_len))
    return f"synthetic:prompt={prompt},output={output}"


def _tokens(value: str, text: str | None = None) -> float:
    number = number_in(value)
    if not math.isfinite(number):
        raise InputError(
            f"{text or value!r} is no length; expected tokens such as 1024, or a "
            "distribution such as lognormal(median=600,sigma=1)"
        )
    if text is None and not number.is_integer():
        raise InputError(f"{value!r} is no length; expected whole tokens")
    return number
