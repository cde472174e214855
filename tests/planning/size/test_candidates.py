"""Candidates: order, pruning, and the evaluation of one configuration."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.fleet.price import Price
from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.load.load import Load
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.candidates import (
    Tuning,
    cannot_serve,
    evaluate,
    pruned,
    tune,
)
from capplan.planning.size.insisted import insisted
from capplan.planning.size.prospects import (
    MOST_REPLICAS,
    Prospect,
    cannot_win,
    cheapest_first,
    most_to_win,
)
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace
from tests.deployments import candidate_of

# An iteration takes 10 ms, and 0.1 ms more for each prompt token in it.
ENGINE = EngineSettings(
    max_num_batched_tokens=2048, max_num_seqs=8, block_size=16, kv_blocks=1000
)
TABLES = linear_tables(10e-3, 1e-4, 0, 0, 0, max_batch=8, max_tokens=2048)


def configuration(gpu="H100-SXM", tp=1, usd=2.0, **engine):
    price = None if usd is None else Price(usd, "a source")
    return Configuration(replace(ENGINE, **engine), TABLES, gpu, tp, price)


def bound(replica_count):
    return SimpleNamespace(replica_count=replica_count, note="a note")


def prospect(replica_count, **of):
    return Prospect(configuration(**of), bound(replica_count))


def feasible(gpu, gpu_count, usd_per_h):
    """A candidate of which all GPUs cost so much; None: without a price."""
    usd = None if usd_per_h is None else usd_per_h / gpu_count
    return candidate_of(configuration(gpu, usd=usd), gpu_count)


def in_doubt(candidate):
    guessed = replace(candidate.configuration.price, is_guess=True)
    return candidate_of(
        replace(candidate.configuration, price=guessed), candidate.replica_count
    )


def inputs(gap_s=0.02, n=1500, slo="ttft=500ms,tpot=30ms", prompt=100, **settings):
    """Constant arrivals of 100-token prompts with 11 output tokens each."""
    trace = Trace(np.full(n, prompt), np.full(n, 11), np.arange(n) * gap_s)
    return PlanInputs(
        PlanSettings(slo=slo, **settings),
        Load(trace, None),
        parse_slo(slo),
        ("jsq",),
        None,
    )


def test_candidates_are_evaluated_by_least_cost_then_by_gpus():
    dear, cheap = prospect(1, usd=9.0), prospect(2, usd=2.0, gpu="A")
    same_cost_fewer_gpus = prospect(1, usd=4.0, gpu="B")
    unpriced = prospect(1, usd=None)

    order = sorted([unpriced, dear, cheap, same_cost_fewer_gpus], key=cheapest_first)

    assert order == [same_cost_fewer_gpus, cheap, dear, unpriced]


@pytest.mark.parametrize(
    ("done", "prunes"),
    [
        ([], False),
        ([feasible("A", 3, 5.0)], True),  # fewer GPUs and cheaper than the bound
        ([feasible("A", 4, 8.0)], True),  # as many, at the same price
        ([feasible("A", 5, 5.0)], False),  # cheaper, but the bound has fewer GPUs
        ([feasible("A", 3, 9.0)], False),  # fewer GPUs, but dearer
        ([feasible("A", 3, None)], False),  # a price that is not known beats none
        ([feasible("A", 3, 9.0), feasible("B", 7, 1.0)], True),
    ],
)
def test_a_prospect_is_pruned_only_where_it_can_be_neither_best(done, prunes):
    reason = cannot_win(prospect(4, usd=2.0), done)

    assert (reason is not None) is prunes
    if prunes:
        assert reason.startswith("needs at least 4 GPUs, $8.00 an hour; ")


@pytest.mark.parametrize(
    ("done", "most"),
    [
        ([], MOST_REPLICAS),
        ([feasible("A", 4, 8.0)], 3),  # at $2 each: four are as dear, on as many GPUs
        ([feasible("A", 5, 8.0)], 4),  # as dear, on fewer GPUs
        ([feasible("A", 4, 9.0), feasible("B", 9, 7.0)], 3),  # the cheapest counts
        ([feasible("A", 3, None)], MOST_REPLICAS),  # a price that is not known
    ],
)
def test_the_most_replicas_with_which_a_configuration_is_the_best(done, most):
    assert most_to_win(prospect(2, usd=2.0), done) == most


def test_an_estimate_is_not_the_best_beside_what_was_measured():
    measured, estimate = feasible("A", 4, 8.0), in_doubt(feasible("B", 4, 8.0))
    guessed = Prospect(in_doubt(feasible("C", 1, 2.0)).configuration, bound(2))

    assert most_to_win(guessed, [measured]) == 0
    assert most_to_win(guessed, [estimate]) == 3
    assert most_to_win(prospect(2, usd=2.0), [estimate]) == MOST_REPLICAS
    beaten = replace(prospect(2, usd=2.0), max_replicas=1)
    assert "the best costs less" in cannot_win(beaten, [measured])


def test_an_estimate_prunes_nothing_that_was_measured():
    done = [in_doubt(feasible("A", 3, 5.0))]

    assert cannot_win(prospect(4, usd=2.0), done) is None


def test_infeasible_candidates_prune_nothing():
    done = [Candidate.of(configuration(), "infeasible")]

    assert cannot_win(prospect(4), done) is None


def test_a_pruned_candidate_keeps_its_bound_and_reason():
    candidate = pruned(prospect(3, tp=2), "why")

    assert candidate.status == "pruned"
    assert candidate.pruned_reason == "why"
    assert candidate.lower_bound_gpu_count == 6
    assert candidate.gpu_count is None
    assert candidate.cost is None


def test_requests_that_fit_no_replica_cannot_be_served():
    reason = cannot_serve(inputs(prompt=20_000), configuration())

    assert reason == "1,500 requests do not fit a replica, which holds 15,984 tokens"


def test_an_slo_below_the_latency_of_a_request_alone_cannot_be_met():
    # Alone: prefill 10 + 100 × 0.1 = 20 ms, decode iterations of 10 ms.
    possible = cannot_serve(inputs(slo="ttft=20.1ms,tpot=10.1ms"), configuration())
    impossible = cannot_serve(inputs(slo="ttft=19.9ms"), configuration())

    assert possible is None
    assert impossible.startswith("TTFT takes 20 ms at least, not 19.9 ms; with each")


def test_the_fewest_replicas_are_found_with_their_cost():
    # A request takes 20 + 10 × 10 ms = 120 ms alone; batched, prefills of others
    # lengthen decode iterations to at most 20 ms. 50 requests/s need the decode of
    # 500 tokens/s and 50 prefills: one replica cannot prefill 50/s at 20 ms.
    candidate, warnings = evaluate(inputs(), prospect(1))

    assert candidate.status == "feasible"
    assert (
        candidate.replica_count
        == candidate.gpu_count
        == candidate.run.deployment.gpu_count
    )
    assert candidate.replica_count > 1
    assert candidate.cost.usd_per_h == pytest.approx(2.0 * candidate.gpu_count)
    assert candidate.run.simulation.times is None
    assert [probe.meets for probe in candidate.probes][-1]
    below = [p for p in candidate.probes if p.replica_count < candidate.replica_count]
    assert not below[-1].meets
    assert candidate.binding in ("TTFT", "TPOT")
    assert warnings == ()


def test_of_one_that_cannot_be_the_best_its_least_is_what_missed_and_one_more():
    needed = evaluate(inputs(), prospect(1))[0].replica_count
    limited = replace(prospect(1), max_replicas=needed - 1)

    candidate, _ = evaluate(replace(inputs(), best_only=True), limited)

    assert candidate.pruned_reason == f"needs more than {needed - 1} replicas"
    assert [pool.replica_count for pool in candidate.least] == [needed]


def test_a_candidate_without_a_price_has_no_cost():
    candidate, _ = evaluate(inputs(), prospect(1, usd=None))

    assert candidate.cost is None


def drawn_inputs(ttft):
    base = Trace(np.full(1500, 100), np.full(1500, 11), np.arange(1500) * 0.02)
    return replace(
        inputs(),
        load=Load(base, "poisson", 50.0, request_count=1500, seed=0),
        slo=parse_slo(f"ttft={ttft}", 0.9),
    )


@pytest.mark.parametrize(
    ("ttft", "searched", "decided"), [("40ms", 6, 5), ("50ms", 3, 3)]
)
def test_the_best_count_gets_the_samples_that_it_wanted(
    monkeypatch, ttft, searched, decided
):
    """Else `verify`, which has them, would find another attainment."""
    monkeypatch.setattr("capplan.planning.evaluate.run.BUDGET_REQUESTS", 2_000)
    drawn = drawn_inputs(ttft)

    quick, _ = evaluate(drawn, prospect(1))
    surer = insisted(drawn, quick)

    assert (quick.replica_count, quick.run.judgement.spent) == (searched, True)
    assert (surer.replica_count, surer.decided) == (decided, True)
    assert surer.run.judgement.sample_count > quick.run.judgement.sample_count


def test_a_count_is_decided_only_where_the_one_below_was_simulated(monkeypatch):
    """51 replicas were decided; the long run held 50, which nobody had tried."""
    monkeypatch.setattr("capplan.planning.evaluate.run.BUDGET_REQUESTS", 2_000)
    drawn = drawn_inputs("40ms")
    quick, _ = evaluate(drawn, prospect(1))
    gap = tuple(probe for probe in quick.probes if probe.replica_count >= 5)

    surer = insisted(drawn, replace(quick, probes=gap))

    assert [probe.meets for probe in surer.probes[:2]] == [False, True]
    assert [probe.replica_count for probe in surer.probes[:2]] == [4, 5]


def test_a_count_that_larger_ones_do_not_bear_out_gets_no_more_samples():
    quick, _ = evaluate(inputs(), prospect(1))
    missed = replace(quick.probes[0], replica_count=quick.replica_count + 1)
    alone = replace(quick, probes=(*quick.probes, missed), decided=False)

    assert insisted(inputs(), alone) is alone


def test_a_smaller_token_budget_is_taken_where_it_saves_replicas():
    # The one gap of two tokens is an iteration: 160 ms when a whole prompt of 1,500
    # tokens is in it, more than the TPOT of 70 ms; the rest of a split one takes less.
    prompt = np.where(np.arange(1500) % 5 == 0, 1500, 10)
    trace = Trace(prompt, np.full(1500, 2), np.arange(1500) * 0.02)
    given = replace(inputs(slo="ttft=5s,tpot=70ms"), load=Load(trace, None))

    plain, _ = evaluate(given, prospect(1))
    better = tune(given, Tuning(prospect(1), "jsq", plain.replica_count - 1)).candidate

    assert plain.configuration.engine.max_num_batched_tokens == 2048
    assert better is not None
    assert better.replica_count < plain.replica_count
    assert better.configuration.engine.max_num_batched_tokens < 2048
    assert better.configuration.engine == better.run.configuration.engine


def test_what_a_budget_that_misses_completes_at_most_is_not_measured(monkeypatch):
    def fleet_saturation(*of):
        raise AssertionError("a utilisation that nobody is told")

    monkeypatch.setattr(
        "capplan.planning.evaluate.replications.fleet_saturation", fleet_saturation
    )

    assert tune(inputs(), Tuning(prospect(1), "jsq", 1)) == (None, (), None)


def test_without_a_replica_to_save_the_token_budget_stays():
    assert tune(inputs(), Tuning(prospect(1), "jsq", 0)) == (None, (), None)


def test_a_token_budget_too_close_to_call_is_named(monkeypatch):
    def run_of(inputs, deployment, only_whether):
        pool = deployment.pool
        budget = pool.configuration.engine.max_num_batched_tokens
        judgement = SimpleNamespace(meets=None if budget == 1024 else False)
        return SimpleNamespace(replica_count=pool.replica_count, judgement=judgement)

    monkeypatch.setattr("capplan.planning.size.shape.run_of", run_of)

    found = tune(inputs(), Tuning(prospect(1), "jsq", 3))

    assert found.candidate is None
    assert found.too_close == 3
    assert len(found.warnings) == 1
    assert "3 replicas with --max-num-batched-tokens 1024" in found.warnings[0]


@pytest.mark.thorough
def test_a_fleet_that_no_count_saves_is_infeasible_with_the_last_share():
    # Alone on a replica a request has its first token after 20 ms: 1,000 replicas for
    # 1,000 requests keep 20 ms, no count keeps 19 ms.
    trace = Trace(np.full(1000, 100), np.full(1000, 2), np.zeros(1000))
    crowd = PlanInputs(
        PlanSettings(slo="ttft=19ms"),
        Load(trace, None),
        parse_slo("ttft=19ms", 1.0),
        ("best-fit:theta=1",),
        None,
    )

    candidate, _ = evaluate(crowd, prospect(1))

    assert isinstance(candidate, Candidate)
    assert candidate.status == "infeasible"
    assert "more do not help" in candidate.infeasible_reason
