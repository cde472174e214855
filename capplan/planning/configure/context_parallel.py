"""Decode context parallelism of the settings."""

from dataclasses import replace

from capplan.conflicts import refuse_conflicts
from capplan.deployment.engine import EngineSettings
from capplan.deployment.features import features_of_engine
from capplan.deployment.replica import Replica
from capplan.engines.catalog import VLLM
from capplan.latency.context_parallel import with_context_parallel
from capplan.latency.contract import LatencyTables
from capplan.llm.architecture import Architecture
from capplan.llm.context_parallel import check_dcp
from capplan.planning.configure.scheduling import engine_of
from capplan.planning.settings.asked import Asked

_DCP = "decode_context_parallel_size"


def sharing_kv(
    engine: EngineSettings, settings: Asked, llm: Architecture | None, tp: int
) -> EngineSettings:
    """Return an engine with the DCP degree of the settings.

    Its blocks then hold so many times the tokens; the rest follows from that.
    """
    dcp = settings.decode_context_parallel_size
    if dcp is None or dcp == 1:
        return engine
    if (name := engine_of(settings).name) != VLLM.name:
        refuse_conflicts({"dcp": f"{_DCP} {dcp}", "other engine": f"--engine {name}"})
    check_dcp(llm, tp, dcp)
    engine = replace(
        engine, decode_context_parallel_size=dcp, block_size=dcp * engine.block_size
    )
    refuse_conflicts(features_of_engine(engine))
    return engine


def shared_kv_tables(
    tables: LatencyTables, settings: Asked, fitted: Replica
) -> LatencyTables:
    """Return the iteration times of a replica with DCP; given ones as they are."""
    dcp = fitted.engine.decode_context_parallel_size
    if dcp == 1 or settings.latency_ms is not None:
        return tables
    return with_context_parallel(tables, fitted.llm, fitted.gpu, fitted.tp, dcp)
