"""What load tests calibrate, compared with what they say of themselves."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from capplan.engines.catalog import engine_in
from capplan.errors import InputError, warn
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import full_gpu_name, known_profile
from capplan.latency.importers.identity import Stated
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
    """The profile that load tests calibrate; ``is_forced`` takes any of them.

    A test that ``is_planned`` is simulated as it was sent: also alone, and saturated.
    """

    name: str  # as it was given: GPU/LLM/tpN
    llm: Architecture
    gpu: str
    tp: int
    engine: str = ""  # as it was given
    is_forced: bool = False
    is_planned: bool = False

    def compare(self, place: str, stated: Stated) -> None:
        """Refuse what states another system; warn where its LLM is not known."""
        others = ", ".join(
            f"{' is '.join(stated[aspect])} (expected {expected})"
            for aspect, expected in self._others(stated)
        )
        told = f"{place}: is not of {self.name}: {others}"
        if others and not self.is_forced:
            onto = self._fitting(stated)
            raise InputError(f"{told}; {onto}--force calibrates with it all the same")
        if others:
            warn(f"{told}; taken by --force")
        elif "llm" in stated and named_llm(stated["llm"][1]) is None:
            warn(
                f"the load tests say that {' is '.join(stated['llm'])}, which the "
                f"catalog does not know; it is assumed to be {self.llm.name}"
            )

    def _fitting(self, stated: Stated) -> str:
        """Return the profile that tests are of, where there is one; else nothing."""
        said = {aspect: value for aspect, (_, value) in stated.items()}
        llm = named_llm(said.get("llm", self.llm.name))
        gpu = full_gpu_name(said.get("gpu", self.gpu))
        tp = said.get("tp", "").removesuffix(".0") or str(self.tp)
        if llm is None or not tp.isdecimal() or not known_profile(llm, gpu, int(tp)):
            return ""
        other = self._replace(
            name=f"{gpu}/{llm.name}/tp{tp}", llm=llm, gpu=gpu, tp=int(tp)
        )
        return "" if any(other._others(stated)) else f"--onto {other.name} fits; "

    def _others(self, stated: Stated) -> Iterator[tuple[str, str]]:
        """Yield each aspect that is stated otherwise, and what is expected."""
        said = {aspect: value for aspect, (_, value) in stated.items()}
        for aspect in ("disaggregation", "dp attention", "speculation"):
            if aspect in said:
                yield aspect, "none"
        engine = engine_in(said.get("engine", ""))
        if self.engine and engine not in ("", self.engine):
            yield "engine", self.engine
        name, dtype = said.get("llm", ""), self.llm.weight_dtype
        found = named_llm(name) if name else self.llm
        # A bare name that no catalog knows is the server's own for any LLM.
        is_own = self.is_planned and named_llm(self.llm.name) is None
        unknown = found is None and not is_own and re.match(r"[^./~][^/]*/", name)
        if unknown or not (found is None or same_shapes(found, self.llm)):
            yield "llm", self.llm.name
        elif "precision" in said:
            if _differ(said["precision"], dtype):
                yield "precision", f"weights in {dtype}"
        elif found and _differ(name if _precision(name) else found.weight_dtype, dtype):
            yield "llm", f"weights in {dtype}"
        gpu = said.get("gpu", "0")
        if not (gpu.isdigit() or _is_gpu(gpu, self.gpu)):  # a count is not a name
            yield "gpu", self.gpu
        for aspect, degree in {"tp": self.tp, "ep": 1, "dp": 1, "pp": 1}.items():
            if said.get(aspect, str(degree)).removesuffix(".0") != str(degree):
                yield aspect, str(degree)


def named_llm(name: str) -> Architecture | None:
    """Return the LLM of the catalog whose weights have a name, whoever publishes it."""
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
            return find_gpu(name).name == gpu or gpu.lower().startswith(name + "-")
        except InputError:
            continue
    return False
