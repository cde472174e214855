"""Sentences about a plan: attainment, the next smaller count, the gap to the bound."""

import re
from dataclasses import replace

import pytest

from capplan.planning.evaluate.steadiness import Steadiness
from capplan.report import sentences
from tests.deployments import changed


def with_bound(candidate, replica_count):
    return replace(
        candidate, bound=replace(candidate.bound, replica_count=replica_count)
    )


def with_degree(candidate, tp):
    run = changed(candidate.run, tp=tp)
    return replace(candidate, tp=tp, run=run, configuration=run.configuration)


def with_replicas(candidate, replica_count):
    return replace(candidate, run=changed(candidate.run, replica_count))


@pytest.mark.parametrize(
    ("tp", "bound", "expected"),
    [
        (8, 4, "32 GPUs: at most 8 GPUs (25 %) above the minimum"),
        (1, 4, "4 GPUs: at most 1 GPU (25 %) above the minimum"),
        (16, 2, "32 GPUs: at most 48 GPUs (150 %) above the minimum"),
        (8, 5, "40 GPUs: proven minimal"),
        (1, 1, "1 GPU: at most 4 GPUs (400 %) above the minimum"),
    ],
)
def test_the_gap_is_what_lies_between_the_plan_and_the_bound(best, tp, bound, expected):
    candidate = with_bound(with_degree(with_replicas(best, 5), tp), bound)

    assert sentences.lower_bound(candidate) == expected


def test_without_a_bound_or_a_run_no_gap_is_known(best, plan):
    assert sentences.lower_bound(replace(best, bound=None)) == "none known"
    assert sentences.gap(plan.candidates[2]) == "none known"


def test_a_proof_beside_a_cautious_bill_says_of_which_count_it_is(best):
    candidate = with_bound(with_replicas(best, 5), 5)
    cautious = replace(candidate, cautious_count=7)

    assert sentences.gap(candidate) == "proven minimal"
    assert sentences.gap(cautious) == (
        "proven minimal at the predicted times; the cautious count has no proof"
    )
    assert sentences.binds(replace(candidate, binding="none")) == "nothing"
    assert sentences.binds(replace(cautious, binding="TPOT")) == (
        "TPOT at the predicted times"
    )


def with_probes(candidate, *below, **changes):
    """Return a candidate with these counts below it, all missing the SLO by far."""
    missing = replace(candidate.probes[0], meets=False, **changes)
    rows = [replace(missing, replica_count=count) for count in below]
    return replace(candidate, probes=(*rows, candidate.probes[-1]))


def test_the_proof_is_the_largest_count_below(best):
    candidate = with_probes(best, 1, 2, slo_attainment=0.9134, stable=True)

    assert sentences.proof(candidate) == ("2 replicas: 91.34 % of requests in time.")


def test_a_growing_backlog_is_said(best):
    unstable = with_probes(
        best, 2, slo_attainment=0.4123, stable=False, utilisation=None
    )

    assert sentences.proof(unstable) == (
        "2 replicas: 41.23 % of requests in time; the backlog keeps growing."
    )


def test_one_replica_has_no_smaller_count(best):
    alone = replace(with_replicas(best, 1), probes=best.probes[-1:])

    assert sentences.proof(alone) == "No smaller count exists."


def test_two_replicas_below_which_nothing_was_simulated_have_no_proof(best):
    assert sentences.proof(replace(best, probes=best.probes[-1:])) == ""


def test_one_replica_below_is_singular(best):
    text = sentences.proof(with_probes(with_replicas(best, 2), 1))

    assert text.startswith("1 replica: ")


def test_the_attainment_has_its_interval_and_the_target(best):
    judgement = best.run.judgement
    attainment = replace(judgement.attainment, share=0.99296, interval=(0.989, 0.9952))
    judgement = replace(judgement, attainment=attainment)

    assert sentences.attained(judgement, "99 %") == (
        "99.29 % of requests (95 % interval 98.9 % to 99.52 %); asked 99 %"
    )
    assert sentences.attained(replace(judgement, attainment=None), "99 %") == ""


def test_classes_with_targets_are_never_held_against_one_for_all(classed):
    text = sentences.attained(classed.best.run.judgement, classed.attainment_text)

    assert text.startswith("each of 2 classes; asked 95 % of code, 99 % of chat; ")
    assert " of requests in all (95 % interval " in text
    below = sentences.proof(classed.best)
    assert re.fullmatch(
        r"2 replicas: [\d.]+ % of chat in time \(asked 99 %\), [\d.]+ % of code in "
        r"time \(asked 95 %\).",
        below,
    )


def test_the_warm_up_is_said_where_there_is_one(best):
    judgement = replace(best.run.judgement, counted_request_count=19_000, warmup_s=12.0)

    assert sentences.counted(judgement, 20_000) == (
        "19,000 of 20,000 count, after a warm-up of 12 s"
    )
    assert sentences.counted(replace(judgement, warmup_s=0.0), 20_000) == "all count"


def test_no_time_is_said_where_there_is_none(best):
    judgement = replace(best.run.judgement, sample_count=6)
    steadiness = Steadiness(drawn=True, utilisation=0.5, settled=True, recovery_s=0.0)
    cold = replace(judgement, warmup_s=0.0, steadiness=steadiness, open="")
    warm = replace(cold, warmup_s=2.5, steadiness=replace(steadiness, recovery_s=2.5))

    assert sentences.counted(cold, 0).endswith("requests count")
    assert (
        sentences.load(cold) == "50 % loaded on average; a full backlog drains at once"
    )
    assert sentences.counted(warm, 0).endswith("count, after a warm-up of 2.5 s each")
    assert (
        sentences.load(warm) == "50 % loaded on average; a full backlog drains in 2.5 s"
    )


def test_an_interrupted_run_says_of_how_many_requests_it_is(best):
    run = best.run  # keeps no requests, as a streamed one
    stopped = replace(run, simulation=replace(run.simulation, arrived_count=30_000))

    assert sentences.interruption(run) == ""
    assert sentences.interruption(stopped) == (
        "after 3,000 of 30,000 requests that had arrived: the figures are of those"
    )


def test_the_traffic_has_thousands_and_three_digits():
    assert sentences.traffic(1200.4, 612.4, 200.1) == (
        "1,200 requests/s, on average 612 prompt and 200 output tokens"
    )


def test_what_prefix_caching_is_worth_is_said_where_prefixes_are_found(plan, best):
    totals = replace(best.run.simulation.totals, cached_tokens=0)
    found = replace(totals, cached_tokens=totals.prompt_tokens / 4)

    def planned(totals, count):
        simulation = replace(best.run.simulation, totals=totals)
        row = replace(best, run=replace(best.run, simulation=simulation))
        return replace(plan, best=row, gpu_count_without_prefix_caching=count)

    assert sentences.caching(planned(totals, None)) == ""
    assert sentences.caching(planned(found, 48)) == (
        "serves 25 % of prompt tokens; without it: 48 GPUs"
    )
    assert sentences.caching(planned(found, None)).endswith("no count holds")
