"""Fit a latency profile to measured iterations, summed kernels or served requests."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from capplan.calibration.load_records import stated_by_means
from capplan.calibration.settings import FitSettings
from capplan.calibration.target import Target, named_llm
from capplan.engines.catalog import engine_in
from capplan.errors import CapplanWarning, InputError, ProfileError, warn
from capplan.fleet.catalog import gpu as find_gpu
from capplan.fleet.gpu import Gpu
from capplan.latency.aiconfigurator import (
    PREFIX,
    Source,
    kernel_identity,
    parse_source,
    read_kernels,
)
from capplan.latency.catalog import full_gpu_name, known_profile, parse_which
from capplan.latency.estimate import estimated_profile
from capplan.latency.fit import Fit, fit
from capplan.latency.fitted_profile import Identity, profile_of
from capplan.latency.forms import iteration_s
from capplan.latency.importers import ImportOptions, read_measurements
from capplan.latency.importers.identity import (
    identity_in,
    identity_of_place,
    stated_in_file,
)
from capplan.latency.measurements import Points
from capplan.latency.profile import Profile
from capplan.latency.rank_fit import RanksFit, fit_ranks
from capplan.latency.rank_kernels import read_parts
from capplan.latency.roofline import roofline_terms
from capplan.latency.served_run import ServedRun
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.llm.dtypes import KV_BYTES, check_kv_dtype
from capplan.llm.layout import Layout, check_mtp
from capplan.profiling.backend import expert_rate

if TYPE_CHECKING:
    from capplan.calibration.served_fit import ServedFit
    from capplan.calibration.sweep_profile import SweepProfile

FASTEST, SLOWEST = 1 / 4, 100
"""Range of measured over estimated time outside which the unit must be wrong."""

Fitted: TypeAlias = "PointsFit | ServedFit | SweepProfile"


class PointsFit(NamedTuple):
    """The profile of measured iterations, and the fit it is made of."""

    profile: Profile
    fit: Fit
    points: Points


def fit_profile(settings: FitSettings) -> "Fitted | RanksFit":
    """Return the profile that fits the measurements best, with its errors.

    Of kernels in a layout other than TP alone it is that of ranks.
    """
    if settings.measurements.startswith(PREFIX):
        _refuse_engine_settings(settings)
        return _fit_kernels(settings)
    path = Path(settings.measurements)
    if settings.onto is not None:
        return _fit_sweep(path, settings, settings.onto)
    _offer_onto(path, settings)
    lengths = (settings.input_len, settings.output_len)
    options = ImportOptions(
        settings.where, settings.batch, *lengths, settings.kv_tokens
    )
    measured = read_measurements(path, options, settings.importer)
    identity = _identity(path, settings)
    if isinstance(measured, ServedRun):
        if settings.form is not None:
            raise InputError(
                f"--form is {settings.form!r}; served runs are fitted with one form "
                "only, so leave it out"
            )
        return _fit_served_run(measured, path, identity, settings)
    _refuse_engine_settings(settings)
    llm = settings.llm or identity.llm
    rate = _check_seconds(path, measured, llm, identity)
    fitted = fit(measured, form=settings.form, expert_rate=rate)
    return PointsFit(profile_of(fitted, measured, identity), fitted, measured)


def _offer_onto(path: Path, settings: FitSettings) -> None:
    """Refuse load tests that state means, which are fitted onto a profile."""
    stated = {} if path.is_dir() else stated_by_means(path, settings.where)
    if stated is None or settings.importer is not None:
        return
    known = {aspect: value for aspect, (_, value) in stated.items()}
    known["gpu"] = full_gpu_name(known.get("gpu", ""))
    llm = known.get("llm", "")
    named = named_llm(llm)
    known["llm"] = named.name if named else llm.rpartition("/")[2]
    parts = [
        str(getattr(settings, name) or known.get(name) or otherwise)
        for name, otherwise in (("gpu", "GPU"), ("llm", "LLM"), ("tp", "N"))
    ]
    raise InputError(
        f"{path}: holds load tests that state means; they calibrate a profile, "
        f"named with --onto {parts[0]}/{parts[1]}/tp{parts[2]} (as in "
        "H100-SXM/Llama-3.1-8B/tp1)"
    )


def _fit_kernels(settings: FitSettings) -> PointsFit | RanksFit:
    source = parse_source(settings.measurements)
    tp = settings.tp or 1
    gpu = settings.gpu or source.system
    llm = settings.llm or source.model.rstrip("/").rpartition("/")[2]
    known = _in_catalogs(settings.measurements, {"gpu": gpu, "llm": llm}, settings)
    if source.has_parts:
        return _fit_ranks(source, tp, known, settings)
    points = read_kernels(source, tp, settings.kv_tokens)
    identity = kernel_identity(source, tp, known["gpu"], known["llm"])
    fitted = fit(points, form=settings.form)
    return PointsFit(profile_of(fitted, points, identity), fitted, points)


def _fit_ranks(
    source: Source, tp: int, known: Mapping[str, str], settings: FitSettings
) -> RanksFit:
    layout = Layout(tp, source.dp, source.ep)
    llm = find_llm(known["llm"])
    layout.check(llm)
    check_mtp(llm, source.nextn)
    if layout == Layout(tp):
        raise InputError(
            f"{settings.measurements}: {layout} has no ranks and no EP; expected dp or "
            "ep above 1, or none of dp, ep, a2a and nextn"
        )
    parts = read_parts(source, tp, settings.kv_tokens)
    form = settings.form
    return fit_ranks(parts, source, tp, known["gpu"], known["llm"], form=form)


_OF_ONTO = {"llm", "gpu", "tp", "form", "how", "quantization", "dtype", "importer"} | {
    "batch",
    "input_len",
    "output_len",
    "prefix_caching",
}
"""Settings of other fits, which a calibration takes from its profile."""
_SEATS = {"max_num_seqs", "max_num_batched_tokens", "block_size"}
"""Settings of the engine that load tests may state."""


def _fit_sweep(path: Path, settings: FitSettings, onto: str) -> "SweepProfile":
    """Calibrate a profile, or an estimate where there is none, with load tests."""
    # The simulator takes a second to import; other fits do not need it.
    from capplan.calibration.served_engine import served_engine
    from capplan.calibration.sweep_file import read_sweep
    from capplan.calibration.sweep_profile import fit_sweep

    why = f"is of another fit; --onto {onto} names what is calibrated"
    settings.refuse(_OF_ONTO, why)
    gpu, llm, tp = parse_which(onto)
    at, model = find_gpu(gpu), find_llm(llm)
    base = known_profile(model, at, tp) or estimated_profile(model, at, tp)
    asked = engine_in(settings.engine or "") or settings.engine or ""
    target = Target(onto, model, at.name, tp, asked, settings.force)
    sweep = read_sweep(path, tp, settings.where, target)
    stated = {aspect: value for aspect, (_, value) in sweep.stated.items()}
    is_given = "kv_dtype" in settings.model_fields_set
    kv = settings.kv_dtype if is_given else base.kv_dtype
    kv_said = stated.get("kv_cache_dtype", "auto").replace("auto", kv)
    if KV_BYTES[check_kv_dtype(kv_said)] != KV_BYTES[check_kv_dtype(kv)]:
        of = "--kv-dtype" if is_given else f"the kernels of {onto}"
        kv = kv if is_given else kv_said
        warn(
            f"the load tests have a KV cache in {kv_said}, unlike {of}; calibrated "
            f"as {kv}; if that is meant, give --kv-dtype {check_kv_dtype(kv_said)}"
        )
    engine_said = engine_in(stated.get("engine", ""))
    if not asked and engine_said not in ("", base.engine):
        warn(
            f"the load tests are of {engine_said}, the kernels of {onto} of "
            f"{base.engine}; the profile is one of {engine_said}; if that is meant, "
            f"give --engine {engine_said}"
        )
    measured = {
        "engine": asked or engine_said or base.engine,
        "engine_version": settings.engine_version or stated.get("engine_version", ""),
    }
    identity = Identity(
        gpu=at.name,
        llm=model.name,
        tp=tp,
        source=settings.source or str(path),
        how="calibrated",
        **measured,
        quantization=base.quantization,
        kv_dtype=kv,
        kv_tokens=settings.kv_tokens,
    )
    with warnings.catch_warnings():
        # The estimate of the KV cache matters only where it holds fewer than the users.
        warnings.simplefilter("ignore", CapplanWarning)
        own = {n: int(v) for n, v in stated.items() if n in _SEATS and v.isdecimal()}
        given = own | settings.engine_settings() | {"prefix_caching": False}
        engine, _ = served_engine(identity, given)
    times = KV_BYTES[check_kv_dtype(kv)] / KV_BYTES[base.kv_element]
    fitted = fit_sweep(
        sweep.points,
        base,
        engine,
        model.experts > 0,
        source=identity.source,
        kv_times=times,
    )
    fastest_s = min((p.tpot_s for p in sweep.points if p.tpot_s), default=math.inf)
    # The table of input embeddings is not read whole.
    read = model.weight_bytes_per_gpu(tp) - 2 * model.vocab * model.hidden / tp
    least_s = read / at.bandwidth_bytes_per_s
    if not model.experts and fastest_s < least_s:
        warn(
            f"{path}: a TPOT of {fastest_s * 1e3:.3g} ms is less than {at.name} takes "
            f"to read the weights of {model.name}, {least_s * 1e3:.3g} ms at TP {tp}; "
            "is it another precision, GPU or TP degree, or with speculation?"
        )
    changes = {
        **measured,
        "llm": model.name,
        "date": settings.date,
        "kv_tokens": settings.kv_tokens or base.kv_tokens,
        "engine_time": fitted.fit.time.model_copy(update=measured),
    }
    return fitted._replace(
        profile=fitted.profile.model_copy(update=changes), notes=sweep.notes
    )


def _fit_served_run(
    run: ServedRun, path: Path, identity: Identity, settings: FitSettings
) -> "ServedFit":
    # The simulator takes a second to import; other fits do not need it.
    from capplan.calibration.served_engine import served_engine
    from capplan.calibration.served_fit import fit_served

    named = f"{identity.gpu}/{identity.llm}/tp{identity.tp}"
    llm = find_llm(settings.llm or identity.llm)
    target = Target(named, llm, identity.gpu, identity.tp, is_forced=settings.force)
    target.compare(str(path), stated_in_file(path))
    engine, kv_source = served_engine(identity, settings.engine_settings())
    identity = identity._replace(source=f"{identity.source} ({run.source})")
    if kv_source == "given":
        identity = identity._replace(kv_tokens=engine.kv_blocks * engine.block_size)
    # Messages name the file rather than the tool.
    run = run._replace(source=str(path))
    return fit_served(run, engine, identity, kv_source=kv_source)


def _refuse_engine_settings(settings: FitSettings) -> None:
    holds = f"{settings.measurements} holds iterations"
    settings.refuse(("force",), f"takes load tests of another system; {holds}")
    of_engine = settings.engine_settings()
    settings.refuse(of_engine, f"is of the engine behind a served run; {holds}")


def _identity(path: Path, settings: FitSettings) -> Identity:
    """Return what was measured: as given, else as the file says, else as --out says."""
    known = {"llm": "", "gpu": "", "tp": "1", "engine": "vllm", "engine_version": ""}
    known |= identity_of_place(settings.out) | identity_in(path, settings.where)
    given = {name: getattr(settings, name) for name in known}
    known |= {name: str(value) for name, value in given.items() if value}
    known |= _in_catalogs(str(path), known, settings)
    as_given = {"dtype", "quantization", "kv_dtype", "how", "date", "kv_tokens"}
    fields = settings.model_dump(include=as_given) | known | {"tp": int(known["tp"])}
    return Identity(**fields, source=settings.source or path.name)


def _in_catalogs(
    source: str, named: Mapping[str, str], settings: FitSettings
) -> dict[str, str]:
    """Return LLM and GPU under the names by which plans find their profile."""
    missing = [name for name in ("llm", "gpu") if not named[name]]
    if missing:
        raise InputError(
            f"{source} does not say its {' and '.join(missing)}; give "
            f"{' and '.join('--' + name for name in missing)}"
        )
    try:
        llm = find_llm(named["llm"]).name
    except InputError as error:
        raise InputError(f"{source}: {error}, with --llm PATH") from None
    try:
        gpu = find_gpu(named["gpu"]).name
    except InputError as error:
        if settings.kv_tokens is None and settings.kv_blocks is None:
            raise InputError(
                f"{source}: {error}; for a GPU of no catalog give --kv-tokens, the "
                "KV cache of a replica as its engine logs it"
            ) from None
        gpu = named["gpu"]
    return {"llm": llm, "gpu": gpu}


def _check_seconds(
    path: Path, points: Points, llm_name: str, identity: Identity
) -> float | None:
    """Refuse times in a wrong unit, where LLM and GPU are known; return expert rate."""
    try:
        llm, gpu = find_llm(llm_name), find_gpu(identity.gpu)
    except InputError:
        return None
    check_seconds(points, llm, gpu, identity.tp, str(path))
    return expert_rate(llm.experts_per_token, llm.experts)


def check_seconds(
    points: Points, llm: Architecture, gpu: Gpu, tp: int, source: str
) -> None:
    """Refuse times that no engine can have with this LLM, GPU type and TP degree."""
    estimate_s = iteration_s(*roofline_terms(llm, gpu, tp), points)
    ratio = float(np.median(points.seconds / estimate_s))
    if FASTEST <= ratio <= SLOWEST:
        return
    hint = "is this another LLM, GPU or unit?"
    if ratio > SLOWEST:
        hint = "are these milliseconds?"
    median_s, sheet_s = np.median(points.seconds), np.median(estimate_s)
    raise ProfileError(
        f"{source}: seconds are {ratio:,.3g} times what {llm.name} on {tp} × "
        f"{gpu.name} takes by data sheet (median {median_s:.3g} against "
        f"{sheet_s:.3g} s); {hint}"
    )
