"""Mixes of replicas with ranks, whole experts and stages."""

import numpy as np
import pytest

from capplan.deployment.pools import Deployment
from capplan.deployment.split import SizeBand, Split
from capplan.planning.configure.configuration import Configuration, configurations
from capplan.planning.evaluate.inputs import PlanInputs, unseen
from capplan.planning.load.load import Load
from capplan.planning.mix.fleet import MixFleet
from capplan.planning.mix.mix import mix_of
from capplan.planning.mix.result import Kind
from capplan.planning.prove.proof import bound_of
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.candidates import evaluate
from capplan.planning.size.prospects import Prospect, feasible_of, price_of
from capplan.report.pages.mix import mix_sections, mix_sentence
from capplan.report.render.json_text import plain
from capplan.simulator.simulate import simulate
from capplan.workload.slo import parse_slo
from capplan.workload.trace import MAX_TOKENS, Trace

pytestmark = pytest.mark.filterwarnings("ignore")
SLO = "ttft=5s,tpot=100ms"
R1 = {"llm": "DeepSeek-R1", "gpu": "B200", "slo": SLO, "mix": True, "mix_gain": 0}
SHORT, LONG = 200, 8000
BANDS = (SizeBand("", (1, SHORT), None), SizeBand("", (SHORT + 1, MAX_TOKENS), None))


def able(**settings) -> dict[str, Configuration]:
    found = configurations(PlanSettings(**{**R1, **settings}))
    return {str(row.layout): row for row in found if isinstance(row, Configuration)}


def inputs(rate_per_s, n, **settings):
    rng = np.random.default_rng(3)
    prompts = np.where(rng.random(n) < 0.2, LONG, SHORT)
    trace = Trace(
        prompts, np.full(n, 60), np.cumsum(rng.exponential(1 / rate_per_s, n))
    )
    given = PlanSettings(**{**R1, **settings})
    return PlanInputs(given, Load(trace, None), parse_slo(SLO), ("jsq",), None)


def test_kinds_of_one_gpu_are_told_apart_by_their_layouts():
    kinds = {name: Kind.of(row) for name, row in able(tp=()).items()}

    assert {kind.name for kind in kinds.values()} >= {
        "B200-SXM × TP 8",
        "B200-SXM × TP 8, EP 8",
        "B200-SXM × DP 8 × TP 1, EP 8",
    }
    assert vars(kinds["dp8-ep8"]) == {
        "gpu": "B200-SXM",
        "tp": 1,
        "layout": "dp8-ep8",
        "gpus_per_replica": 8,
    }
    stages = able(llm="Llama-3.1-70B", gpu="H100-SXM", tp=2, pipeline_parallel_size=2)
    assert Kind.of(stages["tp2-pp2"]).gpus_per_replica == 4


@pytest.mark.parametrize("pair", [("dp8", "tp8-ep8"), ("dp8", "dp8-ep8")])
def test_each_pool_of_a_mix_serves_as_it_does_alone(pair):
    kinds = [able()[name] for name in pair]
    given, split = inputs(20.0, 400), Split(BANDS, ((1, 0), (1, 1)))
    counts = (2, 3)

    fleet = MixFleet(given, kinds, split, np.inf)
    fleet.meets(counts)
    run = fleet.runs[counts]

    trace, times = given.trace, run.simulation.table
    pool_of = split.pools_of(trace)
    assert run.deployment.gpu_count == 8 * sum(counts)
    for index, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        rows = np.flatnonzero(pool_of == index)
        alone = simulate(
            trace.select(rows), Deployment.of(kind, count), slo=given.slo, seed=0
        ).table
        assert len(rows) > 20
        assert np.array_equal(times.ttft_s[rows], alone.ttft_s)
        assert np.array_equal(times.finish_s[rows], alone.finish_s)


@pytest.mark.slow
def test_a_mix_of_layouts_costs_no_more_than_the_best_of_them_and_is_named():
    kinds = [able()[name] for name in ("dp8", "tp8-ep8")]
    given, rows = inputs(30.0, 1500), []
    for kind in kinds:
        bound, sample = bound_of(given, kind)
        rows.append(evaluate(given, Prospect(kind, bound, sample))[0])
    best = min(feasible_of(rows), key=price_of)

    mix = mix_of(given, kinds, rows, (best, None), unseen)

    assert mix.offered
    assert mix.cost.usd_per_h <= best.cost.usd_per_h
    assert mix.bound.usd_per_h <= mix.cost.usd_per_h
    assert mix.slo_attainment >= 0.99
    assert [pool.layout for pool in mix.pools] == ["dp8", "tp8-ep8"]
    for pool in mix.pools:
        assert pool.gpu_count == pool.gpus_per_replica * pool.replica_count
    first, second = (pool.launch.line for pool in mix.pools)
    assert "--data-parallel-size 8" in first
    assert "--enable-expert-parallel" in second
    headings = [s.heading for s in mix_sections(mix)]
    assert "Start each replica of B200-SXM × DP 8 × TP 1 with" in headings
    assert "B200-SXM TP 8, EP 8" in mix_sentence(mix)
    assert plain(mix)["pools"][1]["layout"] == "tp8-ep8"
