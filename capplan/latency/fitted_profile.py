"""Make a profile from a fit and the identity of the system measured."""

from typing import NamedTuple

from capplan.errors import ProfileError
from capplan.latency.fit import Fit
from capplan.latency.measurements import Points
from capplan.latency.profile import Profile, validity_of
from capplan.latency.yaml_file import checked


class Identity(NamedTuple):
    """LLM, GPU, engine and source of measurements; fields as in a profile."""

    gpu: str
    llm: str
    tp: int
    engine: str
    source: str
    how: str
    engine_version: str = ""
    dtype: str = "bfloat16"
    quantization: str = "none"
    kv_dtype: str = "bfloat16"
    licence: str = ""
    date: str = ""
    kv_tokens: int | None = None


def profile_of(fitted: Fit, points: Points, identity: Identity) -> Profile:
    """Return the profile of a fit."""
    content = identity._asdict() | fitted._asdict()
    del content["scores"]
    content["validity"] = validity_of(points)
    return checked("fitted profile", Profile, content, ProfileError)
