"""Fit a profile to the points that were measured."""

from pathlib import Path
from typing import Any

from capplan.errors import CapplanError
from capplan.latency.catalog import profile_path
from capplan.latency.fit import fit
from capplan.latency.measurements import read_points
from capplan.latency.profile import Profile, validity_of
from capplan.latency.profile_file import save_profile
from capplan.profiling.backend import facts_from_document
from capplan.profiling.measurement_record import read_record
from capplan.profiling.runner import Measured


def fit_measured(measured: Measured, out: Path) -> Path:
    """Fit the points of one TP degree and write the profile beside them.

    Parameters
    ----------
    measured
        Points on disk and the record of how they were measured.
    out
        Folder of profiles.

    Raises
    ------
    CapplanError
        When the points do not make a profile.
    """
    record = read_record(measured.record_path)
    if "engine" not in record:
        raise CapplanError(f"{measured.record_path}: says nothing of the engine")
    facts = facts_from_document(record["engine"])
    points = read_points(measured.points_path)
    fitted = fit(points, expert_rate=facts.expert_rate)
    profile = Profile(
        gpu=measured.gpu,
        llm=measured.llm,
        tp=measured.tp,
        dtype=facts.dtype,
        quantization=facts.quantization,
        kv_dtype=facts.dtype
        if facts.kv_cache_dtype == "auto"
        else facts.kv_cache_dtype,
        engine=facts.backend,
        engine_version=facts.backend_version,
        source=f"measured by capplan profile on {facts.device}",
        how="measured",
        date=str(record["finished"])[:10],
        decode_form=fitted.decode_form,
        fused_form=fitted.fused_form,
        decode=fitted.decode,
        fused=fitted.fused,
        validity=validity_of(points),
        errors=fitted.errors,
        kv_tokens=facts.kv_capacity_tokens,
        block_size=facts.block_size,
        meta=_meta(record, facts.flags),
    )
    path = profile_path(out, measured.gpu, measured.llm, measured.tp)
    save_profile(profile, path)
    return path


def _meta(
    record: dict[str, Any], flags: dict[str, Any]
) -> dict[str, str | int | float | bool]:
    """Return what tells two boxes apart, flat."""
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
    meta: dict[str, str | int | float | bool] = {name: engine[name] for name in names}
    for group, settings in flags.items():
        meta |= {f"{group}.{name}": str(value) for name, value in settings.items()}
    if engine.get("note"):
        meta["note"] = engine["note"]
    meta["density"] = record["density"]
    meta["noisy_points"] = record["noisy_points"]
    return meta
