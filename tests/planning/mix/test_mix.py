"""Mixes of GPU types: against every mix of a toy, simulated, and against its bound."""

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment, Pool
from capplan.deployment.split import SizeBand, Split
from capplan.errors import CapplanWarning, InputError
from capplan.fleet.price import Price
from capplan.latency.contract import linear_tables
from capplan.placement.mix import allocate_mix
from capplan.planning.evaluate.inputs import PlanInputs, unseen
from capplan.planning.evaluate.known_runs import KnownRuns
from capplan.planning.evaluate.run import run_of
from capplan.planning.load.load import Load
from capplan.planning.mix import fleet as mix_fleet
from capplan.planning.mix.allocation import SLICES, problem_of
from capplan.planning.mix.fleet import MIN_REPLICAS, MixFleet
from capplan.planning.mix.mix import mix_of
from capplan.planning.mix.result import Mix
from capplan.planning.money.cost import usd_per_h
from capplan.planning.money.quota import check_quota
from capplan.planning.prove.mix_bound import bound_of_mix
from capplan.planning.prove.proof import bound_of
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.candidates import evaluate
from capplan.planning.size.prospects import Prospect, feasible_of, price_of
from capplan.report.pages.mix import mix_sections, mix_sentence
from capplan.settings import SettingError
from capplan.simulator.simulate import simulate
from capplan.workload.slo import parse_slo
from capplan.workload.trace import MAX_TOKENS, Trace

SLO = "ttft=500ms,tpot=30ms"
SHORT, LONG = 100, 2000
BUDGET = 2048
SPLITS = [(SLICES - k, k) for k in range(SLICES + 1)]


def kind(gpu, token_s, usd, seats=8):
    """A replica of one GPU: 10 ms an iteration, and some for each prompt token."""
    engine = EngineSettings(
        max_num_batched_tokens=BUDGET, max_num_seqs=seats, block_size=16, kv_blocks=2000
    )
    tables = linear_tables(10e-3, token_s, 0, 0, 0, max_batch=seats, max_tokens=BUDGET)
    return Configuration(engine, tables, gpu, 1, Price(usd, "a source"))


# A long prompt takes 10 + 400 ms on the small one: it stalls those that decode.
SMALL, LARGE = kind("small", 2e-4, 1.0), kind("large", 1e-5, 4.0)


def inputs(rate_per_s=250.0, long_share=0.2, n=6000, **settings):
    rng = np.random.default_rng(3)
    prompts = np.where(rng.random(n) < long_share, LONG, SHORT)
    arrival_s = np.cumsum(rng.exponential(1 / rate_per_s, n))
    trace = Trace(prompts, np.full(n, 11), arrival_s)
    return PlanInputs(
        PlanSettings(slo=SLO, mix=True, **settings),
        Load(trace, None),
        parse_slo(SLO),
        ("jsq",),
        None,
    )


def planned(given, kinds):
    """Return what is known of a plan: each kind by itself, and the cheapest."""
    rows = []
    for each in kinds:
        bound, sample = bound_of(given, each)
        rows.append(evaluate(given, Prospect(each, bound, sample))[0])
    best = min(feasible_of(rows), key=price_of, default=None)
    return SimpleNamespace(candidates=tuple(rows), best=best)


def of(plan):
    """Return what a mix is to know of a plan."""
    return plan.candidates, (plan.best, None)


def found_in(given, *kinds):
    plan = planned(given, kinds)
    return plan, mix_of(given, list(kinds), *of(plan), unseen)


@pytest.fixture(scope="module")
def case():
    given = inputs()
    return given, *found_in(given, SMALL, LARGE)


def test_short_prompts_go_to_the_cheap_gpu_and_long_ones_to_the_fast_one(case):
    _, plan, mix = case

    assert mix.offered
    assert [pool.gpu for pool in mix.pools] == ["small", "large"]
    short, long = mix.bands
    assert (short.prompt_tokens, long.prompt_tokens) == ((1, SHORT), (101, MAX_TOKENS))
    assert short.shares[0] > 0.5  # what is left of the fast ones is filled with some
    assert long.shares == (0.0, 1.0)
    assert mix.cost.usd_per_h <= 0.95 * plan.best.cost.usd_per_h
    assert mix.saved_share == pytest.approx(
        1 - mix.cost.usd_per_h / plan.best.cost.usd_per_h
    )


def test_the_allocation_told_is_that_of_the_planned_load(case):
    given, _, mix = case
    sustained = np.array([row.requests_per_s for row in mix.capacities]).T
    shares = np.array([band.share_of_requests for band in mix.bands])
    rates = mix.load_factor * given.trace.rate_per_s * shares

    asked = allocate_mix(
        problem_of([SMALL, LARGE], rates, sustained, {}), time_limit_s=10
    )

    assert mix.allocation_usd_per_h == asked.usd_per_h
    assert mix.allocation_lower_bound_usd_per_h == asked.lower_bound_usd_per_h


def cheapest_of_all(given, small, large, most_usd_per_h):
    """Return what the cheapest mix costs, of all splits by quarters and all counts."""
    given = replace(given, simulate_with=KnownRuns())
    bands = (SizeBand("", (1, SHORT)), SizeBand("", (SHORT + 1, MAX_TOKENS)))
    counts = range(MIN_REPLICAS, int(most_usd_per_h) + 1)
    fleets = [tuple(map(Pool, (small, large), row)) for row in product(counts, counts)]
    fleets = sorted(fleets, key=usd_per_h)
    cheapest = math.inf
    for parts in product(SPLITS, repeat=2):
        if not np.sum(parts, axis=0).all():
            continue  # one kind alone is the plan's
        split = Split(bands, parts)
        for pools in fleets:
            if usd_per_h(pools) >= min(cheapest, most_usd_per_h):
                break
            if run_of(given, Deployment(pools, split=split)).judgement.meets:
                cheapest = usd_per_h(pools)
                break
    return cheapest


@pytest.mark.thorough
def test_the_mix_costs_what_the_cheapest_of_all_simulated_ones_costs(case):
    given, plan, mix = case

    cheapest = cheapest_of_all(given, SMALL, LARGE, plan.best.cost.usd_per_h)

    assert mix.cost.usd_per_h == cheapest


def test_a_fleet_that_its_samples_decide_is_not_simulated_again(monkeypatch):
    given = inputs()
    load = replace(given.load, process="poisson", rate_per_s=250.0, request_count=4000)
    given = replace(given, load=load)
    bands = (SizeBand("", (1, SHORT)), SizeBand("", (SHORT + 1, MAX_TOKENS)))
    split = Split(bands, ((1, 0), (0, 1)))
    fleet = MixFleet(given, [SMALL, LARGE], split, math.inf)
    fleet.meets((16, 8))
    found = fleet.runs[16, 8]
    again = run_of(given, fleet.deployment((16, 8)), thorough=True)
    monkeypatch.setattr(mix_fleet, "run_of", None)

    surest = fleet.surest()

    assert surest is found
    assert not found.judgement.spent
    assert found.judgement.sample_count == again.judgement.sample_count > 1
    assert found.judgement.attainment == again.judgement.attainment


def test_the_bound_is_below_the_mix_and_not_above_the_cheapest_kind_alone(case):
    _, plan, mix = case
    alone = [
        row.bound.work_s
        / (row.bound.window_end_s - row.bound.window_start_s)
        * row.configuration.price.usd_per_gpu_h
        for row in plan.candidates
        if row.bound.method == "busiest window"
    ]

    assert 0 < mix.bound.usd_per_h <= mix.cost.usd_per_h
    assert mix.bound.usd_per_h <= min(alone) * (1 + 1e-9)


def test_a_mix_is_not_offered_for_less_than_the_gain_asked_for():
    given = inputs(mix_gain=0.9)

    _, mix = found_in(given, SMALL, LARGE)

    assert not mix.offered
    assert "not 90 % less than the best single type" in mix.reason
    assert mix.pools == ()


def test_a_quota_keeps_the_cheap_kind_out():
    given = inputs(max_nodes={"small": 1})

    _, mix = found_in(given, SMALL, LARGE)

    assert not mix.offered
    assert "one kind, large" in mix.reason


def test_quotas_too_small_for_any_mix_are_infeasible_and_named():
    given = inputs(max_nodes={"small": 1, "large": 1})

    plan, mix = found_in(given, SMALL, LARGE)

    assert plan.best is None
    assert "--max-nodes allows 1" in plan.candidates[1].infeasible_reason
    assert "within --max-nodes small=1,large=1" in mix.reason


def test_a_mix_is_found_where_no_single_kind_serves_all():
    # The small kind would take 62, and there are too few large ones for all.
    given = inputs(max_nodes={"small": 20, "large": 3})

    plan, mix = found_in(given, SMALL, LARGE)

    assert plan.best is None
    assert mix.offered
    assert mix.saved_share is None
    assert mix.pools[1].replica_count <= 3


def test_kinds_without_a_price_are_left_out():
    given = inputs(n=300)

    _, mix = found_in(given, SMALL, replace(LARGE, price=None))

    assert not mix.offered
    assert "fewer than two kinds" in mix.reason


def test_an_interrupted_search_says_so():
    given = inputs(n=300)
    plan = planned(given, (SMALL, LARGE))
    stopped = replace(given, stopped=lambda: True)

    mix = mix_of(stopped, [SMALL, LARGE], *of(plan), unseen)

    assert not mix.offered
    assert "interrupted" in mix.reason


def test_the_same_inputs_give_the_same_mix():
    first, second = (found_in(inputs(), SMALL, LARGE)[1] for _ in range(2))

    assert [(p.gpu, p.replica_count) for p in first.pools] == [
        (p.gpu, p.replica_count) for p in second.pools
    ]
    assert first.capacities == second.capacities
    assert first.bound == second.bound


def test_a_split_gives_each_pool_what_it_gives_it_alone():
    given = inputs(n=500)
    bands = (SizeBand("", (1, SHORT)), SizeBand("", (SHORT + 1, MAX_TOKENS)))
    split = Split(bands, ((2, 1), (0, 1)))
    fleet = Deployment((Pool(SMALL, 2), Pool(LARGE, 1)), split=split)
    trace = given.load.base
    pool_of = split.pools_of(trace)

    found = run_of(given, fleet).simulation

    for index, alone in enumerate(fleet.side_by_side):
        rows = pool_of == index
        part = simulate(trace.select(rows), alone, slo=given.slo).table
        assert (found.table.finish_s[rows] == part.finish_s).all()
        assert (found.table.replica[rows] == part.replica + 2 * index).all()
    assert found.replica_count == 3
    assert found.totals.output_tokens == trace.output_tokens.sum()
    assert found.completed == len(trace)


def test_a_pool_that_gets_no_request_stands_idle():
    given = inputs(n=200, long_share=0.0)
    split = Split(
        (SizeBand("", (1, SHORT)), SizeBand("", (101, 9999))), ((1, 0), (0, 1))
    )

    run = run_of(given, Deployment((Pool(SMALL, 16), Pool(LARGE, 1)), split=split))

    assert [pool.busy_s > 0 for pool in run.simulation.pools] == [True, False]
    assert run.judgement.attainment.share > 0.9


def test_the_page_says_what_the_mix_is_and_what_it_saves(case):
    _, _, mix = case

    sections = mix_sections(mix)

    facts = dict(sections[0].facts)
    assert f"{mix.saved_share:.2%}" in facts["mix"].replace(" %", "%")
    assert "(optimal for a model that" in facts["allocation"]
    assert "however requests are routed" in facts["no mix costs less than"]
    sentence = mix_sentence(mix)
    assert "small TP 1 and" in sentence


def test_the_page_says_why_no_mix_is_offered():
    mix = Mix(False, "because", 0.05)

    sections = mix_sections(mix)

    assert sections[0].facts == [("mix", "not offered: because")]
    assert mix_sentence(mix) == ""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"mix_gain": 0.1}, "expected --mix with it"),
        ({"mix": True, "users": 5}, "mix serves arrivals"),
        ({"mix": True, "rebalancer": "llumnix"}, "mix and rebalancer are both given"),
        ({"mix": True, "disaggregated": True}, "disaggregated and mix are both given"),
        ({"max_nodes": "H100"}, "expected GPU=NODES"),
        ({"max_nodes": "H100=-1"}, "expected GPU=NODES"),
        ({"max_nodes": "H100=1,h100=2"}, "given twice"),
    ],
)
def test_settings_that_contradict_a_mix_are_refused(given, expected):
    with pytest.raises(SettingError, match=expected):
        PlanSettings(slo=SLO, **given)


def test_a_quota_of_a_gpu_that_the_plan_does_not_look_at_is_refused():
    with pytest.raises(InputError, match="--max-nodes L4: not among the GPUs"):
        check_quota({"L4": 1}, ["H100-SXM"])


def drawn(given, rate_per_s=250.0, request_count=2000):
    """Return inputs whose requests arrive by a Poisson process."""
    load = Load(given.load.base, "poisson", rate_per_s, request_count)
    return replace(given, load=load)


def test_the_bound_of_drawn_arrivals_is_below_a_mix_of_kinds_unlike_in_speed():
    # The slow kind takes a request 20 times as long: its mix is repeated more often.
    slow = kind("slow", 2e-3, 0.1)
    given = drawn(inputs())
    plan = planned(given, (LARGE,))

    both = bound_of_mix(given, [LARGE, slow], plan.candidates)
    alone = bound_of_mix(given, [LARGE], plan.candidates)

    assert 0 < both.usd_per_h <= alone.usd_per_h
    assert alone.usd_per_h <= plan.best.cost.usd_per_h


@pytest.mark.thorough
def test_a_mix_of_drawn_arrivals_tells_what_each_pool_serves():
    given = drawn(inputs())

    _, mix = found_in(given, SMALL, LARGE)

    assert mix.offered
    assert sum(pool.share_of_requests for pool in mix.pools) == pytest.approx(1)
    of_bands = sum(band.share_of_requests * band.shares[0] for band in mix.bands)
    assert mix.pools[0].share_of_requests == pytest.approx(of_bands, abs=0.05)
    assert all(pool.slo_attainment > 0.95 for pool in mix.pools)


def test_a_size_that_no_kind_serves_is_named():
    given = inputs(n=600)
    slow = kind("slow", 1e-2, 1.0)  # a long prompt takes 20 s

    plan = planned(given, (slow,))
    mix = mix_of(given, [slow, kind("slower", 2e-2, 1.0)], *of(plan), unseen)

    assert "no kind serves requests with prompts of 1" in mix.reason


# Cases in which long prompts on either kind disturb short ones so much that what sizes
# sustain alone says one kind does: found by random cases against all mixes.
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("small", "large", "rate_per_s", "long_share"),
    [
        (kind("small", 2e-4, 1.0, 16), kind("large", 1e-4, 3.0, 8), 60, 0.5),
        (kind("small", 3e-4, 1.0, 8), kind("large", 1e-5, 3.0, 8), 100, 0.2),
        (kind("small", 1e-4, 1.0, 4), kind("large", 3e-5, 2.0, 16), 60, 0.2),
    ],
)
def test_a_mix_of_kinds_that_sizes_disturb_costs_what_the_cheapest_costs(
    small, large, rate_per_s, long_share
):
    given = inputs(rate_per_s, long_share, n=3000)

    plan, mix = found_in(given, small, large)

    cheapest = cheapest_of_all(given, small, large, plan.best.cost.usd_per_h)
    ours = mix.cost.usd_per_h if mix.offered else math.inf
    assert ours == (
        cheapest if cheapest <= 0.95 * plan.best.cost.usd_per_h else math.inf
    )


def test_a_search_that_is_interrupted_answers_with_the_mix_it_knows(case):
    given, plan, whole = case
    dividing = []

    def progress(step, share=None):
        dividing.extend([step] if step.startswith("dividing") else [])

    stopped = replace(given, stopped=lambda: bool(dividing))
    with pytest.warns(CapplanWarning, match="interrupted: a mix that was not tried"):
        mix = mix_of(stopped, [SMALL, LARGE], *of(plan), progress)

    assert mix.offered
    assert mix.cost.usd_per_h >= whole.cost.usd_per_h


@pytest.mark.thorough
def test_many_classes_have_fewer_bands_each():
    prompts = np.arange(1, 6001) % 500 + 1
    trace = Trace(
        prompts,
        np.full(6000, 11),
        np.arange(6000) * 0.01,
        request_class=np.arange(6000) % 20,
        class_names=tuple(f"c{k}" for k in range(20)),
    )
    given = replace(inputs(n=10), load=Load(trace, None))
    plan = planned(given, (SMALL,))

    mix = mix_of(given, [SMALL, kind("slower", 2e-4, 3.0)], *of(plan), unseen)

    # 20 classes of 300 requests: cut once at most, and 60 are more than 48.
    assert {len(row.requests_per_s) for row in mix.capacities} == {20}
