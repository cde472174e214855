"""The headline is the best that is measured; the uncertain one stands beside it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.fleet.price import Price
from capplan.latency.contract import linear_tables
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.prospects import Prospect, price_of
from capplan.planning.size.tunings import tunings
from capplan.report import first_screen, uncertain
from tests.deployments import candidate_of, rated

TRAFFIC = "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=1500"
ASKED = {"workload": TRAFFIC, "rate": 40.0, "slo": ("ttft=1s,tpot=40ms",)}


def configuration(how="kernel-sum", usd=2.0, **price):
    """A configuration whose profile was obtained in a way."""
    tables = linear_tables(10e-3, 1e-4, 0, 0, 0, max_batch=8, max_tokens=64)
    profile = SimpleNamespace(
        how=how, kernels_from=None, engine_time=None, is_load_tested=False
    )
    cost = Price(usd, "a source", **price)
    return Configuration(EngineSettings(), tables, "GPU", 1, cost, profile)


@pytest.mark.parametrize(
    ("share", "doubts"),
    [
        ((0.9, 1.07), ()),
        ((0.6, 1.19), ()),
        ((0.6, 1.2), ("no benchmark of this kind of engine backs it",)),
        ((0.27, 1.0), ("no benchmark of this kind of engine backs it",)),
        (None, ()),
    ],
)
def test_a_range_that_spans_a_factor_of_two_is_a_doubt(share, doubts):
    of = rated(candidate_of(configuration(), 1), share).configuration

    assert of.doubts == doubts
    assert of.is_estimated is bool(doubts)


def test_a_guessed_price_and_an_estimated_latency_are_doubts():
    guessed = configuration("estimate", is_guess=True)

    assert guessed.doubts == ("its latency is an estimate", "its price is a guess")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_engines_that_differ_by_a_factor_of_two_do_not_take_the_headline():
    """Llama FP8 on MI300X is cheaper here, with four times as many replicas or not."""
    prices = {"MI300X": "1", "H100-SXM": "4"}
    result = plan(
        PlanSettings(
            **ASKED, llm="Llama-3.3-70B-FP8", gpu="MI300X,H100-SXM", tp=2, price=prices
        )
    )

    best, beside = result.best, result.best_estimated
    assert (best.gpu, beside.gpu) == ("H100-SXM", "MI300X")
    assert best.configuration.doubts == ()
    assert beside.configuration.doubts
    assert beside.cost.usd_per_h < best.cost.usd_per_h
    assert result.candidates[0] is best
    assert result.best_by_gpus is best


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_a_guessed_price_does_not_take_the_headline(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "gpu,usd_per_gpu_h,as_of,basis\n"
        "H100-SXM,4,2026-11-01,list\nH200-SXM,1,2026-11-01,guess\n"
    )
    asked = {**ASKED, "llm": "Llama-3.1-8B", "tp": 1, "as_of": "2026-11-20"}

    both = plan(PlanSettings(**asked, gpu="H100-SXM,H200-SXM", prices=str(prices)))
    alone = plan(PlanSettings(**asked, gpu="H200-SXM", prices=str(prices)))

    assert (both.best.gpu, both.best_estimated.gpu) == ("H100-SXM", "H200-SXM")
    assert both.best_estimated.configuration.doubts == ("its price is a guess",)
    assert both.best_estimated.configuration.price.is_guess
    # With nothing else to answer, the headline says what it rests on.
    assert alone.best.gpu == "H200-SXM"
    assert uncertain.doubts(alone.best).startswith("its price is a guess")


def test_budgets_are_tuned_against_the_best_of_those_without_doubts():
    """A measured candidate is not held against the count of an uncertain one."""

    sure, doubt = configuration(usd=4.0), configuration("estimate", usd=1.0)
    sure, doubt = replace(sure, gpu="sure"), replace(doubt, gpu="doubt")
    done = [candidate_of(sure, 6), candidate_of(doubt, 2)]
    bound = SimpleNamespace(replica_count=1)
    simulated = [Prospect(of, bound) for of in (sure, doubt)]
    inputs = SimpleNamespace(routers=("jsq",))

    most = {
        tuning.prospect.configuration.gpu: tuning.max_replicas
        for tuning in tunings(inputs, simulated, done)
    }

    assert most == {"sure": 5, "doubt": 1}


def test_the_uncertain_one_is_said_with_its_cautious_count():
    sure, doubt = configuration(), configuration("estimate")

    estimate = rated(candidate_of(doubt, 5), (0.52, 1.0))
    assert uncertain.doubts(estimate) == (
        "its latency is an estimate: load-test before you buy"
    )
    assert estimate.cautious_replica_count == 10
    assert estimate.replica_count_range is None
    assert first_screen.sure(estimate).text == (
        "estimated: up to 10 GPUs · for 9 of 10 engines, $14,600 a month · its latency "
        "is an estimate"
    )
    # A range of a factor of two is none.
    unmeasured = rated(candidate_of(sure, 5), (0.27, 1.0))
    assert uncertain.doubts(unmeasured) == (
        "no benchmark of this kind of engine backs it: load-test before you buy"
    )
    measured = rated(candidate_of(sure, 5), (0.9, 1.0))
    assert uncertain.doubts(measured) == ""
    assert measured.cautious is None


def test_those_in_doubt_are_ranked_by_the_fleet_that_nine_of_ten_engines_need():
    """Fewer replicas of the median are dearer where engines differ by more."""
    near, far = configuration("estimate"), configuration("estimate")
    wide, narrow = (
        rated(candidate_of(of, count), (share, 2.0))
        for of, count, share in ((far, 4, 0.25), (near, 6, 0.75))
    )

    assert price_of(wide) == (32.0, 16)
    assert price_of(narrow) == (16.0, 8)
    assert price_of(candidate_of(configuration(), 4)) == (8.0, 4)
    # Narrow ones are not priced up; wide ones are, measured or not.
    assert price_of(rated(candidate_of(configuration(), 4), (0.7, 1.3))) == (8.0, 4)
    measured = rated(candidate_of(configuration(), 4), (0.5, 1.3))
    vars(measured.configuration)["is_measured"] = True
    assert price_of(measured) == (16.0, 8)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_what_was_pruned_names_the_count_that_stands_in_the_table():
    """A smaller token budget lowers the best after the others were left out."""
    slo = ("ttft=1.5s,tpot=25ms",)
    load = "synthetic:prompt=2000,output=lognormal(median=150,sigma=0.6),n=400"
    asked = {"workload": load, "rate": 20.0, "slo": slo, "llm": "Llama-3.1-8B"}
    asked |= {"engine": "vllm@0.12"}
    gpus = {"gpu": "H100-SXM,H200-SXM", "tp": "1,2,4,8"}
    prices = {"price": {"H100-SXM": "2", "H200-SXM": "4"}}

    tuned = plan(PlanSettings(**asked, **gpus, **prices))

    counts = {f"{row.gpu} × TP {row.tp}": row.gpu_count for row in tuned.candidates}
    named = [
        row.pruned_reason.rpartition("; ")[2].split(" needs ")
        for row in tuned.candidates
        if row.status == "pruned" and "; " in row.pruned_reason
    ]
    assert named
    assert all(counts[name] == int(count) for name, count in named)
    # The case is one: the default budget alone needs more.
    alone = {"gpu": tuned.best.gpu, "tp": tuned.best.tp}
    price = {"price": {tuned.best.gpu: "2"}}
    untuned = plan(PlanSettings(**asked, **alone, **price, tune=False))
    assert untuned.best.gpu_count > tuned.best.gpu_count
