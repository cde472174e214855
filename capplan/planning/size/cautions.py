"""What of a candidate is not certain: its count, and the range of its profile."""

import re
from collections.abc import Iterable

import numpy as np

from capplan.latency.engine_time import LEAST_USERS
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.run import FILLING, Run


def uncertainty(candidate: Candidate) -> str:
    """Return what of a feasible candidate's count is not decided; empty if nothing."""
    run, name = candidate.run, str(candidate)
    if run is None or candidate.status != "feasible":
        return ""
    count = run.replica_count
    if run.judgement.open:
        return f"{name}, {count:,} replicas: not certain: {run.judgement.open}"
    if run.judgement.steadiness.filling:
        return f"{name}, {count:,} replicas: {FILLING}"
    if candidate.pools and candidate.close:
        counts = "; ".join(" + ".join(map(str, each)) for each in candidate.close)
        return (
            f"{name}: {counts} replicas for prompts and decoding are too close to the "
            "target to call"
        )
    if candidate.too_close:
        counts = ", ".join(f"{close:,}" for close in candidate.too_close)
        return (
            f"{name}: {counts} replicas are too close to the target to call; "
            f"{count:,} hold for certain"
        )
    if not candidate.decided and not candidate.coarse and not candidate.cut_short:
        return (
            f"{name}: {count:,} replicas hold, but larger counts miss with router "
            f"{run.deployment.placed_by}"
        )
    return ""


def extrapolations(run: Run) -> tuple[str, ...]:
    """Warn where a run leaves what its profile was measured in, or has users too few.

    Too few answers to users contradict each other.
    """
    profile, unsteady = run.configuration.profile, run.judgement.unsteady
    told = (unsteady,) if unsteady else ()
    if profile is None:
        return told
    times = run.simulation.table
    batch = int(np.ceil(run.simulation.series.batch_requests.max()))
    context = int((times.prompt_tokens + times.output_tokens).max())
    chunk = int(
        min(times.prompt_tokens.max(), run.configuration.engine.max_num_batched_tokens)
    )
    sentences = profile.beyond_range(batch, context, chunk)
    replica, batches = run.configuration.replica, run.simulation.series.batch_requests
    if profile.kernels_from and replica is not None and replica.llm.experts:
        running = float(batches[batches > 0].mean())
        if running < LEAST_USERS:
            sentences.append(
                f"{profile.name}: {running:.1f} requests run at once on average, fewer "
                f"than the {LEAST_USERS} from which engines were measured: iterations "
                "of a mixture of experts may take up to half as long again"
            )
    if run.configuration.rank_tables is not None and len(run.deployment.pools) == 1:
        measured = ""
        if run.configuration.layout_error() is None:
            measured = (
                "three engines of DeepSeek-R1 that were measured had 0.45 to 1.08 of "
                "the predicted TPOT (docs/internals/latency.md), so fewer may do; "
            )
        sentences.append(
            f"{profile.name}: a prompt on one rank holds up the decodes of all; "
            f"{measured}--prefill-schedule-interval gathers prompts into few iterations"
        )
    return (*told, *sentences)


def largest_of_alike(texts: Iterable[str]) -> list[str]:
    """Return texts in order of what they say, of alike ones that of larger numbers."""
    kept: dict[str, str] = {}
    for text in texts:
        shape = re.sub(r"[\d,.]+", "0", text)
        kept[shape] = max(kept.get(shape, ""), text, key=lambda x: (len(x), x))
    return [kept[shape] for shape in sorted(kept)]
