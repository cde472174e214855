"""A plan is the fewest replicas, with the count below failing and a bound beside."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report.columns import plural
from tests.documents import plan_json

SETTINGS = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=3000",
    "rate": 60.0,
    "llm": "Llama-3.1-8B",
    "gpu": ("H100-SXM", "A100-80GB-SXM"),
    "tp": (1, 2),
    "slo": ("ttft=500ms,tpot=12ms",),
    "engine": "vllm@0.12",
    "price": {"H100-SXM": "2.5", "A100-80GB-SXM": "1.2"},
}

ALONE = {"gpu": ("H100-SXM",), "tp": (1,), "price": {"H100-SXM": "2.5"}}


@pytest.fixture(scope="module")
def found():
    return plan(PlanSettings(**SETTINGS))


def test_best_is_the_cheapest_feasible_candidate(found):
    feasible = [one for one in found.candidates if one.status == "feasible"]

    assert found.status == "feasible"
    assert found.best.cost.usd_per_h == min(one.cost.usd_per_h for one in feasible)
    assert found.best_by_gpus.gpu_count == min(one.gpu_count for one in feasible)
    assert found.candidates[0] is found.best


def test_answer_passes_and_the_count_below_is_shown_failing(found):
    for one in found.candidates:
        if one.status != "feasible":
            continue
        probes = {probe.replica_count: probe for probe in one.probes}

        assert probes[one.replica_count].meets
        assert one.run.judgement.attainment.share >= found.attainment
        if one.replica_count > 1:
            assert not probes[one.replica_count - 1].meets


def test_no_answer_is_below_its_bound(found):
    for one in found.candidates:
        if one.status == "feasible":
            assert one.lower_bound_gpu_count <= one.gpu_count
            assert one.lower_bound_gpu_count % one.tp == 0


@pytest.mark.thorough
def test_pruned_candidates_could_win_neither_by_cost_nor_by_gpus():
    found = plan(PlanSettings(**{**SETTINGS, "rate": 5.0, "tp": (1, 2, 4, 8)}))
    pruned = [one for one in found.candidates if one.status == "pruned"]

    assert pruned
    for one in pruned:
        least_usd = one.lower_bound_gpu_count * one.configuration.price.usd_per_gpu_h
        assert found.best.cost.usd_per_h <= least_usd
        assert found.best_by_gpus.gpu_count <= one.lower_bound_gpu_count
        least = plural(one.lower_bound_gpu_count, "GPU")
        assert one.pruned_reason.startswith(f"needs at least {least}, $")


def test_costs_are_gpus_times_price(found):
    best = found.best
    served = best.run.simulation.totals  # a sample: its means are its own
    requests_per_h = served.rate_per_s * 3600
    new_tokens = served.mean_prompt_tokens * (1 - best.cached_share)

    assert best.cost.usd_per_h == pytest.approx(
        best.gpu_count * best.configuration.price.usd_per_gpu_h
    )
    inputs = new_tokens * best.cost.usd_per_million_input_tokens
    outputs = served.mean_output_tokens * best.cost.usd_per_million_output_tokens
    usd_per_h = requests_per_h * (inputs + outputs) / 1e6
    assert usd_per_h == pytest.approx(best.cost.usd_per_h)
    assert inputs / (inputs + outputs) == pytest.approx(best.run.work.prompt_share)


@pytest.mark.thorough
def test_same_request_gives_the_same_bytes(found):
    again = plan(PlanSettings(**SETTINGS))

    assert plan_json(replace(again, runtime_s=0)) == plan_json(
        replace(found, runtime_s=0)
    )


@pytest.mark.parametrize(("rate", "one_is_enough"), [(16.0, True), (23.0, False)])
def test_one_h100_serves_16_but_not_23_requests_per_s(rate, one_is_enough):
    # 1,024 prompt and 256 output tokens, p99 TPOT under 30 ms, Poisson arrivals:
    # a tool that plans at the steady state alone, by kernels alone, says one GPU for
    # 23/s as well.
    answer = plan(
        PlanSettings(
            workload="synthetic:prompt=1024,output=256",
            rate=rate,
            llm="Llama-3.1-8B",
            gpu="H100-SXM",
            tp=1,
            slo="tpot=30ms",
            tune=False,
            engine_overhead="none",
        )
    )

    assert (answer.best.gpu_count == 1) is one_is_enough
    alone = next(p for p in answer.best.probes if p.replica_count == 1)
    assert alone.meets is one_is_enough
    assert (alone.utilisation < 1) is one_is_enough


@pytest.mark.parametrize("limit", ["tpot", "tbt"])
def test_slo_below_the_unbatched_latency_is_an_answer(limit):
    answer = plan(PlanSettings(**{**SETTINGS, "slo": (f"ttft=500ms,{limit}=2ms",)}))

    assert answer.status == "infeasible"
    assert answer.best is None
    assert f"{limit.upper()} takes 7" in answer.infeasible_reason
    assert "with each request alone" in answer.infeasible_reason


def test_llm_that_does_not_fit_is_excluded_with_its_numbers():
    answer = plan(
        PlanSettings(
            workload="synthetic:prompt=100,output=20,n=500",
            rate=2,
            llm="Llama-3.1-70B",
            gpu="H100-SXM",
            tp="1,4",
            slo="ttft=5s",
        )
    )

    status = {one.tp: one for one in answer.candidates}
    assert status[1].status == "infeasible"
    assert "does not fit" in status[1].infeasible_reason
    assert status[4].status == "feasible"


def oversized_trace(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{k / 10},100,20" for k in range(2000)]
    rows[3] = "0.3,900000,20"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    return path


def test_request_that_no_replica_can_hold_is_named(tmp_path):
    asked = {**SETTINGS, "workload": None, "rate": None}

    with pytest.raises(InputError, match=r"1 of 2,000 requests fit no replica.*row 4"):
        plan(PlanSettings(**asked, trace=oversized_trace(tmp_path)))


def test_request_that_no_replica_can_hold_is_dropped_when_asked(tmp_path):
    asked = {**SETTINGS, "workload": None, "rate": None, "extend": False}

    answer = plan(
        PlanSettings(**asked, trace=oversized_trace(tmp_path), drop_oversized=True)
    )

    assert answer.request_count == 1999
    assert any("dropped" in text for text in answer.warnings)


@pytest.mark.thorough
def test_few_lengths_are_drawn_again_in_samples_long_enough():
    settings = {**SETTINGS, "workload": "synthetic:prompt=300,output=80,n=50"}

    result = plan(PlanSettings(**settings))

    assert result.request_count >= 1000
    assert result.best.run.judgement.sample_count >= 3


def test_few_requests_are_left_alone_when_asked():
    settings = {**SETTINGS, "workload": "synthetic:prompt=300,output=80,n=50"}

    result = plan(PlanSettings(**settings, extend=False))

    assert result.request_count == 50
    assert result.best.run.judgement.sample_count == 1
    assert any("interval" in warning for warning in result.warnings)


def test_latency_given_outright_needs_no_profile():
    answer = plan(
        PlanSettings(
            **SETTINGS
            | {"gpu": ("L4",), "tp": (1,), "price": {"L4": "0.7"}, "engine": None},
            latency_ms="7,0.025,6e-8,0.02,4e-6",
            kv_blocks=20_000,
        )
    )

    assert answer.best.configuration.engine.kv_blocks == 20_000
    assert "from --latency-ms" in answer.best.configuration.note


@pytest.mark.thorough
def test_every_router_plans_and_none_beats_the_bound():
    from capplan.simulator.routers import ROUTERS
    from capplan.simulator.routers import router as find_router

    counts = {}
    for router in ROUTERS:
        if find_router(router).RULES.keyed:
            continue  # these requests are of no session
        asked = {
            **SETTINGS,
            "gpu": ("H100-SXM",),
            "tp": (1,),
            "price": {"H100-SXM": "2.5"},
            "router": router,
            "rate": 20.0,
        }
        counts[router] = plan(PlanSettings(**asked)).best

    assert all(one.gpu_count >= one.lower_bound_gpu_count for one in counts.values())


@pytest.mark.thorough
def test_pessimistic_latency_never_needs_fewer_gpus(found):
    slower = plan(PlanSettings(**SETTINGS, latency_quantile=0.99))

    assert slower.best_by_gpus.gpu_count >= found.best_by_gpus.gpu_count


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slo": ()}, "no SLO"),
        ({"workload": None}, "no requests"),
        ({"rate": None}, "no arrival times"),
        ({"llm": "Llama-9"}, "Llama-3"),
        ({"gpu": ("H10",)}, "H100"),
        ({"router": "fastest"}, "best-fit"),
        ({"router": "best-fit:theta=7"}, "theta"),
        ({"executor": "cloud"}, "local"),
        ({"profiles": "no/such/folder"}, "no such file or folder"),
        ({"llm": "Llama-3.1-405B"}, "does not fit"),
        ({"max_num_batched_tokens": 100, "max_num_seqs": 200}, "max_num_seqs"),
    ],
)
def test_wrong_requests_are_one_clear_line(change, message):
    with pytest.raises(InputError, match=message) as caught:
        plan(PlanSettings(**{**SETTINGS, **change}))

    assert "\n" not in str(caught.value)


def test_series_and_quantiles_belong_to_the_answer(found):
    best = found.best

    assert np.all(np.diff(best.run.judgement.quantiles_s["ttft_s"]) >= 0)
    series = best.run.simulation.series
    assert np.all((series.kv_share >= 0) & (series.kv_share <= 1))
    assert series.busy_share.max() <= 1


@cache
def solved(solver):
    return plan(PlanSettings(**{**SETTINGS, **ALONE, "rate": 150.0}, solver=solver))


@pytest.mark.thorough
@pytest.mark.parametrize("solver", ["mip", "highs", "simulated"])
def test_every_solver_plans_within_the_same_bound(solver):
    result = solved(solver)

    assert result.best.gpu_count >= result.best.lower_bound_gpu_count
    assert result.router == result.best.run.deployment.router != ""
    assert (result.placement is not None) is (solver in ("mip", "highs"))


def test_mip_tries_every_heuristic_and_is_no_worse_than_one():
    exact = solved("mip")
    jsq = plan(PlanSettings(**{**SETTINGS, **ALONE, "rate": 150.0}, router="jsq"))

    assert exact.best.gpu_count <= jsq.best.gpu_count
    assert exact.placement.status == "optimal"
    assert exact.placement.lower_bound <= exact.placement.replica_count
    assert exact.placement.replica_count <= exact.placement.best_fit_count


def test_router_that_leaves_new_replicas_idle_gives_up_and_says_so():
    asked = {
        **SETTINGS,
        **ALONE,
        "rate": 300.0,
    }

    answer = plan(PlanSettings(**asked, router="best-fit:theta=1"))

    assert answer.status == "infeasible"
    assert "more do not help" in answer.infeasible_reason


def test_unknown_solver_names_the_known_ones():
    with pytest.raises(InputError, match=r"mip.*cp-sat.*scip.*highs"):
        plan(PlanSettings(**SETTINGS, solver="gurobi"))


def test_a_router_as_solver_is_told_where_it_belongs():
    with pytest.raises(InputError, match="give --router jsq"):
        plan(PlanSettings(**SETTINGS, solver="jsq"))


@pytest.mark.slow
def test_predicted_answers_are_what_routers_see_but_not_what_is_served():
    asked = {
        **SETTINGS,
        **ALONE,
        "router": "best-fit",
    }

    oracle = plan(PlanSettings(**asked, predictor="oracle"))
    mean = plan(PlanSettings(**asked, predictor="aladdin"))

    assert mean.mean_output_tokens == oracle.mean_output_tokens
    assert any("aladdin" in each.source for each in mean.assumptions)
    with pytest.raises(InputError, match="oracle"):
        plan(PlanSettings(**asked, predictor="astrology"))


@pytest.mark.thorough
def test_tuned_engine_is_proven_with_its_own_settings():
    import json

    from capplan.bounds.certificate import check_document
    from capplan.planning.prove.proof import reproduce

    asked = {
        **SETTINGS,
        **ALONE,
        "rate": 150.0,
    }
    asked["workload"] = "sharegpt"
    asked["slo"] = ("ttft=1s,tpot=15ms",)

    plain = plan(PlanSettings(**asked, tune=False)).best
    answer = plan(PlanSettings(**asked))

    tuned = answer.best
    assert tuned.gpu_count < plain.gpu_count
    budgets = [
        row.configuration.engine.max_num_batched_tokens for row in (tuned, plain)
    ]
    assert budgets[0] < budgets[1]
    below = [p for p in tuned.probes if p.replica_count == tuned.replica_count - 1]
    assert not below[0].meets
    assert check_document(json.loads(plan_json(answer)), reproduce) == []


@pytest.mark.thorough
def test_front_end_overhead_is_part_of_ttft():
    asked = {**SETTINGS, **ALONE}
    slower = plan(PlanSettings(**asked, api_overhead_ms=100.0))
    at_once = plan(PlanSettings(**asked, api_overhead_ms=0.0))

    same = {(one.gpu, one.tp): one for one in slower.candidates}
    best = at_once.best
    other = same[(best.gpu, best.tp)]
    if other.replica_count == best.replica_count:
        assert other.run.judgement.p99_s("ttft_s") == pytest.approx(
            best.run.judgement.p99_s("ttft_s") + 0.1, rel=0.05
        )
    else:
        assert other.replica_count > best.replica_count


@pytest.mark.thorough
def test_requests_too_slow_alone_are_left_out_of_the_exact_placement(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{k / 50},{60_000 if k == 700 else 200},40" for k in range(2000)]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    asked = {**SETTINGS, "workload": None, "rate": None, "extend": False}
    asked |= ALONE

    answer = plan(PlanSettings(**asked, trace=path, solver="mip"))

    assert answer.status == "feasible"
    assert answer.placement.left_out == 1
    assert "1 too slow alone left out" in str(answer.placement)


@pytest.mark.thorough
def test_the_exact_placement_leaves_out_what_its_own_line_of_prefill_does(tmp_path):
    # Which prompts keep the TTFT differs between the times and the line through them.
    path = tmp_path / "trace.csv"
    prompts = [*range(1, 401), 299, 301, 303]
    rows = [f"{k / 60},{prompt},10" for k, prompt in enumerate(prompts)]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    own = {"latency_ms": (8.0, 0.1, 0.0, 0.1, 0.0), "kv_blocks": 40, "engine": None}
    own |= {"max_num_seqs": 4, "max_num_batched_tokens": 64, "attainment": 0.6}

    for limit_ms in range(40, 60):
        slo = (f"ttft={limit_ms}ms",)
        asked = SETTINGS | ALONE | own | {"workload": None, "rate": None, "slo": slo}
        answer = plan(PlanSettings(**asked, trace=path, solver="mip", extend=False))

        assert answer.best is None or answer.placement is not None


@pytest.mark.thorough
@pytest.mark.parametrize("calls", [1, 3, 10, 30, 100, 10_000])
def test_an_interrupted_plan_is_what_was_decided_by_then(found, calls):
    left = [calls]

    def stopped():
        left[0] -= 1
        return left[0] < 0

    partial = plan(PlanSettings(**SETTINGS), stopped=stopped)

    whole = {(row.gpu, row.tp): row for row in found.candidates}
    for row in partial.candidates:
        complete = whole[row.gpu, row.tp]
        if row.status == "feasible":
            assert row.decided or row.replica_count >= complete.replica_count
            assert row.probes[-1].meets
        elif row.status == "interrupted":
            assert partial.interrupted
            assert "Ctrl-C" in row.pruned_reason
        else:
            assert row.status == complete.status
    assert partial.interrupted == (left[0] < 0)
    assert partial.interrupted == any(
        "interrupted" in text for text in partial.warnings
    )
    if not partial.interrupted:
        assert plan_json(partial) == plan_json(found)
    if partial.best is None:
        assert partial.status == "interrupted"
        assert "Ctrl-C" in partial.infeasible_reason


@pytest.mark.thorough
def test_what_prefix_caching_is_worth_is_told_where_prefixes_are_shared(found):
    shared = {
        "workload": "synthetic:prompt=2000,output=20,n=1000",
        "slo": ("ttft=300ms,tpot=30ms",),
        "rate": 80.0,
    }
    with_prefix = SETTINGS | ALONE | shared | {"shared_prefix": 1600}

    result = plan(PlanSettings(**with_prefix))
    without = plan(PlanSettings(**with_prefix, prefix_caching=False))

    assert result.best.cached_share == pytest.approx(0.8, abs=0.01)
    assert result.gpu_count_without_prefix_caching == without.best.gpu_count
    assert result.best.gpu_count < without.best.gpu_count
    assert without.gpu_count_without_prefix_caching is None
    assert found.gpu_count_without_prefix_caching is None
