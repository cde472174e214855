"""Plans with disaggregated prefill and decode, beside replicas that do both."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from capplan.bounds.certificate import check_document, seal
from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import one_fewer
from capplan.errors import InputError
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.configure.deployments import of_pools
from capplan.planning.evaluate.candidate import Disaggregation
from capplan.planning.evaluate.inputs import plan_inputs
from capplan.planning.evaluate.run import run_of
from capplan.planning.money.cost import Cost
from capplan.planning.plan.plan import plan
from capplan.planning.prove.proof import reproduce
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.planning.size.disaggregated import worth
from capplan.planning.size.pairs import pairs_of
from capplan.report.first_screen import sure
from capplan.report.pages.disaggregated import verdict
from capplan.report.pages.plan import plan_page, plan_values
from capplan.report.received.verify import verify
from capplan.report.render.json_text import json_text
from capplan.settings import SettingError
from tests.pages import facts

ASKED = {
    "workload": "synthetic:prompt=900,output=120,n=1500",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "rate": 120,
    "slo": "ttft=1s,tpot=15ms",
    "disaggregated": True,
    "tune": False,
    "as_of": "2026-11-20",
}
"""Prompts lengthen the iterations in which others decode, and a TPOT of 15 ms is short:
pools of their own take fewer GPUs."""


def settings_of(**more):
    return PlanSettings(**{**ASKED, **more})


@pytest.fixture(scope="module")
def both():
    return plan(settings_of())


@pytest.fixture(scope="module")
def document(both):
    return json.loads(json_text(plan_values(both)))


DRAFTS = {
    "speculative_config": {
        "method": "eagle3",
        "model": "a/b",
        "num_speculative_tokens": 1,
    },
    "acceptance_rates": (0.7,),
}


@pytest.mark.slow
def test_pools_that_verify_drafts_are_planned_verified_and_priced(both, tmp_path):
    found = plan(settings_of(**DRAFTS))

    apart = [row for row in found.candidates if row.pools]
    assert [row.status for row in apart] == ["feasible"]
    for pool in apart[0].pools:
        assert pool.configuration.engine.speculation.rates == (0.7,)
        assert pool.bound.replica_count <= pool.replica_count
    best = found.best
    assert best.pools
    assert found.drafts_worth.tokens_per_iteration == pytest.approx(1.7)
    assert 1 < found.drafts_worth.needed_tokens < 2
    others = {**DRAFTS, "acceptance_rates": (0.9 * 0.7,)}
    fewer = [row for row in plan(settings_of(**others)).candidates if row.pools]
    assert found.drafts_worth.gpu_count_if_fewer_accepted == fewer[0].gpu_count
    assert found.drafts_worth.gpu_count_if_more_accepted <= best.gpu_count
    for pool in best.pools:
        assert "NixlConnector" in str(pool.launch)
        assert '"num_speculative_tokens":1' in str(pool.launch)
    before = [row for row in both.candidates if row.pools]
    assert apart[0].gpu_count <= before[0].gpu_count
    path = tmp_path / "plan.json"
    path.write_text(json_text(plan_values(found)))
    assert verify(path, simulate=True) == []


@pytest.mark.parametrize("hand_off", ["distserve", "splitwise"])
def test_a_hand_off_that_gives_the_first_token_has_no_drafts(hand_off):
    with pytest.raises(InputError, match="or hand-off nixl"):
        plan(settings_of(hand_off=hand_off, **DRAFTS))


@pytest.mark.thorough
def test_candidates_of_both_kinds_stand_in_one_table():
    found = plan(settings_of(tp=(1, 2)))

    pairs = [
        tuple(pool.tp for pool in row.pools) for row in found.candidates if row.pools
    ]
    assert sorted(pairs) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert {row.tp for row in found.candidates if not row.pools} == {1, 2}


def test_the_best_of_each_kind_are_held_against_each_other(both):
    whole, apart = both.best_aggregated, both.best_disaggregated

    assert not whole.pools
    assert [pool.role for pool in apart.pools] == ["prefill", "decode"]
    assert both.best is apart
    assert both.disaggregation == Disaggregation(
        True,
        whole.gpu_count - apart.gpu_count,
        pytest.approx(whole.cost.usd_per_h - apart.cost.usd_per_h),
    )
    assert both.disaggregation.gpu_count_saved > 0


def test_one_replica_fewer_of_either_pool_misses_the_slo(both):
    apart = both.best_disaggregated
    counts = tuple(pool.replica_count for pool in apart.pools)
    probes = {probe.pool_replica_counts: probe for probe in apart.probes}

    assert probes[counts].meets
    for fewer in one_fewer(counts):
        assert probes[fewer].meets is False


def test_the_bound_is_the_sum_of_those_of_the_pools(both):
    apart = both.best_disaggregated

    assert apart.lower_bound_gpu_count == sum(
        pool.bound.replica_count * pool.tp for pool in apart.pools
    )
    for pool in apart.pools:
        assert 1 <= pool.bound.replica_count <= pool.replica_count
    assert apart.gpu_count == sum(pool.gpu_count for pool in apart.pools)


def test_trying_all_counts_finds_none_cheaper(both):
    """All pairs of TP 1 below the answer are simulated."""
    apart = both.best_disaggregated
    assert [pool.tp for pool in apart.pools] == [1, 1]
    inputs, tried = plan_inputs(settings_of())
    inputs = replace(inputs, candidate_count=3)  # samples as in the plan
    ((pair, _),) = pairs_of(inputs, tried)
    cheaper = [
        (prompts, decoding)
        for prompts in range(1, apart.gpu_count)
        for decoding in range(1, apart.gpu_count - prompts)
    ]

    met = [
        counts
        for counts in cheaper
        if run_of(inputs, pair.deployment(counts)).judgement.meets
    ]

    assert met == []


def test_pools_that_cost_as_much_as_one_pool_are_not_bounded(monkeypatch):
    inputs, tried = plan_inputs(settings_of())
    ((pair, _),) = pairs_of(inputs, tried)

    kept = pairs_of(replace(inputs, to_beat=(math.inf, sum(pair.at_least) + 1)), tried)
    dear = pairs_of(replace(inputs, to_beat=pair.price_of(pair.at_least)), tried)
    monkeypatch.setattr(
        "capplan.planning.size.pairs.bound_of", None
    )  # not to be called
    dearer = pairs_of(replace(inputs, to_beat=pair.price_of((1, 1))), tried)

    assert len(kept) == 1
    assert dear == dearer == []


@pytest.mark.thorough
def test_more_replicas_of_either_pool_keep_the_slo(both):
    apart = both.best_disaggregated
    first, second = (pool.replica_count for pool in apart.pools)

    for seed in range(3):
        inputs, tried = plan_inputs(settings_of(seed=seed))
        ((pair, _),) = pairs_of(inputs, tried)
        shares = [
            run_of(inputs, pair.deployment(counts)).judgement.attainment.share
            for counts in ((first + 1, second), (first, second + 1))
        ]

        assert np.mean(shares) >= 0.99


@pytest.mark.thorough
def test_a_plan_without_the_flag_has_nothing_of_it():
    found = plan(settings_of(disaggregated=False))
    values = plan_values(found)

    assert found.disaggregation is None
    assert values["best_disaggregated"] is None
    assert all(row["pools"] == [] for row in values["candidates"])


def test_candidates_of_pools_tell_role_gpu_degree_and_count(document):
    best = document["best_disaggregated"]

    assert best["tp"] is None
    assert [pool["role"] for pool in best["pools"]] == ["prefill", "decode"]
    for pool in best["pools"]:
        assert (pool["gpu"], pool["tp"]) == ("H100-SXM", 1)
        assert pool["replica_count"] >= 1
        assert "NixlConnector" in pool["launch_line"]
    assert best["replica_count"] == sum(pool["replica_count"] for pool in best["pools"])


def test_the_page_shows_both_kinds_and_says_whether_it_pays(both):
    page = plan_page(both)

    why = facts(page, "Why this many GPUs")
    assert why["two pools"].startswith("Disaggregation pays: ")
    _, together, *_ = page.answer.instead.rows
    assert together[:2] == (
        "prefill and decode together",
        f"{both.best_aggregated.gpu_count}",
    )
    (section,) = [
        s for s in page.sections if s.heading == "Disaggregated prefill and decode"
    ]
    kinds, pools = section.tables
    assert len(kinds.rows) == len(pools.rows) == 2
    titles = [figure.title for figure in section.figures()]
    assert "Load of the pools over time" in titles


def test_two_pools_are_checked_only_where_fleets_of_two_were_served(both, monkeypatch):
    apart = both.best_disaggregated
    monkeypatch.setattr(Configuration, "sureness", "checked")

    assert not apart.sweep_count
    assert apart.sureness == "estimated"
    assert sure(apart).text.endswith("no fleet of two such pools was load-tested")
    assert both.best_aggregated.sureness == "checked"
    monkeypatch.setattr(type(apart), "sweep_count", 3)
    assert apart.sureness == "checked"
    monkeypatch.setattr(Configuration, "sureness", "measured")
    assert apart.sureness == "measured"


@pytest.mark.slow
def test_a_degree_for_prompts_alone_leaves_one_pair_of_each_degree():
    found = plan(settings_of(tp=(1, 2), prefill_tp=2, rate=40))

    pairs = {tuple(pool.tp for pool in row.pools) for row in found.candidates}
    assert pairs == {(), (2, 1), (2, 2)}


@pytest.mark.thorough
@pytest.mark.parametrize("hand_off", ["distserve", "splitwise:queue=4096"])
def test_every_hand_off_can_be_planned(hand_off):
    found = plan(settings_of(hand_off=hand_off, rate=40))

    apart = found.best_disaggregated
    assert apart.run.deployment.hand_off == hand_off
    if hand_off.startswith("splitwise"):  # either pool may serve whole requests
        assert [pool.bound.method for pool in apart.pools] == ["none", "none"]


def test_prompts_that_are_too_slow_alone_exclude_a_pair():
    found = plan(settings_of(slo="ttft=25ms,tpot=15ms", rate=5))

    (row,) = [row for row in found.candidates if row.pools]
    assert row.status == "infeasible"
    assert "TTFT" in row.infeasible_reason
    assert found.disaggregation == Disaggregation(False)
    assert verdict(found) == ("Disaggregation does not pay: no two pools hold the SLO.")


@pytest.mark.parametrize(
    ("hand_off", "limit"),
    [("nixl", "TTFT"), ("distserve", "TPOT"), ("nixl:block=1s", "TTFT")],
)
def test_copies_that_take_too_long_alone_exclude_a_pair(hand_off, limit):
    # 900 tokens are 118 MB: at 0.05 GB/s 2.4 s, more than a TTFT of 1 s, and spread
    # over 119 later tokens 20 ms, more than a TPOT of 15 ms.
    found = plan(settings_of(link_gb_per_s=0.05, hand_off=hand_off, rate=5))

    (row,) = [row for row in found.candidates if row.pools]
    assert row.status == "infeasible"
    assert limit in row.infeasible_reason


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"prefill_tp": 3}, "TP 3 does not divide"),
        ({"prefill_tp": 0}, "prefill_tp is 0; expected"),
        ({"link_gb_per_s": 0.0}, "link_gb_per_s is 0.0; expected"),
        ({"hand_off": "teleport"}, "hand-off 'teleport' is not known"),
        ({"scheduler": "sarathi"}, "with scheduler sarathi is not modelled"),
        (
            {"rebalancer": "llumnix"},
            "given: a rebalancer works within one pool",
        ),
        (
            {"disaggregated": False, "hand_off": "nixl"},
            "expected --disaggregated",
        ),
        ({"disaggregated": False, "prefill_tp": 2}, "expected --disaggregated"),
        ({"disaggregated": False, "link_gb_per_s": 9.0}, "link_gb_per_s is given; sch"),
    ],
)
def test_what_cannot_be_two_pools_is_refused_in_one_line(more, why):
    with pytest.raises((InputError, SettingError), match=why):
        plan(settings_of(**more))


def test_a_degree_for_prompts_that_holds_no_weights_is_refused():
    # 131 GiB of weights on one GPU of 80.
    with pytest.raises(InputError, match="does not fit on H100-SXM at TP 1"):
        plan(settings_of(llm="Llama-3.1-70B", tp=(4,), prefill_tp=1, rate=1))


def test_a_gpu_without_a_known_network_needs_a_link():
    with pytest.raises(InputError, match="give --link-gb-per-s"):
        plan(settings_of(gpu="RTX-4090", rate=1))


def test_a_certificate_of_two_pools_is_accepted_and_made_again(document):
    assert check_document(document) == []
    assert check_document(document, reproduce) == []


def forged(document, change):
    """Return a document in which a figure was changed and sealed again."""
    copy = json.loads(json.dumps(document))
    change(copy)
    return seal(copy)


def _fewer(document):
    for row in (document["certificate"], document["best"]):
        row["pools"][0]["replica_count"] -= 1


def _bound(document):
    for place in (document["certificate"], document["best"]):
        place["pools"][1]["bound"]["replica_count"] += 1


def _certified_bound(document):
    bound = document["certificate"]["pools"][0]["bound"]
    bound["work_s"] *= 1.001


def _role(document):
    document["certificate"]["pools"].reverse()


def _without_proof(document):
    document["certificate"]["simulated"]["failing"] = []


def _cheaper(document):
    document["best"]["usd_per_h"] -= 1


def _other_prices(document):
    """Double what the pools of a copy of the best ask, and not its bill."""
    for pool in document["best_disaggregated"]["pools"]:
        for ask in (pool["price"], *pool["price"]["asked"]):
            ask["usd_per_gpu_h"] *= 2


def _passing(document):
    document["certificate"]["simulated"]["passing"] = 0.9999
    for row in (document["best"], document["best_disaggregated"]):
        row["slo_attainment"] = 0.9999
    for row in document["candidates"]:
        if row["pools"] and row["replica_count"] is not None:
            row["slo_attainment"] = 0.9999


@pytest.mark.parametrize(
    "change",
    [
        *(_fewer, _bound, _certified_bound, _role, _without_proof),
        *(_cheaper, _other_prices, _passing),
    ],
)
def test_a_forged_certificate_of_two_pools_is_refused(document, change):
    assert check_document(forged(document, change), reproduce) != []


@pytest.mark.thorough
def test_a_plan_of_two_pools_is_verified_and_one_with_other_pools_refused(
    document, tmp_path
):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    accepted = verify(path, simulate=True)
    pays = forged(document, lambda copy: copy["disaggregation"].update(pays=False))
    path.write_text(json.dumps(pays))

    refused = verify(path, simulate=True)

    assert accepted == []
    assert any("disaggregation.pays" in reason for reason in refused)


def priced(gpu_count, usd_per_h, pools=()):
    """A candidate of which the comparison sees its GPUs and its price."""

    class Row:
        status = "feasible"

    row = Row()
    row.gpu_count, row.pools = gpu_count, pools
    row.cost = row.cautious = None
    row.cautious_fails = False
    if usd_per_h is not None:
        row.cost = Cost(usd_per_h, 0, 0, None, None, None, (), ())
    return row


@pytest.mark.parametrize(
    ("whole", "apart", "found"),
    [
        ((8, 16.0), (6, 12.0), Disaggregation(True, 2, 4.0)),
        ((8, 16.0), (8, 16.0), Disaggregation(False, 0, 0.0)),
        ((13, 13 * 4.29), (13, 3 * 4.29 + 10 * 4.29), Disaggregation(False, 0, 0.0)),
        ((8, 16.0), (9, 18.0), Disaggregation(False, -1, -2.0)),
        ((8, 20.0), (9, 18.0), Disaggregation(True, -1, 2.0)),
        ((8, None), (7, None), Disaggregation(True, 1, None)),
    ],
)
def test_it_pays_where_it_costs_less(whole, apart, found):
    rows = priced(*whole), priced(*apart, pools=(1, 2))

    assert worth(*rows, list(rows)) == found


def test_it_pays_where_nothing_else_meets_the_slo():
    apart = priced(4, 8.0, pools=(1, 2))

    assert worth(None, apart, [apart]) == Disaggregation(True)


def test_an_interruption_leaves_open_whether_it_pays():
    answers = iter([False] * 3)
    found = plan(settings_of(), stopped=lambda: next(answers, True))

    assert found.interrupted
    assert verdict(found) == ""


@pytest.mark.slow
def test_pools_of_ranks_that_verify_drafts_are_planned_and_verified(tmp_path):
    """One rank's prompts hold up the decodes of all, unless they are elsewhere."""
    asked = {
        "workload": "synthetic:prompt=1000,output=200,n=600",
        "llm": "DeepSeek-R1",
        "gpu": "B200",
        "tp": 1,
        "data_parallel_size": "8",
        "enable_expert_parallel": False,
        "rate": 10,
        "slo": "ttft=3s,tpot=25ms",
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
    }
    found = plan(settings_of(**asked))

    best = found.best
    assert [pool.configuration.layout.dp for pool in best.pools] == [8, 8]
    together = [row for row in found.candidates if not row.pools and row.gpu_count]
    assert all(best.gpu_count < row.gpu_count for row in together)
    words = best.pools[1].launch.words
    assert words[words.index("--data-parallel-size") + 1] == "8"
    # Prompts are elsewhere, and such fleets were served: that tells how far it is off.
    apart = [text for text in found.warnings if "holds up the decodes" in text]
    assert bool(apart) is bool(together)
    low, high = best.gpu_count_range
    assert low <= best.gpu_count <= high
    path = tmp_path / "plan.json"
    path.write_text(json_text(plan_values(found)))
    assert verify(path, simulate=True) == []


def test_a_hand_off_that_looks_at_what_is_cached_has_no_ranks():
    asked = {"llm": "DeepSeek-R1", "gpu": "B200", "tp": 1, "data_parallel_size": "8"}

    with pytest.raises(InputError, match="nixl without a threshold"):
        plan(settings_of(hand_off="nixl:threshold=16", **asked))


def test_prompts_of_a_given_tp_are_without_the_ranks_that_decode():
    settings = SimulateSettings(
        llm="DeepSeek-R1",
        gpu="B200",
        tp=1,
        data_parallel_size="8",
        enable_expert_parallel=True,
        prefill_tp=8,
        prefill_replicas=1,
        decode_replicas=1,
        workload="azure-conv-like",
        slo="ttft=2s",
    )

    prompts, decoding = of_pools(settings, only_configuration(settings))

    assert str(prompts.layout) == "tp8"
    assert str(decoding.layout) == "dp8-ep8"
