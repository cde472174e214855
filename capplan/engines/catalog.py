"""The engines by name, and names with a version."""

import re
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from capplan.engines.engine import Engine
from capplan.errors import InputError


def _found() -> dict[str, Engine]:
    """Return the engine of each file of this folder, the default before others."""
    package = import_module(__name__.rpartition(".")[0])
    names = (each.name for each in iter_modules(package.__path__))
    modules = [import_module(f"{package.__name__}.{name}") for name in names]
    rows = [module.ENGINE for module in modules if hasattr(module, "ENGINE")]
    return {row.name: row for row in sorted(rows, key=lambda row: row.name != "vllm")}


ENGINES = _found()
"""Engines by the names that settings and files have."""
VLLM = ENGINES["vllm"]
"""The default."""

_VERSION = re.compile(r"\d+(\.\d+)*")


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with; none of ``of 2026-07``."""
    found = _VERSION.match(version)
    return tuple(map(int, found.group().split("."))) if found else ()


class EngineName(NamedTuple):
    """An engine that was asked for, and its version; empty for the newest."""

    engine: str
    version: str = ""

    def __str__(self) -> str:
        return f"{ENGINES[self.engine].title} {self.version}".strip()

    def is_before(self, release: str) -> bool:
        """Return whether a version was asked for that is older than a release."""
        asked, first = numbers(self.version), numbers(release)
        return bool(asked) and first[: len(asked)] > asked


def title_of(name: str) -> str:
    """Return an engine as its makers write it; of one not known the name."""
    return ENGINES[name].title if name in ENGINES else name


def parse_engine(text: str) -> EngineName:
    """Return engine and version of ``vllm@0.13``, or of a name alone.

    Examples
    --------
    >>> parse_engine("vllm@0.13")
    EngineName(engine='vllm', version='0.13')
    """
    engine, at, version = text.strip().partition("@")
    version = version.removeprefix("v")
    known = engine.lower() in ENGINES
    if not known or (at and not numbers(version)):
        raise InputError(
            f"engine is {text!r}; expected {', '.join(ENGINES)}, or one of them with "
            "a version as in vllm@0.13"
        )
    return EngineName(engine.lower(), version)


def engine_in(text: str) -> str:
    """Return the engine that a tool's name of a server has in it; empty without one.

    Examples
    --------
    >>> engine_in("dynamo-trt"), engine_in("vllm-chat"), engine_in("openai")
    ('trtllm', 'vllm', '')
    """
    found = (
        name for name, row in ENGINES.items() if (row.mark or name) in text.lower()
    )
    return next(found, "")
