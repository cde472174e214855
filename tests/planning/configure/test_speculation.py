"""Speculative decoding in settings, launch line, bound and plan."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from capplan.bounds.lower_bound import lower_bound
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.speculation import Speculation
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.planning.compare.systems import resolve
from capplan.planning.configure.configuration import configurations, given_configuration
from capplan.planning.configure.launch import launch
from capplan.planning.configure.scheduling import widest_iterations
from capplan.planning.load.unbatched import unbatched
from capplan.planning.plan.plan import plan
from capplan.planning.plan.speculation_worth import drafts_worth
from capplan.planning.prove import proof
from capplan.planning.prove.proof import _as_iterations
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.report import drafts
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

MTP3 = '{"method":"mtp","num_speculative_tokens":3}'
EAGLE2 = '{"method":"eagle3","num_speculative_tokens":2}'
GIVEN = {
    "workload": "synthetic:prompt=300,output=80,n=300",
    "rate": 5,
    "slo": "ttft=2s",
}
TIMES = {"latency_ms": "6,0.018,0,0.018,0.00005", "kv_blocks": 5000}


def built(llm="DeepSeek-R1", gpu="H200", tp=8, **given):
    settings = PlanSettings(llm=llm, gpu=gpu, tp=tp, **{**GIVEN, **given})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found,) = configurations(settings)
    assert isinstance(found, Configuration), found.reason
    return settings, found


def test_drafts_of_a_family_without_a_table_are_those_of_v4_and_assumed():
    _, found = built(speculative_config=MTP3)
    speculation = found.engine.speculation

    assert speculation.rates == pytest.approx((0.79, 0.48, 0.22))
    assert speculation.how == "assumed"
    assert "not DeepSeek-R1" in speculation.source


def test_the_draft_takes_weights_and_kv_from_the_blocks():
    _, plain = built()
    _, drafting = built(speculative_config=MTP3)

    fewer = plain.engine.kv_blocks - drafting.engine.kv_blocks
    assert fewer > 0
    # 11.5 GB of weights over eight GPUs, and one of 62 layers of KV.
    block_bytes = plain.engine.kv_block_bytes
    freed = fewer * block_bytes - plain.engine.kv_blocks * block_bytes / 62
    assert freed == pytest.approx(11.5e9 / 8, rel=0.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"speculative_config": "mtp"}, "is not JSON"),
        ({"speculative_config": "3"}, "expected"),
        ({"speculative_config": '{"method":"medusa"}'}, "expected one of mtp, eagle"),
        ({"speculative_config": '{"method":"mtp","num_tokens":3}'}, "num_tokens"),
        (
            {"speculative_config": '{"method":"mtp","num_speculative_tokens":9}'},
            "expected 1 to 8",
        ),
        (
            {"speculative_config": '{"method":"mtp","num_speculative_tokens":true}'},
            "expected 1 to 8",
        ),
        (
            {
                "speculative_config": json.dumps(
                    {
                        "method": "mtp",
                        "num_speculative_tokens_per_batch_size": [[1, 16, 3]],
                    }
                )
            },
            "would not be known at its arrival",
        ),
        ({"speculative_config": EAGLE2}, "no acceptance of DeepSeek-R1 with eagle3"),
        (
            {"speculative_config": MTP3, "llm": "Llama-3.1-8B", "gpu": "H100", "tp": 1},
            "no layer for multi-token prediction",
        ),
        (
            {"speculative_config": MTP3, "acceptance_rates": "0.5,0.6,0.1"},
            "expected none above the one before",
        ),
        (
            {"speculative_config": MTP3, "acceptance_rates": "1.79,2.27,2.49"},
            "rates 0.79, 0.48, 0.22",
        ),
        (
            {"speculative_config": MTP3, "acceptance_rates": "0.8,-0.1,-0.2"},
            r"in \[0, 1\]",
        ),
        ({"speculative_config": MTP3, "acceptance_rates": "0.8"}, "expected 3"),
        ({"acceptance_rates": "0.8"}, "expected --speculative-config"),
        ({"draft_ms": 0.3}, "expected --speculative-config"),
        (
            {"speculative_config": MTP3, "scheduler": "orca"},
            "scheduler orca is not modelled",
        ),
        (
            {
                "speculative_config": json.dumps(
                    {
                        "method": "mtp",
                        "num_speculative_tokens": 2,
                        "rejection_sample_method": "synthetic",
                        "synthetic_acceptance_length": 3.5,
                    }
                )
            },
            "expected 1 to 3",
        ),
        (
            {
                "speculative_config": json.dumps(
                    {
                        "method": "mtp",
                        "num_speculative_tokens": 2,
                        "synthetic_acceptance_length": 2,
                    }
                )
            },
            "rejection_sample_method synthetic",
        ),
        (
            {
                "speculative_config": json.dumps(
                    {
                        "method": "mtp",
                        "num_speculative_tokens": 2,
                        "rejection_sample_method": "synthetic",
                        "synthetic_acceptance_rates": [0.9],
                    }
                )
            },
            "expected 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_be_right(given, message):
    with pytest.raises(InputError, match=message):
        built(**given)


def test_without_an_llm_the_time_of_the_draft_is_to_be_given():
    given = {"speculative_config": MTP3, "acceptance_rates": "0.8,0.5,0.2", **TIMES}

    with pytest.raises(InputError, match="--draft-ms"):
        given_configuration(SimulateSettings(**GIVEN, **given))
    found = given_configuration(SimulateSettings(**GIVEN, **given, draft_ms=0.3))

    assert found.engine.speculation.draft_s == pytest.approx(3e-4)


@pytest.mark.parametrize(("seats", "warned"), [(64, 0), (65, 1), (128, 1)])
def test_seats_that_verify_more_than_the_budget_are_warned_of(seats, warned):
    settings = PlanSettings(
        llm="DeepSeek-R1",
        gpu="H200",
        tp=8,
        max_num_batched_tokens=256,
        max_num_seqs=seats,
        speculative_config=MTP3,
        **GIVEN,
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        list(configurations(settings))

    said = [str(each.message) for each in told]
    assert sum("max_num_seqs of at most 64" in text for text in said) == warned


def test_a_scenario_may_write_the_drafts_as_a_mapping():
    settings = SimulateSettings(**GIVEN, speculative_config=json.loads(MTP3))

    assert json.loads(settings.speculative_config) == json.loads(MTP3)


def test_the_launch_line_starts_the_drafts_that_were_planned():
    settings, found = built(
        "Llama-3.1-8B",
        "H100",
        1,
        speculative_config='{"method":"eagle3","model":"org/draft",'
        '"num_speculative_tokens":2}',
        acceptance_rates="0.7,0.4",
    )

    given = launch(found, settings).arguments["speculative_config"]

    assert given == {
        "method": "eagle3",
        "model": "org/draft",
        "num_speculative_tokens": 2,
    }


def test_a_draft_of_its_own_that_is_not_named_is_noted():
    settings, found = built(
        "Llama-3.1-8B",
        "H100",
        1,
        speculative_config=EAGLE2,
        acceptance_rates="0.7,0.4",
    )

    assert "name the draft" in launch(found, settings).notes[-1]


@pytest.mark.parametrize("seed", range(60))
def test_no_schedule_needs_fewer_replicas_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 120))
    trace = Trace(
        rng.integers(1, 60, n),
        rng.integers(1, 50, n),
        np.sort(rng.uniform(0, rng.uniform(0.05, 2), n)),
    )
    k = int(rng.integers(1, 4))
    speculation = Speculation(
        "mtp",
        tuple(np.sort(rng.random(k))[::-1].tolist()),
        draft_share=float(rng.choice([0.0, 0.05])),
    )
    engine = EngineSettings(
        max_num_batched_tokens=128,
        max_num_seqs=int(rng.integers(1, 33)),
        block_size=4,
        kv_blocks=int(rng.integers(40, 400)),
        async_scheduling=bool(rng.random() < 0.5),
        speculation=speculation,
    )
    plain = linear_tables(
        rng.uniform(1e-3, 8e-3),
        rng.uniform(1e-5, 3e-4),
        0,
        rng.uniform(1e-5, 6e-4),
        rng.uniform(0, 2e-6),
        max_batch=32,
        max_tokens=128,
    )
    slo = RequestSlo(ttft_s=rng.uniform(0.02, 0.6), tpot_s=rng.uniform(2e-3, 4e-2))
    widest, tables = widest_iterations(engine, plain)
    outputs, gaps_s = _as_iterations(
        widest, trace.output_tokens, np.full(n, slo.tpot_s)
    )
    endless = np.full(n, np.inf)
    replicas = int(rng.integers(1, 5))
    times = simulate(
        trace, fleet_of(plain, engine, replicas), seed=seed, slo=Slo(slo)
    ).times
    met = (times.ttft_s <= slo.ttft_s) & (times.tpot_s <= slo.tpot_s)
    if not met.any():
        return

    # The schedule attains its own share: so many replicas are enough for it.
    columns = {
        "arrival_s": trace.arrival_s,
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": outputs,
        "ttft_s": np.full(n, slo.ttft_s),
        "tpot_s": gaps_s,
        "e2e_s": endless,
    }
    bound = lower_bound(columns, float(met.mean()), tables, widest)

    assert bound.replica_count <= replicas


def test_alone_no_request_is_faster_than_its_bound():
    rng = np.random.default_rng(3)
    n = 200
    trace = Trace(rng.integers(1, 400, n), rng.integers(1, 90, n), 1e3 * np.arange(n))
    plain = linear_tables(6e-3, 2e-5, 0, 2e-5, 1e-6, max_batch=8, max_tokens=512)
    speculation = Speculation("mtp", (0.9, 0.8, 0.7), draft_share=0.02)
    engine = EngineSettings(
        max_num_batched_tokens=512, max_num_seqs=8, speculation=speculation
    )
    widest, tables = widest_iterations(engine, plain)

    alone = unbatched(trace, tables, widest)
    times = simulate(trace, fleet_of(plain, engine, 1)).times

    assert (times.e2e_s >= alone.e2e_s - 1e-9).all()
    assert (times.ttft_s >= alone.ttft_s - 1e-9).all()


def test_iterations_of_all_drafts_rejected_are_those_of_the_tokens():
    engine = EngineSettings(speculation=Speculation("ngram", (0.0, 0.0)))

    steps, gaps_s = _as_iterations(engine, np.array([1, 2, 9]), np.array([1.0, 1.0, 1]))

    assert steps.tolist() == [1, 2, 9]
    assert gaps_s.tolist() == [1.0, 1.0, 1.0]


def test_in_a_comparison_other_schedulers_have_no_drafts():
    settings = PlanSettings(
        llm="DeepSeek-R1", gpu="H200", tp=8, speculative_config=MTP3, **GIVEN
    )

    drafting, other = (resolve(name, settings, 2048) for name in ("vllm-v1", "sarathi"))

    assert drafting.settings.speculative_config == MTP3
    assert other.settings.speculative_config is None
    assert "no drafts" in other.given


SEARCHED = {
    "workload": "synthetic:prompt=100,output=100,n=300",
    "rate": 20,
    "slo": "ttft=1s,tpot=5ms",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "price": {"H100-SXM": "1"},
    **TIMES,
}
EAGLE = {"acceptance_rates": "0.8,0.1,0.0", "draft_ms": 0.3}


@pytest.fixture(scope="module")
def searched():
    """A plan that finds the number of drafts; without any its TPOT is out of reach."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return plan(
            PlanSettings(**SEARCHED, **EAGLE, speculative_config='{"method":"eagle3"}')
        )


def test_a_plan_without_a_number_takes_the_cheapest_of_none_to_three(searched):
    assert [row.drafts for row in searched.drafts_tried] == [0, 1, 2, 3]
    fewest = min(row.gpu_count for row in searched.drafts_tried if row.gpu_count)
    assert searched.best.gpu_count == fewest
    chosen = searched.drafts_worth.drafts if searched.drafts_worth else 0
    by_count = {row.drafts: row.gpu_count for row in searched.drafts_tried}
    assert by_count[chosen] == fewest


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_plan_that_finds_the_drafts_tells_what_one_with_them_tells(apart):
    given = {**SEARCHED, "gpu": "H100-SXM,A100-80GB-SXM", "tp": (1, 2), "price": {}}
    given |= {"slo": "ttft=1s,tpot=15ms", "rate": 40, "disaggregated": apart}
    given |= {"link_gb_per_s": 50.0, "gpu": "H100-SXM"} if apart else {}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = plan(
            PlanSettings(**given, **EAGLE, speculative_config='{"method":"eagle3"}')
        )
        plans = [plan(PlanSettings(**given))]
        for drafts in (1, 2, 3):
            config = {"method": "eagle3", "num_speculative_tokens": drafts}
            own = {**given, **EAGLE, "speculative_config": json.dumps(config)}
            plans.append(plan(PlanSettings(**own)))

    told = [(row.gpu_count, row.usd_per_h) for row in found.drafts_tried]
    best = [each.best for each in plans]
    assert told == [(row.gpu_count, row.cost.usd_per_h) for row in best]
    chosen = found.drafts_worth.drafts if found.drafts_worth else 0
    rows = [
        [
            (row.key, row.status, row.gpu_count, row.pruned_reason, row.probes)
            for row in each.candidates
        ]
        for each in (found, plans[chosen])
    ]
    assert len(rows[0]) > 3
    assert rows[0] == rows[1]


def test_the_search_in_full_bounds_nothing_again(monkeypatch):
    asked = []

    def counted(inputs, configuration, part):
        asked.append((inputs.settings.speculative_config, configuration.tp))
        return real(inputs, configuration, part)

    real = proof._least_bound
    monkeypatch.setattr(proof, "_least_bound", counted)
    given = {**SEARCHED, **EAGLE, "tp": (1, 2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan(PlanSettings(**given, speculative_config='{"method":"eagle3"}'))

    assert len(asked) == len(set(asked)) == 6  # without drafts none can serve


@pytest.mark.slow
def test_fewer_drafts_accepted_take_what_a_plan_with_those_rates_takes():
    given = {**GIVEN, **TIMES, "tune": False, "speculative_config": EAGLE2}
    given |= {"rate": 100, "slo": "ttft=2s,tpot=4ms", "draft_ms": 0.3}
    given |= {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 1}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = plan(PlanSettings(**given, acceptance_rates="0.8,0.5"))
        fewer = plan(PlanSettings(**given, acceptance_rates="0.72,0.45"))
        more = plan(PlanSettings(**given, acceptance_rates="0.88,0.55"))

    counts = [p.best.gpu_count for p in (fewer, made, more)]
    worth = made.drafts_worth
    assert worth.gpu_count_if_fewer_accepted == counts[0]
    assert worth.gpu_count_if_more_accepted == counts[2]
    assert counts[0] > counts[1] > counts[2]
    told = drafts.worth(made.drafts_worth)
    assert told.endswith(
        f"10 % fewer accepted: {counts[0]} GPUs; 10 % more accepted: {counts[2]} GPUs"
    )


def test_the_tokens_needed_are_an_iteration_with_drafts_over_one_without(searched):
    # 6000 + 18 b + 0.05 L without; 18 k b + 300 k more with drafts; L = 150 b.
    worth = searched.drafts_worth
    b, k = worth.planned_batch, worth.drafts
    without = 6000 + 18 * b + 0.05 * 150 * b

    assert worth.needed_tokens == pytest.approx(
        (without + 18 * k * b + 300 * k) / without
    )


def test_drafts_stop_paying_at_the_batch_that_a_hand_reckons(searched):
    # 1.2 tokens with one draft: 6000 + 43.5 b + 300 <= 1.2 (6000 + 25.5 b) up to b 69.
    given = given_configuration(
        SimulateSettings(
            **GIVEN,
            **TIMES,
            speculative_config='{"method":"mtp","num_speculative_tokens":1}',
            acceptance_rates="0.2",
            draft_ms=0.3,
        )
    )
    assert 6000 + 43.5 * 69 + 300 <= 1.2 * (6000 + 25.5 * 69)
    assert 6000 + 43.5 * 70 + 300 > 1.2 * (6000 + 25.5 * 70)

    worth = drafts_worth(
        replace(searched, mean_prompt_tokens=100.0, mean_output_tokens=100.0), given
    )

    assert worth.pays_up_to_batch == 69
    assert not worth.always_pays


@pytest.mark.thorough
def test_only_the_best_number_of_drafts_is_told_of_in_full():
    told = []
    given = {**GIVEN, **TIMES, "llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 1}
    given |= {"speculative_config": '{"method":"eagle3"}', "draft_ms": 0.3}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = PlanSettings(**given, acceptance_rates="0.8,0.5,0.3", tune=False)
        plan(settings, lambda text, share=None: told.append(text))

    assert told.count("pricing the best without prefix caching") == 1
    assert sum("drafted tokens" in text for text in told) == 4
