"""What ``capplan fit`` does with requests that a server answered."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from capplan.deployment import EngineSettings, default_engine_settings, replica
from capplan.errors import CapplanWarning, InputError

if TYPE_CHECKING:
    from capplan.calibration.served_fit import ServedFit
    from capplan.latency.fitted_profile import Identity
    from capplan.latency.served_run import ServedRun

Settings = dict[str, int | bool | None]
"""Fields of EngineSettings as given; None where they were not."""

_MEANINGS = {
    "fixed_s": "each iteration",
    "prefill_s": "per prompt token",
    "attention_s": "per pair of prompt token and earlier token",
    "decode_s": "per decoding request",
    "context_s": "per token of their context",
}


def fit_served_run(
    run: "ServedRun",
    path: Path,
    out: Path,
    identity: "Identity",
    settings: Settings,
    plot: Path | None,
) -> None:
    """Find the iteration time behind a served run, write the profile and say it."""
    from capplan.calibration.served_fit import fit_served
    from capplan.latency.profile_file import save_profile

    engine, kv_source = served_engine(identity, settings)
    identity = identity._replace(
        source=f"{identity.source} ({run.source})",
        kv_tokens=_reported_kv_tokens(identity, engine, settings),
    )
    # Messages name the file rather than the tool.
    fitted = fit_served(
        run._replace(source=str(path)), engine, identity, kv_source=kv_source
    )
    save_profile(fitted.profile, out)
    _print(run, engine, kv_source, fitted)
    typer.echo(f"{fitted.profile.name} → {out}")
    if plot:
        from capplan.latency.plots import write_plot

        write_plot(fitted.profile, plot)
        typer.echo(f"plot: {plot}")


def served_engine(
    identity: "Identity", settings: Settings
) -> tuple[EngineSettings, str]:
    """Return the limits of the engine that served, and where its KV blocks are from.

    What is not given is what ``vllm serve`` chooses for the GPU, prefix caching on;
    KV blocks are estimated from LLM, GPU and TP degree, with a warning.

    Raises
    ------
    InputError
        When something is not given, and LLM or GPU are not in the catalogs.
    """
    from capplan.fleet.catalog import gpu as find_gpu
    from capplan.llm.catalog import llm as find_llm

    given: dict[str, Any] = {"prefix_caching": True}
    given |= {name: value for name, value in settings.items() if value is not None}
    try:
        gpu = find_gpu(identity.gpu)
    except InputError as error:
        missing = {"max_num_batched_tokens", "max_num_seqs"} - given.keys()
        if missing:
            flags = " and ".join(_flag(name) for name in sorted(missing))
            raise InputError(
                f"{error}; what vllm serve chooses is known for GPUs of the catalog: "
                f"give {flags}"
            ) from None
        engine = EngineSettings(**given)
    else:
        engine = default_engine_settings(gpu, **given)
    if "kv_blocks" in given:
        return engine, "given"
    if identity.kv_tokens is not None:
        blocks = identity.kv_tokens // engine.block_size
        return replace(engine, kv_blocks=blocks), "given as tokens"
    try:
        gpu, llm = find_gpu(identity.gpu), find_llm(identity.llm)
    except InputError as error:
        raise InputError(
            f"{error}; how many KV blocks there were cannot be estimated: give "
            "--kv-blocks or --kv-tokens as the engine logged it"
        ) from None
    quantization = identity.quantization
    built = replica(
        llm,
        gpu,
        identity.tp,
        engine,
        weight_dtype=None if quantization == "none" else quantization,
        kv_dtype="fp8" if identity.kv_dtype.startswith("fp8") else "bf16",
    )
    blocks = built.engine.kv_blocks
    warnings.warn(
        f"--kv-blocks is not given: {blocks:,} of {engine.block_size} tokens are "
        f"estimated for {llm.name} on {gpu.name}, TP {identity.tp}; the engine logs "
        "what it has",
        CapplanWarning,
        stacklevel=2,
    )
    # The longest request is what the engine took, not what the catalog says.
    return replace(engine, kv_blocks=blocks), "estimated"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _reported_kv_tokens(
    identity: "Identity", engine: EngineSettings, settings: Settings
) -> int | None:
    if settings["kv_blocks"] is not None:
        return engine.kv_blocks * engine.block_size
    return identity.kv_tokens


def _print(
    run: "ServedRun", engine: EngineSettings, kv_source: str, fitted: "ServedFit"
) -> None:
    from rich.console import Console
    from rich.table import Table

    from capplan.calibration.calibrate import NAMES

    found = fitted.calibration
    console = Console()
    failed = f", {run.failed} failed" if run.failed else ""
    console.print(
        f"{len(found.fitted_rows)} of {len(run.arrival_s)} served requests fitted"
        f"{failed}; simulated with {engine.max_num_batched_tokens:,} tokens and "
        f"{engine.max_num_seqs:,} requests an iteration, {engine.kv_blocks:,} KV "
        f"blocks of {engine.block_size} tokens ({kv_source}), "
        f"async scheduling {_on(engine.async_scheduling)}, "
        f"prefix caching {_on(engine.prefix_caching)}",
        highlight=False,
    )
    coefficients = Table("coefficient", "of", "µs", "± standard error", "")
    for name, value_s, error_s, known in zip(
        NAMES,
        found.coefficients_s,
        found.standard_errors_s,
        found.identified,
        strict=True,
    ):
        coefficients.add_row(
            name,
            _MEANINGS[name],
            _micro(value_s),
            _micro(error_s),
            "" if known else "not identified by this run",
        )
    errors = Table("requests'", "mean error", "worst", "second half, held out")
    for label, phase in (("TTFT", "prefill"), ("TPOT", "decode")):
        record = fitted.profile.errors[phase]
        held_out = record.held_out_mean_abs
        errors.add_row(
            label,
            f"{record.mean_abs:.2%}",
            f"{record.max_abs:.2%}",
            "" if held_out is None else f"{held_out:.2%}",
        )
    console.print(coefficients, errors)
    if not found.identified.all():
        console.print(
            "What is not identified stands in the profile as found, but other values "
            "explain this run as well: serve other lengths or rates to learn it.",
            highlight=False,
        )


def _micro(value_s: float) -> str:
    value_us = 1e6 * value_s
    return f"{value_us:,.0f}" if value_us >= 100 else f"{value_us:.3g}"


def _on(setting: bool) -> str:
    return "on" if setting else "off"
