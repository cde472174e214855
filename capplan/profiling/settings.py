"""Settings of a profile: one field is one flag of ``capplan profile``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from capplan.errors import InputError
from capplan.fleet.gpu_file import GpuFileSettings
from capplan.settings import setting

ENGINE = "Engine settings (left out: as `vllm serve` would choose)"

_ENGINE_FIELDS = {
    "load_format",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "block_size",
    "gpu_memory_utilization",
}


def _degrees(value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    try:
        degrees = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        degrees = ()
    if not degrees or min(degrees) < 1 or len(set(degrees)) < len(degrees):
        raise InputError(f"--tp is {value!r}; expected different degrees such as 1,2,4")
    return degrees


def _engine_args(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    options: dict[str, Any] = {}
    for argument in value:
        name, equals, content = argument.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(
                f"--engine-arg is {argument!r}; expected NAME=VALUE such as "
                "enforce_eager=true"
            )
        try:
            options[name] = json.loads(content)
        except json.JSONDecodeError:
            options[name] = content
    return options


class ProfileSettings(GpuFileSettings):
    """Settings of a profile; engine settings left None are the engine's choice."""

    llm: str = setting(..., "", "LLM", "Model name, or a folder with its config.json.")
    tp: Annotated[tuple[int, ...], BeforeValidator(_degrees)] = setting(
        (1,), "", "1,2", "Tensor-parallel degrees, with commas."
    )
    backend: str = setting(
        "vllm", "", "NAME", "vllm, torch (where there is no vLLM) or module:Class."
    )
    out: Path = setting(
        Path("profiles"), "", "DIR", "Folder of profiles.", flags=("-o", "--out")
    )
    gpu: str | None = setting(
        None, "", "NAME", "GPU type in the catalog (default: from its driver)."
    )
    density: str = setting(
        "default", "", "NAME", "How closely to sample: coarse, default or fine."
    )
    resume: bool = setting(
        False,
        "",
        "",
        "Continue with the points of an interrupted run.",
        flags=("--resume",),
    )
    dry_run: bool = setting(
        False,
        "",
        "",
        "List points and expected time, measure nothing; needs --gpu.",
        flags=("--dry-run",),
    )
    load_format: str | None = setting(
        None, ENGINE, "NAME", "`dummy`: random weights, a config.json is enough."
    )
    dtype: str | None = setting(None, ENGINE, "NAME", "Number format of activations.")
    quantization: str | None = setting(None, ENGINE, "NAME", "Format of the weights.")
    kv_cache_dtype: str | None = setting(
        None, ENGINE, "NAME", "Number format of the KV cache."
    )
    max_model_len: int | None = setting(
        None, ENGINE, "TOKENS", "Longest prompt plus output."
    )
    max_num_batched_tokens: int | None = setting(
        None, ENGINE, "N", "Token budget of an iteration."
    )
    max_num_seqs: int | None = setting(
        None, ENGINE, "N", "Most requests running at once."
    )
    block_size: int | None = setting(None, ENGINE, "N", "Tokens in a KV block.")
    gpu_memory_utilization: float | None = setting(
        None, ENGINE, "SHARE", "Share of GPU memory the engine may use."
    )
    engine_arg: Annotated[dict[str, Any], BeforeValidator(_engine_args)] = setting(
        {},
        ENGINE,
        "NAME=VALUE",
        "Any other setting under the engine's name, its value as JSON.",
        repeated=True,
    )

    @property
    def options(self) -> dict[str, Any]:
        """Engine settings that were given, under the engine's own names."""
        given = self.model_dump(include=_ENGINE_FIELDS, exclude_none=True)
        return given | self.engine_arg
