"""Fit a profile to the points that were measured."""

from pathlib import Path
from typing import Any

from capplan.errors import CapplanError
from capplan.latency.catalog import profile_path
from capplan.latency.fit import fit
from capplan.latency.fitted_profile import Identity, profile_of
from capplan.latency.measurements import read_points
from capplan.latency.profile_file import save_profile
from capplan.profiling.backend import facts_from_document
from capplan.profiling.measurement_record import read_record
from capplan.profiling.runner import Measured, OnProgress, profile
from capplan.profiling.settings import ProfileSettings


def profile_and_fit(
    settings: ProfileSettings, on_progress: OnProgress
) -> list[Measured]:
    """Measure each TP degree and fit a profile to those that succeeded."""
    runs = []
    for measured in profile(settings, on_progress):
        try:
            if not measured.failure:
                path = fit_measured(measured, settings.out)
                measured = measured._replace(profile_path=path)
        except CapplanError as error:  # the other degrees may still have a profile
            measured = measured._replace(refusal=str(error))
        runs.append(measured)
    return runs


def fit_measured(measured: Measured, out: Path) -> Path:
    """Fit the points of one TP degree; write the profile into ``out``, return where."""
    record = read_record(measured.record_path)
    if "engine" not in record:
        raise CapplanError(f"{measured.record_path}: does not describe the engine")
    facts = facts_from_document(record["engine"])
    points = read_points(measured.points_path)
    fitted = fit(points, expert_rate=facts.expert_rate)
    kv_dtype = facts.kv_cache_dtype
    identity = Identity(
        gpu=measured.gpu,
        llm=measured.llm,
        tp=measured.tp,
        dtype=facts.dtype,
        quantization=facts.quantization,
        kv_dtype=facts.dtype if kv_dtype == "auto" else kv_dtype,
        engine=facts.backend,
        engine_version=facts.backend_version,
        source=f"measured by capplan profile on {facts.device}",
        how="measured",
        date=str(record["finished"])[:10],
        kv_tokens=facts.kv_capacity_tokens,
    )
    engine = {"block_size": facts.block_size, "meta": _meta(record, facts.flags)}
    profile = profile_of(fitted, points, identity).model_copy(update=engine)
    path = profile_path(out, measured.gpu, measured.llm, measured.tp)
    save_profile(profile, path)
    return path


def _meta(record: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """Return the facts in which two machines may differ, flat."""
    engine = record["engine"]
    names = (
        "device",
        "driver",
        "torch_version",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "kv_blocks",
        "kv_bytes_per_token",
        "async_scheduling",
    )
    meta = {name: engine[name] for name in names}
    for group, settings in flags.items():
        meta |= {f"{group}.{name}": str(value) for name, value in settings.items()}
    if engine.get("note"):
        meta["note"] = engine["note"]
    meta["density"] = record["density"]
    meta["noisy_points"] = record["noisy_points"]
    return meta
