"""Parts of an iteration of ranks from the kernel times of aiconfigurator-core.

Every kernel of an iteration is asked for by name: the routed experts are X, dispatch
and combination of their tokens are C, all else is what a rank does alone. The experts
are those of an even load, whose tables at EP above 1 are *slower* than the default
ones of an uneven load; the imbalance between GPUs is a factor on them.

Where an engine computes the shared experts beside the routed ones the package takes
the longer of the two, which the routed ones are; the shared ones then cost nothing.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from capplan.engines.catalog import ENGINES
from capplan.errors import InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.aiconfigurator import (
    Source,
    check_package,
    kernel_dtypes,
    no_kernels,
    swept,
)
from capplan.latency.measurements import Points
from capplan.llm.layout import Layout

EXCHANGES = {
    "deepep": ("deepep_ht", "deepep_ll"),
    "trtllm_deepep": ("trtllm_deepep_ht", "trtllm_deepep_ll"),
    "nvlink_one_sided": ("nvlink_one_sided",) * 2,
    "nvlink_two_sided": ("nvlink_two_sided",) * 2,
}
"""Kernels of prompts and of decoding, by the all-to-all that a source names."""

ALL_REDUCE = "all-reduce"
"""In one TP group, whose GPUs all have every token."""

IMBALANCE = {1: 1.0, 2: 1.01, 4: 1.08, 8: 1.15, 16: 1.19, 32: 1.27, 64: 1.41}
"""Time of unevenly loaded experts over that of evenly loaded ones, by EP."""
IMBALANCE_SOURCE = (
    "median time of TensorRT-LLM's experts without over with EPLB, H100 to GB300"
)

_DECODED = tuple(2**power for power in range(10))
_PROMPTED = tuple(2**power for power in range(15))
"""Tokens of a rank at which the shared parts are read; halfway between them the line
between is judged."""

_REST_CONTEXT = 1024  # at which the shared parts, which know no context, are read

PerOp = list[tuple[str, float, float, str]]


class Part(NamedTuple):
    """Times of a part by tokens, those of knots and those between them."""

    tokens: np.ndarray
    seconds: np.ndarray
    between: np.ndarray  # tokens
    between_s: np.ndarray


class Parts(NamedTuple):
    """Times of an iteration's parts."""

    alone: Points  # of a rank
    experts: Part  # by tokens of all ranks
    experts_prefill: Part
    exchange: Part  # by tokens of a rank
    exchange_prefill: Part


def exchange_name(source: Source) -> str:
    """Return the name of the all-to-all of a source."""
    if source.a2a:
        return source.a2a
    return ALL_REDUCE if source.dp == 1 else ENGINES[source.engine].exchange


def imbalance_of(ep: int) -> float:
    """Return the imbalance of experts spread over so many GPUs without EPLB.

    It is interpolated in the logarithm, and that of 64 beyond.

    Examples
    --------
    >>> imbalance_of(1), imbalance_of(8), imbalance_of(256)
    (1.0, 1.15, 1.41)
    """
    at = np.log2(list(IMBALANCE))
    return round(float(np.interp(np.log2(ep), at, list(IMBALANCE.values()))), 3)


def read_parts(source: Source, tp: int, kv_tokens: int | None = None) -> Parts:
    """Return the parts of iterations of a layout as sums of measured kernels.

    Iterations of a rank that need more than ``kv_tokens`` are left out.
    """
    engine = rank_engine(source, tp)
    try:
        alone = _alone(engine)
        if kv_tokens:
            alone = alone.where(alone.kv_tokens <= kv_tokens)
        decoded = (_DECODED, lambda batch: _decode_ops(engine, batch, _REST_CONTEXT))
        prompted = (_PROMPTED, lambda tokens: _prefill_ops(engine, tokens, 0))
        per_request = 1 + source.nextn
        return Parts(
            alone,
            _part(*decoded, _is_experts, source.dp * per_request),
            _part(*prompted, _is_experts, source.dp),
            _part(*decoded, _is_exchange, per_request),
            _part(*prompted, _is_exchange, 1),
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(f"aiconfigurator-core: {error}") from error


def _part(
    knots: tuple[int, ...],
    ops: Callable[[int], PerOp],
    is_of: Callable[[str], bool],
    times: int,
) -> Part:
    """Return a part at ``times`` the tokens that a rank is asked for."""
    between = [3 * n // 2 for n in knots[1:-1]]
    return Part(
        times * np.array(knots),
        np.array([_seconds(ops(n), is_of) for n in knots]),
        times * np.array(between),
        np.array([_seconds(ops(n), is_of) for n in between]),
    )


def _alone(engine: Any) -> Points:
    """Return iterations of a rank without the parts that ranks share."""
    points = swept(
        lambda b, context: _seconds(_decode_ops(engine, b, context), _is_alone),
        lambda n, prefix: _seconds(_prefill_ops(engine, n, prefix), _is_alone),
        lambda chunk, b, context: _mixed_alone_s(engine, chunk, b, context),
    )
    return points.where(~_eased(points))


def _eased(points: Points) -> np.ndarray:
    """Return a mask of the prefills that take less time than without their prefix.

    SGLang's attention beside DeepEP was measured without prefixes.
    """
    whole = points.where((points.phase == 0) & (points.context == 0))
    without_s = dict(zip(whole.new_tokens, whole.seconds, strict=True))
    least_s = np.array([without_s.get(n, 0.0) for n in points.new_tokens])
    return (points.phase == 0) & (points.context > 0) & (points.seconds < least_s)


def _mixed_alone_s(engine: Any, chunk: int, batch: int, context: int) -> float:
    """Return shared products, attention of the chunk and that of decode. [s]

    As :func:`.aiconfigurator.read_kernels` has it: attention measured together with its
    products is counted among these, without what the context adds to a decode.
    """
    shared, of_chunk, _ = engine.mixed_step_breakdown_per_op(chunk, batch, chunk, 1)
    *_, of_decode = engine.mixed_step_breakdown_per_op(chunk, batch, context, 2)
    decode_s = _seconds(of_decode, _is_alone)
    if decode_s == 0:
        decode_s = _seconds(_decode_ops(engine, batch, context), _is_alone)
        decode_s -= _seconds(_decode_ops(engine, batch, 1), _is_alone)
    both_s = _seconds(shared, _is_alone) + _seconds(of_chunk, _is_alone)
    return both_s + max(decode_s, 0.0)


def _decode_ops(engine: Any, batch: int, context: int) -> PerOp:
    return engine.run_static_per_op(
        batch_size=batch, isl=context, osl=2, mode="static_gen"
    )[1]


def _prefill_ops(engine: Any, tokens: int, prefix: int) -> PerOp:
    return engine.run_static_per_op(
        batch_size=1, isl=tokens + prefix, osl=2, prefix=prefix, mode="static_ctx"
    )[0]


def _seconds(ops: Iterable[tuple], is_of: Callable[[str], bool]) -> float:
    return sum(op[1] for op in ops if is_of(op[0])) / 1e3


def _is_experts(name: str) -> bool:
    return name.endswith("_moe")


def _is_exchange(name: str) -> bool:
    return "_moe_" in name and name.endswith(("dispatch", "combine", "prepare"))


def _is_alone(name: str) -> bool:
    return not _is_experts(name) and not _is_exchange(name)


def rank_engine(source: Source, tp: int) -> Any:
    """Return the package's engine of a layout, its all-to-all and drafts named.

    Its own ``compile`` can neither name an all-to-all nor an even load of the experts.
    """
    check_package()
    import aiconfigurator_core
    from aiconfigurator_core.sdk import EngineHandle, engine
    from aiconfigurator_core.sdk.config_builders import apply_nextn, build_model_config
    from aiconfigurator_core.sdk.models import get_model

    layout = Layout(tp, source.dp, source.ep)
    if source.a2a and source.a2a not in EXCHANGES:
        raise InputError(
            f"a2a is {source.a2a!r}; expected {', '.join(EXCHANGES)}, or none for the "
            "engine's own"
        )
    changed = kernel_dtypes(source, tp)[2]
    try:
        config = build_model_config(
            tp_size=tp,
            pp_size=1,
            attention_dp_size=layout.dp,
            moe_tp_size=layout.gpus // layout.ep,
            moe_ep_size=layout.ep,
            **changed,
        )
        config.workload_distribution = "balanced"
        if source.a2a:
            prompts, decoding = EXCHANGES[source.a2a]
            config.moe_comm_backend = {"context": prompts, "generation": decoding}
            node = find_gpu(source.system)
            config.num_gpus_per_node = node.max_gpus_per_node
            config.system = source.system
        apply_nextn(config, source.nextn)
        model = get_model(source.model, config, source.engine)
        version = engine._literal_backend_version(
            source.system, source.engine, source.version, None, None
        )
        text = engine.build_engine_spec_json(
            model,
            model_path=source.model,
            system=source.system,
            backend=source.engine,
            backend_version=version,
            kv_block_size=None,
            systems_path=None,
            nextn=source.nextn,
            database=engine._maybe_load_database(
                source.system, source.engine, version, None
            ),
        )
        spec = aiconfigurator_core.engine_spec_bincode_from_json(apart(text))
        return EngineHandle(bytes(spec))
    except Exception as error:  # a different type for each kind of unknown name
        raise no_kernels(source, error) from error


def apart(spec: str) -> str:
    """Return a specification whose routed experts are kernels of their own.

    It has them in an overlap with the shared experts, whose time is the longer of both.
    """
    content = json.loads(spec)
    for phase in ("context_ops", "generation_ops"):
        flat: list[dict[str, Any]] = []
        for op in content[phase]:
            overlap = op.get("Overlap", {})
            routed = overlap.get("group_a", [])
            is_moe = overlap.get("name", "").endswith("_moe_overlap")
            flat += routed if is_moe else [op]
        content[phase] = flat
    return json.dumps(content)
