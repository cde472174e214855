"""Settings of a fit: one field is one flag of ``capplan fit``."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from capplan.errors import InputError
from capplan.fleet.gpu_file import GpuFileSettings
from capplan.setting_values import PathText
from capplan.settings import setting

MEASURED = "What was measured"
FILE = "What the file does not say"
PLANNED = "The plan that a load test is of"
SERVED = "The engine that served the requests, for served runs"


def column_values(texts: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    """Return COLUMN=VALUE texts as a mapping."""
    if isinstance(texts, Mapping):
        return dict(texts)
    for text in texts:
        if "=" not in text:
            raise InputError(f"--where is {text!r}; expected COLUMN=VALUE")
    return dict(text.split("=", 1) for text in texts)


class FitSettings(GpuFileSettings):
    """Settings of a fit; a field left None is read from the file or chosen."""

    measurements: str = setting(
        ...,
        "",
        "FILE",
        "Measurements, in a format named above (docs/reference/inputs.md has "
        "the tools), aiconfigurator:SYSTEM/MODEL, or metrics:FOLDER.",
        flags=("--from",),
    )
    out: Path = setting(
        ..., "", "FILE", "Profile to write (YAML).", flags=("--out", "-o")
    )
    onto: str | None = setting(
        None,
        "",
        "GPU/LLM/tpN",
        "Profile to calibrate with load tests that state means, or with metrics.",
    )
    plan: Path | None = setting(
        None,
        PLANNED,
        "PLAN.json",
        "Plan whose load test this is: says passed or failed, the new count and bill.",
    )
    trace: PathText | None = setting(
        None, PLANNED, "FILE", "Its trace, where that does not lie beside it."
    )
    profiles: PathText | None = setting(
        None, PLANNED, "FOLDER", "Its profiles, where they do not lie beside it."
    )
    prices: PathText | None = setting(None, PLANNED, "FILE", "Its file of prices.")
    force: bool = setting(
        False,
        "",
        "",
        "Take load tests and served runs that say they are of another system.",
        flags=("--force",),
    )
    llm: str | None = setting(
        None,
        MEASURED,
        "NAME|FILE",
        "LLM, or its config.json (default: from the file or the --out path).",
    )
    gpu: str | None = setting(
        None, MEASURED, "NAME", "GPU type (default: from the file or the --out path)."
    )
    tp: int | None = setting(
        None, MEASURED, "N", "TP degree (default: from file or path, else 1).", ge=1
    )
    form: str | None = setting(
        None,
        "",
        "NAME",
        "Form to force, such as aladdin (default: by cross-validation).",
    )
    engine: str | None = setting(
        None, MEASURED, "NAME", "Engine (default: from the file, else vllm)."
    )
    engine_version: str | None = setting(
        None, MEASURED, "VERSION", "Version of the engine (default: from the file)."
    )
    dtype: str = setting("bfloat16", MEASURED, "NAME", "Number format of activations.")
    quantization: str = setting("none", MEASURED, "NAME", "Format of the weights.")
    kv_dtype: str = setting("bfloat16", MEASURED, "NAME", "Format of the KV cache.")
    source: str = setting("", "", "TEXT", "Who measured (default: the file's name).")
    how: str = setting(
        "measured", "", "HOW", "measured, kernel-sum, published or estimate."
    )
    date: str = setting("", "", "DATE", "Day of the measurement, YYYY-MM-DD.")
    importer: str | None = setting(
        None, "", "FORMAT", "Format of the file (default: detected)."
    )
    where: Annotated[dict[str, str], BeforeValidator(column_values)] = setting(
        {},
        FILE,
        "COLUMN=VALUE",
        "Take only these rows of a table, load tests, or model_name of metrics.",
        repeated=True,
    )
    kv_tokens: int | None = setting(
        None,
        FILE,
        "TOKENS",
        "KV cache of a replica as its engine logs it; for a GPU of no catalog.",
        ge=1,
    )
    batch: int | None = setting(None, FILE, "N", "Batch of a vllm-latency run.")
    input_len: int | None = setting(
        None, FILE, "TOKENS", "Prompt length of a vllm-latency run."
    )
    output_len: int | None = setting(
        None, FILE, "TOKENS", "Output length of a vllm-latency run."
    )
    max_num_batched_tokens: int | None = setting(
        None, SERVED, "N", "Token budget of an iteration (default: by GPU).", ge=1
    )
    max_num_seqs: int | None = setting(
        None, SERVED, "N", "Most requests running at once (default: by GPU).", ge=1
    )
    block_size: int | None = setting(
        None, SERVED, "N", "Tokens in a KV block (default 16).", ge=1
    )
    kv_blocks: int | None = setting(
        None,
        SERVED,
        "N",
        "KV blocks as the engine logged them (default: estimated for LLM and GPU).",
        ge=2,
    )
    async_scheduling: bool | None = setting(
        None, SERVED, "", "Schedule iteration k + 1 while k runs (default: on)."
    )
    prefix_caching: bool | None = setting(
        None, SERVED, "", "Keep and share full KV blocks (default: on)."
    )
    plot: Path | None = setting(None, "", "FILE", "HTML file of curves and residuals.")
    report: Path | None = setting(
        None, "", "DIR", "Folder for the JSON, CSV, HTML and Markdown files of the fit."
    )

    def refuse(self, names: Iterable[str], because: str) -> None:
        """Refuse those of some settings that are given."""
        for name in sorted(self.model_fields_set.intersection(names)):
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} {because}; leave it out")

    def engine_settings(self) -> dict[str, int | bool]:
        """Return the engine's settings that were given."""
        from capplan.deployment.engine import EngineSettings

        names = set(EngineSettings.__dataclass_fields__)
        return self.model_dump(include=names, exclude_none=True)
