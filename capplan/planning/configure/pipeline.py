"""Pipeline parallelism of the settings."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pipeline import Pipeline
from capplan.deployment.replica import DoesNotFitError
from capplan.errors import InputError
from capplan.fleet.gpu import Gpu
from capplan.latency.pipeline import hop_times_s
from capplan.latency.profile import Profile
from capplan.llm.architecture import Architecture
from capplan.llm.pipeline import check_pp, largest_share
from capplan.planning.configure.excluded import Excluded
from capplan.planning.settings.asked import Asked
from capplan.planning.settings.groups import ConfigurationSettings

_POOLS = ("disaggregated", "prefill_replicas", "prefill_tp")


def in_stages(
    engine: EngineSettings,
    settings: Asked,
    llm: Architecture | None,
    gpu: Gpu | None,
    tp: int,
    stages: int,
) -> EngineSettings:
    """Return an engine with a pipeline of so many stages.

    Without LLM and GPU the stages are equal and a hop takes no time.
    """
    if stages == 1:
        return engine
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
    return replace(engine, pipeline=pipeline)


def only_stages(settings: Asked) -> int:
    """Return the number of stages of settings that are of one configuration."""
    counts = settings.pipeline_parallel_size or (1,)
    if len(counts) > 1:
        raise InputError(
            f"pipeline_parallel_size is {', '.join(map(str, counts))}; expected one "
            "without LLM and GPU"
        )
    return counts[0]


def fewest_stages(
    settings: Asked,
    tried: Callable[[Sequence[int]], Iterable[Configuration | Excluded]],
) -> list[Configuration]:
    """Return the configurations of the fewest stages with which any holds the LLM.

    ``tried`` gives those of numbers of stages. None where none does, where something
    asked for is not modelled with stages, and of settings that say how GPUs share the
    work.
    """
    if not settings.searches_layouts:
        return []
    if settings.tp or settings.pipeline_parallel_size or settings.asks_for_layouts:
        return []
    if settings.given(_POOLS):
        return []
    for stages in (2, 4, 8):
        try:
            able = [one for one in tried((stages,)) if isinstance(one, Configuration)]
        except InputError:
            break
        if able:
            return able
    return []


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
    if settings.has_stages:
        stages = ", ".join(map(str, settings.pipeline_parallel_size))
        raise InputError(
            f"pipeline_parallel_size is {stages}; capplan "
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
