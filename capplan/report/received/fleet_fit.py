"""A profile from the metrics of a fleet that runs: its backtest, onto the profile."""

from typing import Any

from capplan.calibration.settings import FitSettings
from capplan.calibration.target import Target
from capplan.errors import InputError
from capplan.latency.catalog import full_gpu_name, parse_which
from capplan.llm.catalog import llm as find_llm
from capplan.llm.dtypes import check_kv_dtype
from capplan.planning.backtest.backtest import backtest
from capplan.planning.backtest.fitted import FleetFit, fitted
from capplan.planning.backtest.settings import BacktestSettings

METRICS = "metrics:"
_NAMES = {"measurements", "out", "onto", "force", "where", "source", "date", "plot"}
_NAMES |= {"report", "gpu_file", "engine", "engine_version", "kv_dtype"}


def fleet_fit_of(settings: FitSettings) -> FleetFit | None:
    """Return the fit to metrics of a fleet; None where others were measured."""
    path = settings.measurements.removeprefix(METRICS)
    if path == settings.measurements:
        return None
    if settings.onto is None:
        raise InputError(
            f"{path}: metrics calibrate a profile; name it with --onto GPU/LLM/tpN, "
            "as in H100-SXM/Llama-3.1-8B/tp1"
        )
    engine: dict[str, Any] = {**settings.engine_settings()}
    settings.refuse(
        {*FitSettings.model_fields} - _NAMES - {*engine},
        "has no effect on a fit to metrics",
    )
    if others := settings.where.keys() - {"model_name"}:
        raise InputError(
            f"--where {min(others)} is of a table; of metrics expected model_name=NAME"
        )
    gpu, name, tp = parse_which(settings.onto)
    llm = find_llm(name)
    wanted = settings.engine
    if wanted and settings.engine_version:
        wanted = f"{wanted}@{settings.engine_version}"
    if "kv_dtype" in settings.model_fields_set:
        engine["kv_cache_dtype"] = check_kv_dtype(settings.kv_dtype)
    target = Target(
        settings.onto, llm, full_gpu_name(gpu), tp, is_forced=settings.force
    )
    found = backtest(
        BacktestSettings(
            metrics=path,
            model_name=settings.where.get("model_name"),
            llm=name,
            gpu=(gpu,),
            tp=(tp,),
            gpu_file=settings.gpu_file,
            engine=wanted,
            **engine,
        ),
        lambda served: target.compare(path, {"llm": ("model_name", served)}),
    )
    return fitted(found, settings.source or f"metrics of {path}", settings.date)
