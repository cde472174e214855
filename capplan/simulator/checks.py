"""Check requests, engine settings and policy settings before a simulation."""

from dataclasses import replace

import numpy as np

from capplan.conflicts import refuse_conflicts
from capplan.deployment.engine import EngineSettings
from capplan.deployment.features import features_of_engine
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.simulator.engine.group_state import READ_SCHEDULERS, check_ranks
from capplan.simulator.hand_offs import MIXING, computes_last_again, parse_hand_off
from capplan.simulator.routers import parse_router
from capplan.simulator.schedulers import scheduler as find_scheduler
from capplan.simulator.v1.images import unlike_images
from capplan.workload.trace import Trace


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


def refuse_turns(trace: Trace, deployment: Deployment, is_whole: bool) -> None:
    """Refuse turns of conversations where it is not known how they share KV."""
    if not trace.has_turns:
        return
    if not is_whole:
        raise InputError(f"{trace.source}: turns are simulated of a whole trace only")
    given = deployment.features | {"turns": f"{trace.source}: parent or after"}
    for pool in deployment.pools:
        engine = pool.configuration.engine
        features = features_of_engine(engine)
        if not engine.prefix_caching:
            features.pop("other scheduler", None)
        refuse_conflicts(features | given)
    differs = (trace.parent >= 0) & (trace.adapter != trace.adapter[trace.parent])
    if differs.any():
        row = int(np.flatnonzero(differs)[0])
        raise InputError(
            f"{trace.source}: row {row + 1} has another adapter than its parent, whose "
            "KV it cannot use; expected the same adapter, or no parent"
        )


def refuse_chunks(deployment: Deployment) -> None:
    """Refuse a tier where the requests come in chunks: it knows their whole trace."""
    if any(pool.configuration.engine.has_tier for pool in deployment.pools):
        raise InputError("a tier of KV is simulated of a whole trace only")


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


def check_deployment(deployment: Deployment, *, moves: bool = False) -> None:
    """Refuse what is not modelled of a deployment.

    ``moves``: replicas will come and go, of one that does not move yet.
    """
    given = deployment.features | features_of_router(deployment.router)
    if moves:
        given = {"changing": "replicas that come and go", **given}
    if "pools" in given:
        given |= features_of_hand_off(deployment.hand_off)
    for pool in deployment.pools:
        engine = pool.configuration.engine
        check_engine(engine)
        check_scheduler(engine)
        refuse_conflicts(features_of_engine(engine) | given)
        check_tier(engine)
        check_budget(engine)
        check_ranks(engine, pool.configuration.rank_tables)


def features_of_router(router: str) -> dict[str, str]:
    """Return how a user names each feature of a router, by feature."""
    name = parse_router(router).name
    reads = name in READ_SCHEDULERS
    return {"router of one scheduler": f"router {name}"} if reads else {}


def features_of_hand_off(given: str) -> dict[str, str]:
    """Return how a user names each feature of two pools, by feature."""
    policy = parse_hand_off(given)
    found = {"pools": "disaggregated prefill and decode"}
    if not computes_last_again(given):
        found["first token by prefill"] = f"hand-off {policy.name}"
    if policy.settings.get("threshold"):
        found["threshold of a hand-off"] = f"hand-off {given}"
    return found


def check_scheduler(engine: EngineSettings) -> None:
    """Refuse engine settings that the scheduler does not have."""
    policy = engine.scheduler
    for setting in ("async_scheduling", "prefix_caching"):
        if getattr(engine, setting) and not getattr(policy.rules, setting):
            raise InputError(
                f"{setting} is True; scheduler {policy.name} has none, expected False"
            )


def check_tier(engine: EngineSettings) -> None:
    """Refuse a tier of KV that nobody could find again."""
    if engine.tier is not None and not engine.prefix_caching:
        raise InputError(
            "a tier of KV is given, and prefix_caching is False; expected both, or none"
        )


def check_budget(engine: EngineSettings) -> None:
    """Refuse a token budget in which a request's drafts or an image have no room."""
    drafts, images = engine.speculation, engine.images
    budget = engine.max_num_batched_tokens
    if drafts is not None and budget < drafts.verified_tokens:
        raise InputError(
            f"max_num_batched_tokens is {budget}; expected at least "
            f"{drafts.verified_tokens}, the tokens verified of one request"
        )
    if drafts is not None and engine.adapters is not None:
        all_verified = engine.max_num_seqs * drafts.verified_tokens
        if budget < all_verified:
            raise InputError(
                f"max_num_batched_tokens is {budget}; with --enable-lora vLLM expects "
                f"at least {all_verified}, max_num_seqs times 1 + the drafts"
            )
    whole = images is not None and images.disable_chunked_mm_input
    most = images.max_image_tokens if images is not None and whole else 0
    if most > budget:
        raise InputError(
            f"max_num_batched_tokens is {budget}; expected at least {most}, the tokens "
            "of the largest image, with --disable-chunked-mm-input"
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
