"""What load tests calibrate, compared with what they say of themselves."""

import re
import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from capplan.errors import CapplanWarning, InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.importers.identity import GPU_NAMES
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import same_shapes

_PRECISIONS = {
    "fp4": "fp4",
    "fp8": "fp8",
    "int4|4.?bit|awq|gptq|w4a16": "int4",
    "int8|8.?bit|w8a": "int8",
    "bf16|fp16|float16|half": "16 bits",
}
"""Formats of weights, by the first pattern that is found in a name of one."""
_PUBLISHERS = r"([-_.](bnb|\d.?bit|gptq|awq|gguf|fp4|fp8|kv|v\d|preview))+$"
"""Ends of names by which others publish an LLM's weights once more."""
_NO_MODEL = r"\(.*?\)|\bgpus?\b|\binstinct\b|^\d+\s*[x×]\s*"
"""What stands beside the model in a GPU's name."""


class Target(NamedTuple):
    """The profile that load tests calibrate; ``is_forced`` takes any of them."""

    name: str  # as it was given: GPU/LLM/tpN
    llm: Architecture
    gpu: str
    tp: int
    is_forced: bool = False

    def compare(self, place: str, stated: Mapping[str, tuple[str, str]]) -> None:
        """Refuse what states another system; warn where its LLM is not known."""
        others = [
            f"{stated[aspect][0]} is {stated[aspect][1]} (expected {expected})"
            for aspect, expected in self._others(stated)
        ]
        if others:
            told = f"{place}: is not of {self.name}: {', '.join(others)}"
            if not self.is_forced:
                raise InputError(f"{told}; --force calibrates with it all the same")
            warnings.warn(f"{told}; taken by --force", CapplanWarning, stacklevel=2)
        elif "llm" in stated and _architecture(stated["llm"][1]) is None:
            name, value = stated["llm"]
            warnings.warn(
                f"the load tests say that {name} is {value[:60]}, which the catalog "
                f"does not know; it is taken to be {self.llm.name}",
                CapplanWarning,
                stacklevel=2,
            )

    def _others(
        self, stated: Mapping[str, tuple[str, str]]
    ) -> Iterator[tuple[str, str]]:
        """Yield each aspect that is stated otherwise, and what is expected."""
        said = {aspect: value for aspect, (_, value) in stated.items()}
        for aspect in ("disaggregation", "dp attention", "speculation"):
            if aspect in said:
                yield aspect, "none"
        if "llm" in said:
            yield from self._other_llm(said["llm"], said.get("precision"))
        elif _differ(said.get("precision", ""), self.llm.weight_dtype):
            yield "precision", self.llm.weight_dtype
        gpu = said.get("gpu", "0")
        if not (gpu.isdigit() or _is_gpu(gpu, self.gpu)):  # a count is not a name
            yield "gpu", self.gpu
        degrees = {"tp": self.tp, "ep": 1, "dp": 1, "pp": 1}
        for aspect, degree in degrees.items():
            if said.get(aspect, str(degree)).removesuffix(".0") != str(degree):
                yield aspect, str(degree)

    def _other_llm(self, name: str, precision: str | None) -> Iterator[tuple[str, str]]:
        found = _architecture(name)
        if found is None:
            # A bare name that no catalog knows is the server's own for any LLM.
            if re.match(r"[^./~][^/]*/", name):
                yield "llm", self.llm.name
        elif not same_shapes(found, self.llm):
            yield "llm", self.llm.name
        else:
            held = precision or (name if _precision(name) else found.weight_dtype)
            if _differ(held, self.llm.weight_dtype):
                aspect = "precision" if precision else "llm"
                yield aspect, f"weights in {self.llm.weight_dtype}"


def _architecture(name: str) -> Architecture | None:
    last = name.rstrip("/").rpartition("/")[2]
    for text in (last, re.sub(_PUBLISHERS, "", last, flags=re.IGNORECASE)):
        try:
            return find_llm(text)
        except InputError:
            continue
    return None


def _precision(name: str) -> str | None:
    found = (p for of, p in _PRECISIONS.items() if re.search(of, name.lower()))
    return next(found, None)


def _differ(one: str, other: str) -> bool:
    """Return whether two names of a weight format are known to differ."""
    formats = {_precision(one), _precision(other)}
    return None not in formats and len(formats) == 2


def _is_gpu(stated: str, gpu: str) -> bool:
    """Return whether a name is a GPU's or begins it; a cluster may be named behind."""
    text = re.sub(_NO_MODEL, "", stated.lower()).strip()
    model, rest = re.match(r"([^-_ ]*)(.*)", text).groups()  # type: ignore[union-attr]
    for name in (text, "" if re.search(r"pcie|nvl|sxm|gb", rest) else model):
        try:
            return find_gpu(GPU_NAMES.get(name, name)).name == gpu or (
                gpu.lower().startswith(name + "-")
            )
        except InputError:
            continue
    return False
