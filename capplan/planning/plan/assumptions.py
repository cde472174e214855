"""Assumptions of a plan: value, source, how obtained."""

from collections.abc import Iterator
from datetime import date

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.engines.catalog import VLLM, title_of
from capplan.engines.engine import Engine
from capplan.fleet.catalog import gpu
from capplan.fleet.dated import newer_than
from capplan.fleet.price import GIVEN, Price
from capplan.fleet.prices import catalog_offers
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.scheduling import engine_of, scheduling
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.plan.result import Assumption
from capplan.planning.settings.asked import asked
from capplan.planning.settings.groups import ConfigurationSettings, PriceSettings
from capplan.planning.settings.layouts import LayoutSettings
from capplan.planning.settings.plan import PlanSettings
from capplan.units import format_bytes
from capplan.workload.trace import Trace

_OF_ENGINE = (
    *("max_num_batched_tokens", "max_num_seqs", "block_size"),
    *("decode_context_parallel_size", "pipeline_parallel_size", "kv_blocks"),
    *("gpu_memory_utilization", "async_scheduling", "prefix_caching", "scheduler"),
    *("link_gb_per_s", "host_kv_gib"),
)
"""Settings of an engine that are told as given."""
_HOW = {
    "measured": "measured",
    "calibrated": "fitted",
    "kernel-sum": "fitted",
    "published": "published",
    "estimate": "assumed",
}


def assumptions(
    settings: PlanSettings,
    trace: Trace,
    candidates: list[Candidate],
    tried: list[Configuration | Excluded],
) -> tuple[Assumption, ...]:
    """Return the assumptions on traffic, latency, memory, prices and engine."""
    return tuple(_assumed(settings, trace, candidates, tried))


def _assumed(
    settings: PlanSettings,
    trace: Trace,
    candidates: list[Candidate],
    tried: list[Configuration | Excluded],
) -> Iterator[Assumption]:
    users = settings.asking
    yield Assumption(
        "traffic",
        str(users)
        if users is not None
        else f"{len(trace):,} requests at {trace.rate_per_s:.4g}/s"
        if trace.arrival_s is not None
        else f"{len(trace):,} turns to draw from",
        "; ".join((trace.source, *trace.notes)),
        "given",
    )
    if settings.latency_ms is not None:
        coefficients = ", ".join(f"{value:g}" for value in settings.latency_ms)
        value = f"c0, ca, cq, cd, ce = {coefficients} ms"
        yield Assumption("iteration time", value, "--latency-ms", "given")
    used = {
        each.key
        for row in candidates
        if row.status == "feasible"
        for each in row.pools or (row,)
    }
    known = {row.key for row in tried}
    of_pools = {  # replicas for prompts alone may have a degree of their own
        pool.key: pool.configuration
        for row in candidates
        for pool in row.pools
        if pool.key not in known
    }
    able = [row for row in tried if isinstance(row, Configuration)]
    able += of_pools.values()
    whose = engine_of(asked(settings))
    for configuration in able:
        if configuration.key in used:
            yield from _of(settings, configuration, whose)
    yield from _speculation(able)
    yield from _links(settings, candidates)
    yield from (*price_day(settings), *_prices(able))
    yield _engine(settings, able[0].engine, whose)


def _of(
    settings: PlanSettings, configuration: Configuration, whose: Engine
) -> Iterator[Assumption]:
    """Yield what a configuration rests on."""
    yield from _latency(settings, configuration)
    yield from _memory(configuration)
    engine, profile = configuration.engine, configuration.profile
    if whose is not VLLM and profile is not None and profile.engine != whose.name:
        yield Assumption(
            f"kernels, {configuration}",
            f"of {title_of(profile.engine) or 'no engine'}, not of {whose.title} *",
            f"no profile of {whose.title}'s kernels is known",
            "assumed",
        )
    dcp = engine.decode_context_parallel_size
    if dcp > 1 and settings.latency_ms is None:
        yield Assumption(
            f"decode context parallelism, {configuration}",
            f"each GPU reads 1/{dcp} of a context, or is bound by arithmetic; three "
            "collectives a layer",
            "data sheet; no kernel of it was measured",
            "assumed",
        )
    if (pipeline := engine.pipeline) is not None:
        across = " over the network" if configuration.nodes_per_replica > 1 else ""
        yield Assumption(
            f"pipeline, {configuration}",
            f"each of {pipeline.stages} stages takes {100 * pipeline.share:.1f} % of "
            "the kernels' time, all of the engine's own, and "
            f"{1e6 * pipeline.hop_s:.3g} us + {1e6 * pipeline.hop_token_s:.3g} us a "
            f"token to the next{across}",
            "by layers and output embedding, hops by data sheet; none was measured",
            "assumed",
        )
    if (adapters := engine.adapters) is not None:
        named = ("lora_slowdown", "lora_load_ms", "lora_fetch_ms")
        given = [name for name in named if getattr(settings, name) is not None]
        yield Assumption(
            f"LoRA adapters, {configuration}",
            f"rank {adapters.lora_rank}; {adapters.max_loras} slots of rank "
            f"{adapters.max_lora_rank}, {format_bytes(adapters.gpu_bytes)} a GPU; "
            f"loaded in {1e3 * adapters.load_s:.3g} ms, read into host memory in "
            f"{1e3 * adapters.fetch_s:.3g} ms; an iteration takes "
            f"{100 * adapters.slowdown:.0f} % "
            f"and {1e6 * adapters.read_s:.3g} us an adapter longer",
            f"{', '.join(given)} given; others by their bytes"
            if given
            else "by their bytes; kernels of adapters were not measured",
            "given" if len(given) == len(named) else "assumed",
        )
    if (images := engine.images) is not None:
        budget = engine.max_num_batched_tokens
        is_given = settings.image_encode_ms is not None
        yield Assumption(
            f"images, {configuration}",
            f"one of 1,024 tokens is encoded in "
            f"{1e3 * images.alone_s(1024):.3g} ms; "
            f"{images.cache_tokens(budget):,} tokens are kept, and encoded at most in "
            f"an iteration; encoder and cache take "
            f"{format_bytes(images.gpu_bytes(budget))} a GPU",
            "--image-encode-ms"
            if is_given
            else "shapes, data sheet, an encoder measured on H100-SXM",
            "given" if is_given else "assumed",
        )


def _latency(
    settings: PlanSettings, configuration: Configuration
) -> Iterator[Assumption]:
    profile = configuration.profile
    if profile is None:
        return
    errors = ", ".join(
        f"{phase} {100 * record.held_out_mean_abs:.1f} %"
        for phase, record in profile.errors_by_phase.items()
        if record.held_out_mean_abs is not None
    )
    value = f"{profile.decode_form} decode, {profile.fused_form} prefill"
    if errors:
        value += f"; mean error at points not fitted to: {errors}"
    what, how = f"iteration time, {configuration}", _HOW[profile.how]
    yield Assumption(what, value, configuration.note, how)
    if profile.kernels_from is None:
        return
    what, time = f"engine's own time, {configuration}", profile.engine_time
    if time is None:
        yield Assumption(what, "none", "--engine-overhead", "given")
        return
    how = "fitted" if settings.engine_overhead is None else "given"
    yield Assumption(what, str(time), time.source, how)
    if time.served is not None:
        low, _, high = time.served.tpot
        yield Assumption(
            f"TPOT of real engines, {configuration}",
            f"{low:.2f} to {high:.2f} times the predicted in 80 % of "
            f"{time.served.sweeps} load tests not fitted to; planned with quantile "
            f"{configuration.quantile:g}",
            time.source,
            "measured",
        )


def _memory(configuration: Configuration) -> Iterator[Assumption]:
    if configuration.replica is None:
        return
    engine, budget = configuration.engine, configuration.replica.budget
    each = engine.bounded_groups * engine.bounded_blocks
    beside = f"; windows and states take up to {each:,} a request" if each else ""
    reported = configuration.replica.kv_source != "estimated"
    computed = (
        f"{100 * budget.utilization:.0f} % of {format_bytes(budget.memory_bytes)} "
        "less weights, activations and runtime"
    )
    if budget.engine is not VLLM:
        computed = (
            f"{100 * budget.utilization:.1f} % {budget.engine.share_of}; "
            f"{format_bytes(budget.memory_bytes)} a GPU"
        )
    yield Assumption(
        f"KV capacity, {configuration}",
        f"{engine.kv_blocks:,} blocks of {engine.block_size} tokens in "
        f"{configuration.replica.kv_dtype}{beside}; "
        f"weights {format_bytes(budget.weight_bytes)} a GPU",
        "reported by the engine" if reported else computed,
        "measured" if reported else "assumed",
    )


def _speculation(configurations: list[Configuration]) -> list[Assumption]:
    """Return a row for each kind of drafts: how many of them are accepted."""
    found = {
        (name, each.engine.speculation)
        for each in configurations
        if each.engine.speculation is not None
        for name in [each.replica.llm.name if each.replica else "the LLM"]
    }
    return [
        Assumption(
            f"acceptance of drafts, {name}",
            f"{drafts.described}; rates by position "
            + ", ".join(f"{rate:.3g}" for rate in drafts.rates),
            drafts.source,
            drafts.how,
        )
        for name, drafts in sorted(found, key=str)
    ]


def _links(settings: PlanSettings, candidates: list[Candidate]) -> list[Assumption]:
    """Return a row for the link that KV goes over, of each GPU type with two pools."""
    runs = {row.gpu: row.run for row in candidates if row.pools and row.run is not None}
    given = settings.link_gb_per_s is not None
    return [
        Assumption(
            f"KV from prompts to decoding, {name}",
            f"{run.deployment.link_gb_per_s:g} GB/s from each GPU, hand-off "
            f"{run.deployment.hand_off}; handshake and hop 1 ms each unless given",
            "--link-gb-per-s" if given else gpu(name).network,
            "given" if given else "published",
        )
        for name, run in runs.items()
    ]


def price_day(settings: PriceSettings) -> list[Assumption]:
    """Return a row for the day that offers are of, where one was given."""
    if settings.price_date is None:
        return []
    shipped = len(newer_than(catalog_offers(), date.fromisoformat(settings.price_date)))
    text = f"--price-date; {shipped} shipped offers are newer and not used"
    return [Assumption("price date", settings.price_date, text, "given")]


def _prices(able: list[Configuration]) -> list[Assumption]:
    """Return a row for each price; that of a node may depend on the TP degree."""
    tps: dict[tuple[str, Price], list[int]] = {}
    for configuration in able:
        if configuration.price is not None:
            key = configuration.gpu, configuration.price
            tps.setdefault(key, []).append(configuration.tp)
    several = {gpu for gpu, _ in tps if sum(gpu == other for other, _ in tps) > 1}
    return [
        Assumption(
            f"price, {gpu}"
            + (f", TP {', '.join(map(str, degrees))}" if gpu in several else ""),
            f"${price.usd_per_gpu_h:.2f} per GPU and hour",
            ", ".join(x for x in (price.source, price.as_of, price.note) if x),
            "given" if price.source == GIVEN else "published",
        )
        for (gpu, price), degrees in tps.items()
    ]


def _engine(
    settings: PlanSettings, engine: EngineSettings, whose: Engine
) -> Assumption:
    names = [name for name in _OF_ENGINE if getattr(settings, name) not in (None, ())]
    names += [
        name
        for name in LayoutSettings.model_fields
        if name not in ConfigurationSettings.model_fields
        and getattr(settings, name) not in (None, (), False)
    ]
    set_by_user = [f"{name}={getattr(settings, name)}" for name in names]
    if settings.kv_cache_dtype != "auto":
        set_by_user.append(f"kv_cache_dtype={settings.kv_cache_dtype}")
    chosen = "as vllm serve chooses by GPU, prefix caching on"
    source = scheduling(engine)
    if whose is not VLLM:
        chosen = (
            f"as {whose.title} chooses: {engine.max_num_batched_tokens:,} tokens an "
            f"iteration, {engine.max_num_seqs:,} requests, blocks of "
            f"{engine.block_size}"
        )
        source = f"{source}; defaults of {whose.source}"
    return Assumption(
        "engine",
        ", ".join(set_by_user) or chosen,
        source,
        "given" if set_by_user else "assumed",
    )
