"""Sentences about a plan or a run, the same on the terminal and in HTML."""

import math
from collections.abc import Sequence

from capplan.engines.catalog import ENGINES, title_of
from capplan.fleet.api_price import ApiBill
from capplan.planning.configure.scheduling import rules
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.classes import own_targets
from capplan.planning.evaluate.judgement import Judgement
from capplan.planning.evaluate.of_sessions import SessionsServed
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.money.cost import NodeCount
from capplan.planning.plan.result import Plan
from capplan.report.columns import (
    format_count,
    format_fine_usd,
    format_interval,
    format_load,
    format_share,
)
from capplan.report.columns import plural as plural
from capplan.report.page import Fact
from capplan.report.window_sentences import window
from capplan.units import format_duration, format_usd

_OF_PREDICTED = " at the predicted times; the cautious count has no proof"
_OF_SESSIONS = {
    "turn": "later turns",
    "first": "first turns",
    "request": "user requests",
    "session": "sessions",
}
"""What has limits of its own, as sentences call it."""
_CLASSES_NAMED = 3
"""Classes below their target that a sentence names."""
_SETTINGS = {
    "none": "",
    "KV": "KV memory: it is full while requests wait",
    "max_num_seqs": "max_num_seqs: batches are full while requests wait",
    "max_num_batched_tokens": "max_num_batched_tokens: iterations are full",
    "max_len": "max_len: requests wait until so much KV memory is free",
}
"""What keeps a fleet from more, where it is no limit of the SLO."""


def nodes(run: Run) -> str:
    """Return the whole nodes that are paid for, and the GPUs left over in them.

    As "3 × AWS p5.48xlarge (24 GPUs, 4 idle, 17 %)"; empty without a price.
    """
    return "" if run.cost is None else nodes_paid(run.cost.nodes)


def nodes_paid(rows: Sequence[NodeCount]) -> str:
    """Return the nodes of a bill, and the GPUs left over in them."""
    terms = []
    for row in rows:
        gpus = "GPU" if row.gpus_paid == 1 else "GPUs"
        if row.count is None:
            terms.append(f"{row.gpus_paid:,.6g} {gpus} priced one by one")
            continue
        spare = "none idle"
        if row.stranded_gpus:
            share = row.stranded_gpus / row.gpus_paid
            spare = f"{row.stranded_gpus:,.3g} idle, {100 * share:.0f} %"
        name = " ".join(filter(None, (row.provider, row.node))) or "node"
        terms.append(
            f"{row.count:,.3g} × {name} ({row.gpus_paid:,.4g} {gpus}, {spare})"
        )
    return " + ".join(terms)


def engine_facts(run: Run) -> list[Fact]:
    """Return the settings of the engines of a run."""
    engine = run.configuration.engine
    caching = "on" if engine.prefix_caching else "off"
    if run.configuration.caching_unused:
        caching = "on; no request shares a prefix, so simulated without"
    return [
        (
            "max_num_batched_tokens",
            f"{format_count(engine.max_num_batched_tokens)} tokens",
        ),
        ("max_num_seqs", f"{format_count(engine.max_num_seqs)} requests"),
        (
            "KV cache",
            f"{format_count(engine.kv_blocks)} blocks of {engine.block_size} tokens",
        ),
        ("async_scheduling", "on" if engine.async_scheduling else "off"),
        ("prefix_caching", caching),
        ("scheduler", str(engine.scheduler)),
        ("router", run.deployment.placed_by),
    ]


def traffic(
    rate_per_s: float, mean_prompt_tokens: float, mean_output_tokens: float
) -> str:
    """Return the arrival rate and the mean lengths."""
    of = lengths(mean_prompt_tokens, mean_output_tokens)
    return f"{format_count(rate_per_s)} requests/s, {of}"


def lengths(mean_prompt_tokens: float, mean_output_tokens: float) -> str:
    """Return the mean lengths of requests."""
    return (
        f"on average {format_count(mean_prompt_tokens)} prompt and "
        f"{format_count(mean_output_tokens)} output tokens"
    )


def attained(judgement: Judgement, asked: str, of: str = "requests") -> str:
    """Return the simulated attainment with its interval, and what is asked.

    Where classes have targets of their own, that of all requests is held against none.
    """
    attainment = judgement.attainment
    if attainment is None:
        return ""
    of_all = f"{format_share(attainment.share)} of {of}"
    interval = f"(95 % interval {format_interval(attainment.interval)})"
    if not own_targets(judgement.classes):
        return f"{of_all} {interval}; asked {asked}"
    return f"{classes_attained(judgement)}; asked {asked}; {of_all} in all {interval}"


def classes_attained(judgement: Judgement) -> str:
    """Return how many classes attain their target."""
    count = len(judgement.classes)
    missing = [row for row in judgement.classes if row.class_name in judgement.missing]
    if not missing:
        return f"each of {count:,} classes"
    return f"{count - len(missing):,} of {count:,} classes"


def versions(candidate: Candidate) -> str:
    """Return whose times and whose scheduling rules are simulated."""
    configuration = candidate.configuration
    if configuration is None or not configuration.times_of:
        return ""
    engine, _, version = configuration.times_of.partition(" ")
    name = f"{title_of(engine)} {version}".strip()
    if configuration.profile is not None and configuration.profile.is_load_tested:
        of = "load tests" if configuration.backtested is None else "fleet"
        name = f"your {of} of {name}" if engine in ENGINES else f"your {of}"
    scheduler = configuration.engine.scheduler.name
    if scheduler in ENGINES and scheduler != engine:
        name += f" (not those of {title_of(scheduler)})"
    return f"times: {name}, rules: {rules(configuration.engine)}"


def of_sessions(found: SessionsServed) -> str:
    """Return how many sessions a GPU serves, what caches have and how full they are."""
    return (
        f"{found.users_per_gpu:.3g} sessions a GPU · {format_share(found.hit_rate)} of "
        f"prompts from caches · contexts are {format_share(found.kv_pressure)} of KV"
    )


def judged(run: Run) -> str:
    """Return what a run is judged by."""
    return "requests" if run.sessions is None else "turns"


def sessions_fact(run: Run) -> str:
    """Return what sessions of a run were served; of turns without, what caches had."""
    totals = run.simulation.totals
    if run.sessions is None:
        share = totals.cached_tokens / max(totals.prompt_tokens, 1)
        told = f"{format_share(share)} of prompt tokens found in caches"
        return told if run.simulation.turns is not None else ""
    found = run.sessions
    kept = (
        ""
        if found.kept is None
        else f"; all turns of {format_share(found.kept)} in time"
    )
    return (
        f"{of_sessions(found)}; {found.count:,} sessions and {found.turns:,} turns "
        f"counted, in which caches were filled {found.turnovers:.2g} times{kept}; an "
        f"endless cache has {format_share(1 - found.compulsory_rate)}"
    )


def caching(plan: Plan) -> str:
    """Return what prefix caching is worth; empty where no prefix is found."""
    share = None if plan.best is None else plan.best.cached_share
    if not share:
        return ""
    count = plan.gpu_count_without_prefix_caching
    without = "no count holds" if count is None else plural(count, "GPU")
    return f"serves {format_share(share)} of prompt tokens; without it: {without}"


def proof(candidate: Candidate) -> str:
    """Return how the largest count decided below the candidate's misses the SLO."""
    count = candidate.replica_count or 0
    below = [probe for probe in candidate.probes if probe.replica_count < count]
    if not below:
        return "No smaller count exists." if count == 1 else ""
    failing = [probe for probe in below if probe.meets is False]
    texts = []
    for probe in failing[-1:]:  # probes ascend
        backlog = "" if probe.stable else f"; {growing(probe)}"
        replicas = plural(probe.replica_count, "replica")
        texts.append(f"{replicas}: {missed(probe)}{backlog}.")
    if candidate.too_close:
        counts = ", ".join(f"{close:,}" for close in candidate.too_close)
        texts.append(f"Too close to the target to call: {counts}.")
    return " ".join(texts)


def growing(probe: Probe) -> str:
    """Return that the backlog of a count that is not stable grows."""
    if probe.utilisation is not None and probe.utilisation >= 1:
        return f"{format_load(probe.utilisation)} loaded, so the backlog grows"
    return "the backlog keeps growing"


def missed(probe: Probe) -> str:
    """Return what share of the requests is in time: where it misses, of that.

    Of the worst window that is judged, or of the classes that miss in all of the trace.
    """
    low = [row for row in probe.windows if row.is_judged and not row.meets]
    if low:
        return window(low[0])
    met = f"{format_share(probe.slo_attainment)} of requests in time"
    missing = [row for row in probe.classes if row.class_name in probe.missing]
    if missing and (own_targets(probe.classes) or len(missing[0].attainment_of) == 1):
        names = {} if probe.sessions is None else _OF_SESSIONS
        named = [
            f"{format_share(row.slo_attainment)} of "
            f"{names.get(row.class_name, row.class_name)} in time (asked "
            f"{row.attainment * 100:.6g} %)"
            for row in missing[:_CLASSES_NAMED]
        ]
        if len(missing) > _CLASSES_NAMED:
            named.append(f"and {len(missing) - _CLASSES_NAMED} more classes miss")
        met = ", ".join(named)
    return met


def shares(named: dict[str, float]) -> str:
    """Return names with their share of requests."""
    return ", ".join(f"{name} {format_share(share)}" for name, share in named.items())


def counted(judgement: Judgement, request_count: int) -> str:
    """Return how many requests count, of how many samples, and the warm-up."""
    samples, count = judgement.sample_count, judgement.counted_request_count
    after = ""
    if judgement.warmup_s:
        after = f", after a warm-up of {format_duration(judgement.warmup_s)}"
    if samples > 1:
        each = f"{after} each" if after else ""
        return f"{samples} samples of it, of which {count:,} requests count{each}"
    return f"{count:,} of {request_count:,} count{after}" if after else "all count"


def load(judgement: Judgement) -> str:
    """Return how loaded a fleet is, and how it recovers; empty if unknown."""
    steadiness = judgement.steadiness
    used = steadiness.known_utilisation
    if used is None:
        return ""
    text = f"{format_load(used)} loaded on average"
    if not steadiness.drawn:
        busiest = steadiness.busiest_utilisation
        if not math.isnan(busiest):
            text += f", {format_load(busiest)} in the busiest 5 min"
        drains = busiest >= 1 and judgement.stable
        return text + "; that backlog drains before the end" * drains
    if steadiness.recovery_s is not None:
        recovery_s = steadiness.recovery_s
        within = f"in {format_duration(recovery_s)}" if recovery_s else "at once"
        text += f"; a full backlog drains {within}"
    return f"{text}; {judgement.open}" if judgement.open else text


def sustained(plan: Plan) -> str:
    """Return that a trace ends in a backlog: of the best, or of fewer that attain it.

    Empty where there is none.
    """
    best = plan.best
    if best is None or best.run is None:
        return ""
    steadiness = best.run.judgement.steadiness
    probes = {probe.replica_count: probe for probe in best.probes}
    if steadiness.outpaced:
        return (
            "This fleet holds this trace, but not more traffic like it: by its end it "
            f"is {format_load(steadiness.sustained)} loaded, and the backlog grows."
        )
    fewer = probes.get(best.run.replica_count - 1)
    if fewer is None or fewer.missing or (fewer.sustained_utilisation or 0) < 1:
        return ""
    return (
        f"{plural(fewer.replica_count, 'replica')} would hold this trace alone "
        "(--no-extend), but by its end are "
        f"{format_load(fewer.sustained_utilisation or 0)} loaded: the count is for "
        "traffic that goes on like this."
    )


def interruption(run: Run) -> str:
    """Return how many requests an interrupted run reports; empty for a whole run."""
    if run.interrupted_of is None:
        return ""
    # A streamed run does not know how many requests the file still holds.
    arrived = " that had arrived" if run.simulation.times is None else ""
    return (
        f"after {format_count(run.simulation.totals.request_count)} of "
        f"{format_count(run.interrupted_of)} requests{arrived}: the figures are of "
        "those"
    )


def gap(candidate: Candidate) -> str:
    """Return how far the candidate may be above the minimum."""
    bound = candidate.lower_bound_gpu_count
    if bound is None or candidate.gpu_count is None:
        return "none known"
    above = candidate.gpu_count - bound
    if above <= 0:
        of = "" if candidate.cautious is None else _OF_PREDICTED
        return f"proven minimal{of}"
    if candidate.bound is not None and candidate.bound.method == "none":
        return "no closer bound is known"
    share = above / max(bound, 1)
    return f"at most {plural(above, 'GPU')} ({100 * share:.0f} %) above the minimum"


def binds(candidate: Candidate) -> str:
    """Return what keeps the count from being smaller; of which count, if of two."""
    if candidate.binding is None:
        return ""
    of = "" if candidate.cautious is None else " at the predicted times"
    return f"{candidate.binding.replace('none', 'nothing')}{of}"


def limited(binding: str) -> str:
    """Return what keeps a fleet from more: a setting, memory or a limit of the SLO."""
    return _SETTINGS.get(binding, binding and f"{binding}, the limit missed most often")


def lower_bound(candidate: Candidate) -> str:
    """Return the lower bound of a candidate and its gap."""
    bound = candidate.lower_bound_gpu_count
    prefix = "" if bound is None else f"{plural(bound, 'GPU')}: "
    return prefix + gap(candidate)


def gpu_time(run: Run) -> str:
    """Return how prompts and answers share the GPU time, and so the bill."""
    if run.work is None or run.cost is None:
        return ""
    share = format_share(run.work.prompt_share)
    return f"{share} for prompts, the rest for answers, as is the bill"


def api_or_own(bill: ApiBill) -> str:
    """Return what an API asks beside the plan's bill, and where owning breaks even."""
    price = bill.price
    prices = (
        ("in", price.usd_per_million_input_tokens),
        ("out", price.usd_per_million_output_tokens),
        ("cached", price.usd_per_million_cached_tokens),
    )
    told = ", ".join(
        f"{format_usd(usd) if usd == round(usd, 2) else format_fine_usd(usd)} {name}"
        for name, usd in prices
    )
    asked = (
        f"an API at {told} per million tokens costs {format_usd(bill.usd_per_month)} a "
        "month for this traffic"
    )
    if bill.own_usd_per_month is None or bill.break_even_per_s is None:
        return f"{asked}; the GPUs have no price"
    even, most = format_count(bill.break_even_per_s), bill.most_per_s
    own = f"this fleet {format_usd(bill.own_usd_per_month)}"
    at = f"the fleet pays from {even} requests/s on average"
    if most is None:
        return f"{asked}, {own}; {at}"
    sustained = f"the {format_count(most)} that it holds"
    if bill.break_even_per_s <= most:
        return f"{asked}, {own}; {at}, of {sustained}"
    return f"{asked}, {own}; {at}, more than {sustained}: it does not pay"
