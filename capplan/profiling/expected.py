"""Points that a profile will measure, and the time it will take: a dry run."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from capplan.deployment.engine import default_engine_settings
from capplan.deployment.memory import MemoryShare
from capplan.deployment.replica import DoesNotFitError, replica
from capplan.errors import InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import own_tp_alone
from capplan.latency.estimate import estimated_profile
from capplan.latency.measurements import points_from_rows
from capplan.latency.profile import Profile
from capplan.llm.catalog import llm as find_llm
from capplan.llm.layout import Layout
from capplan.profiling.backend import EngineFacts, facts_from_document
from capplan.profiling.catalog_names import llm_name
from capplan.profiling.measurement_record import read_record, record_path
from capplan.profiling.plan import Density, ProfilePlan, density, plan_profile
from capplan.profiling.scenes import Ladder, Point, Scene
from capplan.profiling.settings import ProfileSettings

_LIMITS = ("max_num_batched_tokens", "max_num_seqs", "block_size")


class ExpectedRun(NamedTuple):
    """What one tensor-parallel degree will measure."""

    tp: int
    plan: ProfilePlan
    rounds: int
    expected_s: float  # without the engine's start [s]


def expected_runs(settings: ProfileSettings) -> tuple[ExpectedRun, ...]:
    """Return the plan and expected time of each tensor-parallel degree."""
    how = density(settings.density)
    runs = []
    for tp in settings.tp:
        plan = plan_profile(expected_facts(settings, tp), how)
        seconds = expected_s(plan, how, expected_latency(settings, tp))
        runs.append(ExpectedRun(tp, plan, how.rounds, seconds))
    return tuple(runs)


def expected_facts(settings: ProfileSettings, tp: int) -> EngineFacts:
    """Return limits of an earlier start, else those of ``vllm serve`` on the GPU."""
    if settings.gpu is None:
        raise InputError(
            "--dry-run needs --gpu: it starts nothing, so the hardware is not known"
        )
    record = read_record(
        record_path(settings.out, settings.gpu, llm_name(settings.llm), tp)
    )
    if "engine" in record:
        return facts_from_document(record["engine"])
    llm, gpu, options = find_llm(settings.llm), find_gpu(settings.gpu), settings.options
    engine = default_engine_settings(
        gpu, **{name: options.get(name) for name in _LIMITS}
    )
    share = options.get("gpu_memory_utilization")
    memory = MemoryShare() if share is None else MemoryShare(share)
    try:
        engine = replica(llm, gpu, Layout(tp), engine, memory=memory).engine
    except DoesNotFitError as error:
        raise InputError(
            f"{error.reason}; use a higher TP degree or a GPU with more memory"
        ) from None
    return EngineFacts(
        device=gpu.name,
        backend=settings.backend,
        backend_version="",
        torch_version="",
        driver="",
        dtype=str(options.get("dtype", "auto")),
        quantization=llm.weight_dtype,
        kv_cache_dtype=str(options.get("kv_cache_dtype", "auto")),
        max_model_len=int(options.get("max_model_len", llm.max_positions)),
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        block_size=engine.block_size,
        kv_blocks=engine.kv_blocks,
        kv_bytes_per_token=llm.kv_bytes_per_token_per_gpu(tp),
        async_scheduling=True,
        layers=llm.layers,
        graph_batches=graph_batches(engine.max_num_seqs),
    )


def graph_batches(max_num_seqs: int) -> tuple[int, ...]:
    """Return the batch sizes for which vLLM captures a CUDA graph by default.

    Examples
    --------
    >>> graph_batches(16)
    (1, 2, 4, 8, 16, 24, 32)
    """
    most = min(2 * max_num_seqs, 512)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    return tuple(size for size in sizes if size <= most)


def expected_latency(settings: ProfileSettings, tp: int) -> Profile:
    """Return the best estimate of the iteration times."""
    assert settings.gpu is not None
    has_profiles = settings.out.is_dir() and bool(own_tp_alone(settings.out))
    folders: list[Path] = [settings.out] if has_profiles else []
    return estimated_profile(
        find_llm(settings.llm), find_gpu(settings.gpu), tp, folders
    )


def expected_s(plan: ProfilePlan, how: Density, latency: Profile) -> float:
    """Return the expected time of a plan, without the engine's start. [s]"""
    rows: list[tuple[str, float, float, float, float]] = [
        (*point, 1.0)
        for scene in plan.scenes
        for point in scene_iterations(scene, plan.budget_tokens)
    ]
    return how.rounds * float(np.sum(latency.predict(points_from_rows(rows))))


def scene_iterations(scene: Scene, budget_tokens: int) -> list[Point]:
    """Return every iteration of a scene, measured or not."""
    if not isinstance(scene, Ladder):
        return list(scene.points(budget_tokens)) * (1 + scene.repeats)
    # Prompts fill the cache in whole budgets; each is a few prompts long.
    batch, context = scene.rungs[0].batch, scene.context
    together = max(1, min(batch, budget_tokens // context))
    budgets = -(-batch * context // budget_tokens)
    prefix = 0 if together > 1 else context // 2
    iterations = [Point("prefill", together, budget_tokens, prefix)] * budgets
    measured = scene.schedule()
    rungs = scene.rung_starts()
    for number in range(scene.iterations):
        if number in rungs:
            batch = rungs[number].batch
        default = Point("decode", batch, batch, context + number)
        iterations.append(measured.get(number, default))
    return iterations
