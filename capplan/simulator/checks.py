"""Check requests, engine settings and policy settings before a simulation."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.simulator.engine.group_state import READ_SCHEDULERS, check_ranks
from capplan.simulator.engine.images import unlike_images
from capplan.simulator.hand_offs import MIXING, computes_last_again
from capplan.simulator.routers import parse_router
from capplan.simulator.schedulers import scheduler as find_scheduler
from capplan.workload.trace import Trace

_MOVING = (
    "fleets whose requests or replicas move (rebalancers, dispatchers, autoscalers, "
    "losses, disaggregated prefill and decode)"
)


def oversized(trace: Trace, engine: EngineSettings) -> np.ndarray:
    """Return which requests no replica can ever hold, shape (n,), bool.

    The last token's KV is never written, so prompt + output - 1 tokens must fit, and
    the slots of drafts.
    """
    tokens = trace.prompt_tokens + trace.output_tokens
    held = engine.request_blocks(tokens - 1 + engine.slack_tokens)
    return (held > engine.kv_blocks - 1) | (tokens > engine.max_model_len)


def served_by(trace: Trace, deployment: Deployment) -> list[Trace]:
    """Return the requests as each pool serves them: one of prompts alone gives a token.

    A hand-off whose pools mix lets a prefill replica serve whole requests.
    """
    if len(deployment.pools) == 1 or deployment.hand_off.startswith(MIXING):
        return [trace] * len(deployment.pools)
    return [replace(trace, output_tokens=np.ones_like(trace.output_tokens)), trace]


def unserved(trace: Trace, engine: EngineSettings) -> np.ndarray:
    """Return which requests the engine can never serve, shape (n,), bool.

    Those that no replica can hold, and those that its scheduler cannot finish.
    """
    return oversized(trace, engine) | refused(trace, engine)[0]


def refused(trace: Trace, engine: EngineSettings) -> tuple[np.ndarray, str]:
    """Return which requests a scheduler cannot finish, shape (n,), bool, and why."""
    policy = engine.scheduler
    rows, reason = find_scheduler(policy.name).refused(trace, engine, policy.settings)
    return np.asarray(rows), str(reason)


def refusal(trace: Trace, engine: EngineSettings, first_row: int = 0) -> str:
    """Return which requests a scheduler cannot finish, and why; empty for none."""
    rows, reason = refused(trace, engine)
    if not rows.any():
        return ""
    row = int(np.flatnonzero(rows)[0])
    return (
        f"scheduler {engine.scheduler} cannot serve {int(rows.sum()):,} requests; "
        f"the first is row {first_row + row + 1} with {trace.prompt_tokens[row]} "
        f"prompt and {trace.output_tokens[row]} output tokens: {reason}"
    )


def refuse_oversized(trace: Trace, engine: EngineSettings, first_row: int = 0) -> None:
    """Refuse requests that no replica can hold, or that the scheduler cannot finish.

    ``first_row`` is that of the chunk.
    """
    too_large = oversized(trace, engine)
    if too_large.any():
        row = int(np.flatnonzero(too_large)[0])
        raise InputError(
            f"{trace.source}: {int(too_large.sum())} requests fit no replica; the "
            f"first is row {first_row + row + 1} with {trace.prompt_tokens[row]} "
            f"prompt and {trace.output_tokens[row]} output tokens; a replica holds "
            f"{engine.longest_request_tokens} and takes {engine.max_model_len}"
        )
    if text := refusal(trace, engine, first_row):
        raise InputError(f"{trace.source}: {text}")


def refuse_without_keys(trace: Trace, router: str) -> None:
    """Refuse requests of which none says to which session or prefix group it belongs.

    Where the router sends those of one to the same replica.
    """
    if not parse_router(router).rules.keyed:
        return
    if max(int(trace.session.max()), int(trace.prefix_group.max())) < 0:
        raise InputError(
            f"{trace.source}: no request has a session or a prefix group, by which "
            f"router {router} chooses; expected a column session or prefix_group, or "
            "another --router"
        )


def check_deployment(deployment: Deployment, *, moves: bool) -> None:
    """Refuse what is not modelled of a deployment; ``moves``: requests or replicas do.

    Those of one that does not move yet may be asked for beforehand.
    """
    joined = bool(deployment.rebalancer or deployment.dispatcher)
    handed = deployment.hand_off if len(deployment.pools) > 1 else ""
    for pool in deployment.pools:
        engine = pool.configuration.engine
        check_engine(engine)
        check_scheduler(engine)
        check_speculation(engine, handed)
        check_own_rules(engine, moves=moves)
        check_pipeline(engine, deployment.router, moves=moves)
        check_ranks(
            engine,
            pool.configuration.rank_tables,
            deployment.router,
            moves=joined,
            hand_off=deployment.hand_off,
        )


def check_scheduler(engine: EngineSettings) -> None:
    """Refuse engine settings that the scheduler does not have."""
    policy = engine.scheduler
    for setting in ("async_scheduling", "prefix_caching"):
        if getattr(engine, setting) and not getattr(policy.rules, setting):
            raise InputError(
                f"{setting} is True; scheduler {policy.name} has none, expected False"
            )


def check_speculation(engine: EngineSettings, hand_off: str) -> None:
    """Refuse what is not modelled with drafts; ``hand_off``: of prompts, if any is."""
    speculation = engine.speculation
    if speculation is None:
        return
    if engine.scheduler.name != "vllm-v1":
        raise InputError(
            f"speculative decoding with scheduler {engine.scheduler.name} is not "
            "modelled; expected vllm-v1"
        )
    if hand_off and not computes_last_again(hand_off):
        raise InputError(
            f"hand-off {hand_off} with speculative decoding is not modelled, since the "
            "first token is the prefill replica's; give one pool, or hand-off nixl"
        )
    if engine.max_num_batched_tokens < speculation.verified_tokens:
        raise InputError(
            f"max_num_batched_tokens is {engine.max_num_batched_tokens}; expected at "
            f"least {speculation.verified_tokens}, the tokens verified of one request"
        )


def _refuse(feature: str, beside: Iterable[tuple[str, bool]], expected: str) -> None:
    """Refuse a feature beside the first of others that is given."""
    for other, is_given in beside:
        if is_given:
            raise InputError(
                f"{feature} with {other} is not modelled; expected {expected}"
            )


def check_own_rules(engine: EngineSettings, *, moves: bool) -> None:
    """Refuse what is not modelled with features that have a scheduler of their own.

    ``moves``: requests or replicas do.
    """
    images, budget = engine.images, engine.max_num_batched_tokens
    drafts = engine.speculation is not None
    states = "prefix caching of recurrent states"
    features = (
        ("--enable-lora", engine.adapters is not None),
        ("images", images is not None),
        (states, engine.keeps_states),
    )
    given = [feature for feature, is_given in features if is_given]
    if not given:
        return
    dcp = engine.decode_context_parallel_size
    beside = (
        (f"scheduler {engine.scheduler.name}", engine.scheduler.name != "vllm-v1"),
        ("speculative decoding", drafts and given != [states]),
        ("data_parallel_size", engine.data_parallel_size > 1 and given != [states]),
        ("prefill_schedule_interval", engine.prefill_schedule_interval > 1),
        ("decode_context_parallel_size", dcp > 1 and engine.keeps_states),
        *((feature, True) for feature in given[1:]),
        (_MOVING, moves),
    )
    _refuse(given[0], beside, "scheduler vllm-v1 and a fixed fleet of one pool")
    most = 0 if images is None else images.max_image_tokens
    if images is not None and images.disable_chunked_mm_input and most > budget:
        raise InputError(
            f"max_num_batched_tokens is {budget}; expected at least {most}, the tokens "
            "of the largest image, with --disable-chunked-mm-input"
        )


def check_pipeline(engine: EngineSettings, router: str, *, moves: bool) -> None:
    """Refuse what is not modelled of a pipeline; ``moves``: requests or replicas do."""
    if engine.pipeline is None:
        return
    name = parse_router(router).name
    with_others = (
        (f"scheduler {engine.scheduler.name}", engine.scheduler.name != "vllm-v1"),
        ("--no-async-scheduling", not engine.async_scheduling),
        ("speculative decoding", engine.speculation is not None),
        ("--enable-lora", engine.adapters is not None),
        ("images", engine.images is not None),
        ("prefix caching of recurrent states", engine.keeps_states),
        ("data_parallel_size", engine.data_parallel_size > 1),
        ("decode_context_parallel_size", engine.decode_context_parallel_size > 1),
        (f"router {name}", name in READ_SCHEDULERS),
        (_MOVING, moves),
    )
    _refuse(
        f"pipeline_parallel_size {engine.pipeline.stages}",
        with_others,
        "scheduler vllm-v1 with async scheduling, a router as jsq and a fixed fleet of "
        "one pool, or pipeline_parallel_size 1",
    )


def refuse_adapters(trace: Trace, engine: EngineSettings) -> None:
    """Refuse requests that ask for adapters of an engine without slots."""
    if engine.adapters is None and (count := int((trace.adapter >= 0).sum())):
        raise InputError(
            f"{trace.source}: {count:,} requests ask for an adapter; expected "
            "--enable-lora and --max-loras, or no column adapter"
        )


def refuse_images(trace: Trace, engine: EngineSettings) -> None:
    """Refuse requests with images that the engine does not take."""
    images = engine.images
    if images is None:
        if count := int((trace.images > 0).sum()):
            raise InputError(
                f"{trace.source}: {count:,} requests have images; expected "
                "--limit-mm-per-prompt '{\"image\": N}' and an LLM with a vision "
                "encoder, or no columns image_tokens and images"
            )
        return
    tokens = trace.image_tokens // np.maximum(trace.images, 1)
    least = images.least_tokens(engine.max_num_batched_tokens)
    for wrong, found, of, expected in (
        (
            trace.images > images.limit_per_prompt,
            trace.images,
            "images",
            f"at most limit_mm_per_prompt, {images.limit_per_prompt}",
        ),
        (
            tokens > images.max_image_tokens,
            tokens,
            "tokens of an image",
            f"at most {images.max_image_tokens:,}, to which vLLM scales it down",
        ),
        (
            (trace.images > 0) & (tokens < least),
            tokens,
            "tokens of an image",
            f"at least {least}",
        ),
    ):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"{trace.source}: row {row + 1} has {found[row]:,} {of}; expected "
                f"{expected}"
            )
    unlike = unlike_images(trace)
    if unlike.any():
        row = int(np.flatnonzero(unlike)[0])
        raise InputError(
            f"{trace.source}: row {row + 1} has other images in its prefix than its "
            f"prefix group {trace.prefix_group[row]}; expected the same image_offset "
            "and tokens of an image, or a prefix that ends before"
        )


def without_unsupported(engine: EngineSettings) -> EngineSettings:
    """Return the engine without async scheduling and caching that it cannot have."""
    rules = engine.scheduler.rules
    return replace(
        engine,
        async_scheduling=engine.async_scheduling and rules.async_scheduling,
        prefix_caching=engine.prefix_caching and rules.prefix_caching,
    )


def check_engine(engine: EngineSettings) -> None:
    """Refuse settings that vLLM refuses: a full batch must decode within the budget."""
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        raise InputError(
            f"max_num_batched_tokens is {engine.max_num_batched_tokens}; expected "
            f"at least max_num_seqs, {engine.max_num_seqs}"
        )
