"""Pipeline parallelism of the settings."""

from dataclasses import replace

from capplan.deployment.engine import EngineSettings
from capplan.deployment.pipeline import Pipeline
from capplan.deployment.replica import DoesNotFitError
from capplan.errors import InputError
from capplan.fleet.gpu import Gpu
from capplan.latency.pipeline import hop_times_s
from capplan.latency.profile import Profile
from capplan.llm.architecture import Architecture
from capplan.llm.pipeline import check_pp, largest_share
from capplan.planning.fleet_settings import MOVING, OF_TP_ALONE, flag_given
from capplan.planning.setting_groups import ConfigurationSettings
from capplan.simulator.checks import check_pipeline


def in_stages(
    engine: EngineSettings,
    settings: ConfigurationSettings,
    llm: Architecture | None,
    gpu: Gpu | None,
    tp: int,
) -> EngineSettings:
    """Return an engine with the pipeline of the settings.

    Without LLM and GPU the stages are equal and a hop takes no time.

    Raises
    ------
    InputError
        When the LLM has too few layers, or something is not modelled with stages.
    DoesNotFitError
        When the GPUs of a stage would be on two nodes, or no network is known.
    """
    stages = settings.pipeline_parallel_size
    if stages is None or stages == 1:
        return engine
    if flag := flag_given(settings, (*MOVING, *OF_TP_ALONE)):
        raise InputError(
            f"pipeline_parallel_size {stages} with {flag} is not modelled; leave out "
            "one of them"
        )
    pipeline = Pipeline(stages)
    if llm is not None:
        check_pp(llm, stages)
        pipeline = replace(pipeline, layer_share=largest_share(llm, stages))
        if gpu is not None:
            per_node = gpu.max_gpus_per_node
            spans_nodes = tp * stages > per_node
            if spans_nodes:
                _check_nodes(gpu, tp, stages)
            hop_s, token_s = hop_times_s(llm, gpu, tp, spans_nodes=spans_nodes)
            pipeline = replace(pipeline, hop_s=hop_s, hop_token_s=token_s)
    engine = replace(engine, pipeline=pipeline)
    router = getattr(settings, "router", None) or "jsq"
    check_pipeline(engine, router, moves=False)
    return engine


def with_own_time(engine: EngineSettings, profile: Profile | None) -> EngineSettings:
    """Return an engine whose stages each take the engine's own time of a profile."""
    time = None if profile is None else profile.engine_time
    if engine.pipeline is None or time is None:
        return engine
    pipeline = replace(
        engine.pipeline, own_s=time.iteration_s, own_request_s=time.per_request_s
    )
    return replace(engine, pipeline=pipeline)


def refuse_stages(settings: ConfigurationSettings, command: str) -> None:
    """Refuse a pipeline where a command compares iterations of one batch."""
    if settings.pipeline_parallel_size not in (None, 1):
        raise InputError(
            f"pipeline_parallel_size is {settings.pipeline_parallel_size}; capplan "
            f"{command} knows no stages, expected 1, or capplan plan"
        )


def _check_nodes(gpu: Gpu, tp: int, stages: int) -> None:
    """Refuse replicas on several nodes that cannot be joined."""
    per_node = gpu.max_gpus_per_node
    if per_node % tp:
        raise DoesNotFitError(
            f"TP {tp} x PP {stages}: a stage would be on two nodes of {gpu.name} "
            f"({per_node} GPUs)"
        )
    if gpu.network_bytes_per_s_per_direction is None:
        raise DoesNotFitError(
            f"TP {tp} x PP {stages} takes more GPUs than a node of {gpu.name} has "
            f"({per_node}), and no network between them is known"
        )
