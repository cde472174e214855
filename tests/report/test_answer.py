"""Sentences about a plan: attainment, the next smaller count, the gap to the bound."""

from dataclasses import replace

import pytest

from capplan.report import answer
from tests.deployments import changed


def with_bound(candidate, replica_count):
    return replace(
        candidate, bound=replace(candidate.bound, replica_count=replica_count)
    )


def with_degree(candidate, tp):
    return replace(candidate, tp=tp, run=changed(candidate.run, tp=tp))


def with_replicas(candidate, replica_count):
    return replace(candidate, run=changed(candidate.run, replica_count))


@pytest.mark.parametrize(
    ("tp", "bound", "expected"),
    [
        (8, 4, "32 GPUs: at most 8 GPUs (25%) above the minimum"),
        (1, 4, "4 GPUs: at most 1 GPU (25%) above the minimum"),
        (16, 2, "32 GPUs: at most 48 GPUs (150%) above the minimum"),
        (8, 5, "40 GPUs: proven minimal"),
        (1, 1, "1 GPU: at most 4 GPUs (400%) above the minimum"),
    ],
)
def test_the_gap_is_what_lies_between_the_plan_and_the_bound(best, tp, bound, expected):
    candidate = with_bound(with_degree(best, tp), bound)

    assert answer.lower_bound(candidate) == expected


def test_without_a_bound_or_a_run_no_gap_is_known(best, plan):
    assert answer.lower_bound(replace(best, bound=None)) == "none known"
    assert answer.gap(plan.candidates[2]) == "none known"


def test_the_proof_is_the_largest_count_below(best):
    assert answer.proof(best) == (
        "4 replicas simulated: 91.34 % of requests meet the SLO."
    )


def test_a_growing_backlog_is_said(best):
    unstable = replace(best, probes=(best.probes[0], *best.probes[2:]))

    assert answer.proof(unstable) == (
        "3 replicas simulated: 41.23 % of requests meet the SLO; the backlog keeps "
        "growing."
    )


def test_one_replica_has_no_smaller_count(best):
    alone = replace(with_replicas(best, 1), probes=best.probes[2:])

    assert answer.proof(alone) == "No smaller count exists."


def test_two_replicas_below_which_nothing_was_simulated_have_no_proof(best):
    assert answer.proof(replace(best, probes=best.probes[2:])) == ""


def test_one_replica_below_is_singular(best):
    probe = replace(best.probes[1], replica_count=1)

    text = answer.proof(replace(with_replicas(best, 2), probes=(probe,)))

    assert text.startswith("1 replica simulated:")


def test_the_attainment_has_its_interval_and_the_target(best):
    judgement = best.run.judgement

    assert answer.attained(judgement, "99 %") == (
        "99.29 % of requests (95 % interval 98.9 % to 99.52 %); asked 99 %"
    )
    assert answer.attained(replace(judgement, attainment=None), "99 %") == ""


def test_classes_with_targets_are_never_held_against_one_for_all(classed):
    judgement = classed.best.run.judgement

    assert answer.attained(judgement, classed.attainment_text) == (
        "each of 2 classes; asked 99 % of chat, 95 % of code; 99.29 % of requests in "
        "all (95 % interval 98.9 % to 99.52 %)"
    )
    assert answer.proof(classed.best) == (
        "4 replicas simulated: 91 % of code meet the SLO."
    )


def test_the_warm_up_is_said_where_there_is_one(best):
    judgement = best.run.judgement

    assert answer.counted(judgement, 20_000) == (
        "19,000 of 20,000 count, after a warm-up of 12 s"
    )
    assert answer.counted(replace(judgement, warmup_s=0.0), 20_000) == "all count"


def test_an_interrupted_run_says_of_how_many_requests_it_is(best):
    run = best.run
    stopped = replace(run, simulation=replace(run.simulation, arrived_count=30_000))

    assert answer.interruption(run) == ""
    # The run of the fixture keeps no requests, as a streamed one.
    assert answer.interruption(stopped) == (
        "after 20,000 of 30,000 requests that had arrived: the figures hold for those"
    )


def test_the_traffic_has_thousands_and_three_digits(plan):
    assert answer.workload(plan) == (
        "120 requests/s, on average 612 prompt and 200 output tokens"
    )


def test_reasons_are_those_of_pruned_and_infeasible_candidates(plan):
    assert [(row.gpu, reason) for row, reason in answer.reasons(plan)] == [
        ("H100-SXM", "needs at least 44 GPUs, $109.56 per hour"),
        ("L40S", "weights of 141 GB do not fit in 48 GB"),
    ]


def test_what_prefix_caching_is_worth_is_said_where_prefixes_are_found(plan, best):
    totals = replace(best.run.simulation.totals, cached_tokens=0)
    found = replace(totals, cached_tokens=totals.prompt_tokens // 4)

    def planned(totals, count):
        simulation = replace(best.run.simulation, totals=totals)
        row = replace(best, run=replace(best.run, simulation=simulation))
        return replace(plan, best=row, gpu_count_without_prefix_caching=count)

    assert answer.caching(planned(totals, None)) == ""
    assert answer.caching(planned(found, 48)) == (
        "25 % of prompt tokens are found; without it: 48 GPUs"
    )
    assert answer.caching(planned(found, None)).endswith("no count was found")
