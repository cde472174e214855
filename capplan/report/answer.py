"""Sentences about a plan: GPUs, attainment, the count below, the lower bound."""

from capplan.planning.judgement import Judgement
from capplan.planning.result import Candidate, Plan, Probe
from capplan.report.columns import format_count, format_share
from capplan.units import format_duration


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "GPU"), plural(40, "GPU")
    ('1 GPU', '40 GPUs')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def headline(candidate: Candidate) -> str:
    """Return "40 GPUs = 5 replicas × 8 (TP 8)" of a feasible candidate."""
    assert candidate.run is not None
    return str(candidate.run.deployment)


def name(candidate: Candidate) -> str:
    """Return "H100-SXM TP 8"."""
    return f"{candidate.gpu} TP {candidate.tp}"


def workload(plan: Plan) -> str:
    """Return rate and mean lengths on one line."""
    return (
        f"{format_count(plan.rate_per_s)} requests/s, on average "
        f"{format_count(plan.mean_prompt_tokens)} prompt and "
        f"{format_count(plan.mean_output_tokens)} output tokens"
    )


def attained(plan: Plan, candidate: Candidate) -> str:
    """Return the simulated attainment with its interval and the target."""
    if candidate.slo_attainment is None:
        return ""
    text = f"{format_share(candidate.slo_attainment)} of requests"
    if candidate.slo_attainment_interval is not None:
        low, high = candidate.slo_attainment_interval
        text += f" (95 % interval {format_share(low)} to {format_share(high)})"
    return f"{text}; asked {format_share(plan.attainment)}"


def one_fewer(candidate: Candidate) -> Probe | None:
    """Return the largest simulated replica count below the candidate's."""
    below = [
        probe
        for probe in candidate.probes
        if candidate.replica_count is not None
        and probe.replica_count < candidate.replica_count
    ]
    return max(below, key=lambda probe: probe.replica_count, default=None)


def proof(candidate: Candidate) -> str:
    """Return how the count below fails."""
    probe = one_fewer(candidate)
    if probe is None:
        return "No smaller count exists." if candidate.replica_count == 1 else ""
    backlog = "" if probe.stable else ", and the backlog grows without end"
    return (
        f"{plural(probe.replica_count, 'replica')} simulated: "
        f"{format_share(probe.slo_attainment)} attain it{backlog}."
    )


def counted(judgement: Judgement, request_count: int) -> str:
    """Return how many requests count, and the warm-up that is left out."""
    if not judgement.warmup_s:
        return "all count"
    return (
        f"the first {format_duration(judgement.warmup_s)} warm up, so "
        f"{judgement.counted_request_count:,} of {request_count:,} count"
    )


def gap(candidate: Candidate) -> str:
    """Return the lower bound and how far the candidate is above it."""
    bound = candidate.lower_bound_gpu_count
    if bound is None or candidate.gpu_count is None:
        return "none known"
    above = candidate.gpu_count - bound
    text = f"{plural(bound, 'GPU')}"
    if above <= 0:
        return f"{text}: the answer is the minimum"
    share = above / candidate.gpu_count
    return f"{text}: at most {plural(above, 'GPU')} ({share:.0%}) could still be saved"


def room(candidate: Candidate) -> str:
    """Return in a few words how far the candidate is above its bound."""
    bound = candidate.lower_bound_gpu_count
    if bound is None or candidate.gpu_count is None:
        return "none known"
    above = candidate.gpu_count - bound
    if above <= 0:
        return "the answer is the minimum"
    return f"gap {plural(above, 'GPU')}, {above / candidate.gpu_count:.0%}"
