"""Layouts of TP, DP attention and EP in plans: which, their memory, their refusals."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment, Pool
from capplan.engines.vllm import graph_sizes
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.latency.rank_tables import RankWork
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.planning.configure.configuration import configurations, only_configuration
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.launch import launch
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.money.cost import nodes_of
from capplan.planning.plan.plan import plan
from capplan.planning.prove.proof import reproduce
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

pytestmark = pytest.mark.filterwarnings("ignore")
R1 = {"llm": "DeepSeek-R1", "gpu": "H200"}


def able(**settings) -> dict[str, Configuration]:
    found = configurations(PlanSettings(**{**R1, **settings}))
    return {str(row.layout): row for row in found if isinstance(row, Configuration)}


def refused(**settings) -> str:
    with pytest.raises(InputError) as caught:
        only_configuration(PlanSettings(**{**R1, **settings}))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_plan_looks_at_tp_ep_and_dp_attention_where_profiles_are():
    assert list(able()) == ["tp8", "dp8-ep8", "dp8", "tp8-ep8"]
    assert list(able(data_parallel_size="8")) == ["dp8-ep8", "dp8"]
    assert list(able(data_parallel_size="1")) == ["tp8", "tp8-ep8"]
    assert list(able(enable_expert_parallel=True)) == ["dp8-ep8", "tp8-ep8"]
    assert list(able(enable_expert_parallel=False)) == ["tp8", "dp8"]
    assert list(able(tp="8")) == ["tp8"]
    assert list(able(tp="1", data_parallel_size="8", enable_expert_parallel=True)) == [
        "dp8-ep8"
    ]


def test_layouts_are_held_to_fleets_of_their_kind_that_were_served():
    mtp = '{"method": "mtp", "num_speculative_tokens": 1}'
    plain, drafted = able(), able(speculative_config=mtp)
    ngram = '{"method": "ngram", "num_speculative_tokens": 1}'
    guessed = able(speculative_config=ngram, acceptance_rates=(0.5,))

    def served(found, disaggregated=False):
        error = found.layout_error(disaggregated=disaggregated)
        return None if error is None else (error.of, error.disaggregated)

    assert served(plain["tp8-ep8"]) == (["EP"], False)
    assert served(plain["tp8"]) == served(plain["dp8"]) is None
    assert served(plain["dp8"], disaggregated=True) == (["DP attention"], True)
    assert served(drafted["tp8"]) == (["MTP"], False)
    assert served(drafted["dp8"]) == (["MTP and DP attention"], False)
    assert served(guessed["tp8-ep8"]) is None
    assert served(able(engine_overhead="none")["tp8-ep8"]) is None
    low, _, high = plain["tp8-ep8"].layout_error().capacity
    assert plain["tp8-ep8"].capacity_ratio == (low, high)
    assert (plain["tp8-ep8"].is_unmeasured, plain["dp8"].is_unmeasured) == (False, True)
    # They were measured, and are further apart than a factor of two.
    assert plain["tp8-ep8"].doubts == ("real engines of it differ by a factor of two",)
    assert plain["tp8-ep8"].has_range
    assert plain["tp8-ep8"].cautious_share == low


def test_ranks_without_a_benchmark_are_planned_cautiously_by_other_families():
    kimi = {"llm": "Kimi-K2.5-NVFP4", "gpu": "B200"}
    found = able(**kimi)
    tp, ranks = found["tp4"], found["dp4-ep4"]

    # Sweeps of Kimi with TP alone tell less of ranks than they do of TP.
    assert tp.is_measured
    assert not ranks.is_measured
    assert ranks.capacity_ratio[0] < tp.capacity_ratio[0]
    assert 0 < ranks.cautious_share == ranks.capacity_ratio[0] < 1
    assert ranks.doubts == (
        "no benchmark of this layout of Kimi-K2.5-NVFP4 backs it; its TP layouts were "
        "measured",
    )
    of_others = able(llm="DeepSeek-V3.2", gpu="B200")
    assert {row.doubts for row in of_others.values()} == {
        ("no benchmark of this LLM backs it",)
    }
    assert not able(**kimi, engine_overhead="none")["dp4-ep4"].is_unbacked


@pytest.mark.slow
def test_the_cautious_count_of_ranks_is_simulated_at_the_times_of_slow_engines():
    load = "synthetic:prompt=300,output=120,n=400"
    asked = {"workload": load, "rate": 30.0, "slo": ("ttft=2s,tpot=60ms",)}
    layout = {"data_parallel_size": "8", "enable_expert_parallel": True, "tp": "1"}

    (found,) = plan(PlanSettings(**R1, **asked, **layout)).candidates
    configuration = found.configuration
    slower = configuration.slowed(configuration.cautious_slowdown)
    work = [RankWork(decoding=4, context=900.0, prefill_tokens=200, attention=2e4)] * 8
    times_s = [of.rank_tables.iteration_time_s(work) for of in (slower, configuration)]

    assert times_s[0] == pytest.approx(configuration.cautious_slowdown * times_s[1])
    assert found.cautious_count is not None
    assert found.cautious.replica_count == found.cautious_count >= found.replica_count


def test_two_pools_are_held_to_served_fleets_of_two_pools():
    ranks, tp = able()["dp8"], able()["tp8"]
    pools = Pool(tp, 3), Pool(ranks, 4)
    fleet = Deployment(pools, hand_off="nixl", link_gb_per_s=50.0)
    run = SimpleNamespace(deployment=fleet, replica_count=7, configuration=ranks)
    found = Candidate("H200-SXM", 8, "feasible", ranks, run=run, pools=(None, None))

    low, _, high = ranks.layout_error(disaggregated=True).capacity

    assert found.capacity_ratio == (low, high)
    fewest, most = found.engine_fleets
    assert [pool.replica_count for pool in fewest.pools] == [1, 1]  # a quarter
    assert [pool.replica_count for pool in most.pools] == [
        math.ceil(3 / low),
        math.ceil(4 / low),
    ]
    assert found.gpu_count_range == (fewest.gpu_count, most.gpu_count)
    assert found.replica_count_range is None


def test_a_dense_llm_is_planned_by_tp_alone():
    found = able(llm="Llama-3.1-70B")

    assert all(re.fullmatch(r"tp\d", name) for name in found)
    assert all(row.rank_tables is None for row in found.values())
    assert "data_parallel_size" not in found["tp8"].engine.document()


@pytest.mark.parametrize(
    "coming", [{"autoscaler": "hpa:target=9"}, {"outage": "1@60s:60s"}]
)
def test_groups_come_and_go_and_their_requests_stay_where_they_are(coming):
    of_ranks = {**R1, "data_parallel_size": "8", "enable_expert_parallel": True}

    found = only_configuration(SimulateSettings(**of_ranks, **coming))

    assert str(found.layout) == "dp8-ep8"
    with pytest.raises(InputError, match="with --rebalancer is not modelled: it moves"):
        only_configuration(SimulateSettings(**of_ranks, rebalancer="llumnix"))


def test_autoscaled_fleets_have_the_layout_that_is_asked_for():
    asked = {**R1, "slo": "ttft=3s,tpot=60ms", "cold_start": "60s"}
    of_ranks = AutoscaleSettings(
        **asked, data_parallel_size="8", enable_expert_parallel=True
    )

    assert str(only_configuration(of_ranks).layout) == "dp8-ep8"
    assert of_ranks.of_plan().data_parallel_size == (8,)
    assert AutoscaleSettings(**asked).of_plan().data_parallel_size == (1,)


def test_one_deployment_has_one_rank_and_experts_cut_unless_it_says_so():
    given = SimulateSettings(**R1)

    assert str(only_configuration(given)) == "H200-SXM × TP 8"
    with_ranks = given.model_copy(
        update={"data_parallel_size": (8,), "enable_expert_parallel": True}
    )
    assert str(only_configuration(with_ranks)) == "H200-SXM × DP 8 × TP 1, EP 8"


@pytest.mark.parametrize(
    ("name", "tp_tokens", "rank_tokens", "times"),
    [("H200", 1_065_619, 645_371, 4.8), ("B200", 2_162_097, 1_741_849, 6.4)],
)
def test_memory_of_a_rank_is_near_what_the_kernel_package_says(
    name, tp_tokens, rank_tokens, times
):
    # aiconfigurator-core 0.12: it counts experts in the three dense layers as well,
    # and what a rank holds of all heads once only (docs/internals/latency.md).
    found = able(gpu=name, kv_cache_dtype="fp8", max_num_batched_tokens=8192)

    tp = found["tp8"].engine.kv_capacity_tokens
    rank = found["dp8-ep8"].engine.kv_capacity_tokens
    assert 0.99 * tp_tokens <= tp <= 1.27 * tp_tokens
    assert 0.99 * rank_tokens <= rank <= 1.27 * rank_tokens
    assert 8 * rank / tp == pytest.approx(times, rel=0.1)
    assert found["dp8"].engine.kv_capacity_tokens == rank


def test_all_ranks_gpus_are_counted_and_weigh():
    ranks = able()["dp8-ep8"]

    assert ranks.gpus == 8
    assert ranks.engine.data_parallel_size == 8
    assert Pool(ranks, 3).gpu_count == 24
    assert str(Pool(ranks, 3)) == "24 GPUs = 3 replicas × 8 (DP 8 × TP 1, EP 8)"
    assert ranks.weight_bytes == 8 * ranks.replica.budget.weight_bytes
    assert ranks.key == ("H200-SXM", "dp8-ep8")


def test_a_group_larger_than_a_node_is_billed_whole_nodes():
    ranks = able(gpu="GB200", data_parallel_size="16")["dp16-ep16"]

    (paid,) = nodes_of([Pool(ranks, 1)])

    assert ranks.nodes_per_replica == 4
    assert (paid.count, paid.gpus_per_node, paid.gpus_paid) == (4, 4, 16)
    settings = PlanSettings(llm="DeepSeek-R1", gpu="GB200", engine="vllm")
    by_vllm = able(gpu="GB200", engine="vllm", data_parallel_size="16")["dp16-ep16"]
    assert any("several nodes" in note for note in launch(by_vllm, settings).notes)


def test_eplb_levels_the_experts_and_its_copies_take_memory():
    plain = able(enable_expert_parallel=True)["dp8-ep8"]
    config = '{"num_redundant_experts":32}'

    level = able(enable_expert_parallel=True, enable_eplb=True)["dp8-ep8"]
    copies = able(enable_expert_parallel=True, enable_eplb=True, eplb_config=config)[
        "dp8-ep8"
    ]

    # 1.15 is the imbalance that the profile has of EP 8.
    np.testing.assert_allclose(
        1.15 * level.rank_tables.experts_s, plain.rank_tables.experts_s
    )
    assert copies.layout.redundant_experts == 32
    # 32 of 256 experts more: an eighth of the experts of 58 layers, 44 MB each in FP8.
    more = copies.weight_bytes - level.weight_bytes
    assert more == pytest.approx(32 * 58 * 3 * 7168 * 2048, rel=0.01)
    held = copies.engine.kv_capacity_tokens
    assert held < level.engine.kv_capacity_tokens == plain.engine.kv_capacity_tokens


def test_the_engines_own_time_is_in_a_rank_and_its_factor_in_all_parts():
    found = able(engine="vllm", data_parallel_size="8")["dp8-ep8"]
    kernels = able(engine_overhead="none", data_parallel_size="8")["dp8-ep8"]
    time = found.profile.engine_time

    ranks, bare = found.rank_tables, kernels.rank_tables
    assert found.times_of.startswith("vllm")
    np.testing.assert_allclose(ranks.experts_s, time.decode_factor * bare.experts_s)
    added_s = ranks.rank.decode_s[8] - time.decode_factor * bare.rank.decode_s[8]
    assert added_s == pytest.approx(time.iteration_s + 8 * time.per_request_s)
    assert found.is_unmeasured


def test_graphs_are_those_that_vllm_captures():
    assert graph_sizes(gpu("H200"), 20, 8192) == (1, 2, 4, 8, 16, 20, 24, 32, 40)
    assert max(graph_sizes(gpu("H200"), 1024, 8192)) == 512
    assert max(graph_sizes(gpu("B200"), 1024, 8192)) == 1024


def test_the_command_has_the_flags_of_the_layout():
    settings = PlanSettings(
        **R1,
        engine="vllm",
        data_parallel_size="8",
        enable_expert_parallel=True,
        enable_eplb=True,
        eplb_config={"num_redundant_experts": 32},
        prefill_schedule_interval=4,
    )

    line = launch(only_configuration(settings), settings)

    assert line.flags["--tensor-parallel-size"] == "1"
    assert line.flags["--data-parallel-size"] == "8"
    assert "--enable-expert-parallel" in line.flags
    assert line.flags["--all2all-backend"] == "allgather_reducescatter"
    assert line.flags["--eplb-config"] == '{"num_redundant_experts": 32}'
    assert line.flags["--prefill-schedule-interval"] == "4"
    # vLLM would start one for each rank, and the rank is chosen as by one.
    assert line.flags["--api-server-count"] == "1"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"llm": "Llama-3.1-70B", "tp": "4", "data_parallel_size": "2"},
            "expected --replicas 2 of TP 4",
        ),
        (
            {"llm": "Llama-3.1-70B", "enable_expert_parallel": True},
            "has no experts; expected no --enable-expert-parallel",
        ),
        (
            {
                "data_parallel_size": "8",
                "enable_expert_parallel": True,
                "enable_eplb": True,
                "eplb_config": '{"num_redundant_experts":3}',
            },
            "EP 8 does not divide them; expected 8 redundant experts",
        ),
        ({"enable_eplb": True}, "expected --enable-expert-parallel with it"),
        ({"eplb_config": "{}"}, "expected --enable-eplb with it"),
        (
            {
                "enable_expert_parallel": True,
                "enable_eplb": True,
                "eplb_config": '{"redundant":3}',
            },
            "'redundant' is not a key",
        ),
        (
            {
                "data_parallel_size": "8",
                "enable_expert_parallel": True,
                "all2all_backend": "deepep_low_latency",
            },
            "expected --max-num-batched-tokens 1024",
        ),
        (
            {"all2all_backend": "deepep_high_throughput"},
            "expected allgather_reducescatter or deepep_low_latency",
        ),
        (
            {"prefill_schedule_interval": 4},
            "expected --data-parallel-size above 1 with it",
        ),
        (
            {
                "data_parallel_size": "8",
                "prefill_schedule_interval": 4,
                "engine": "vllm@0.13",
            },
            "expected vllm@0.24.0 or newer",
        ),
        (
            {"data_parallel_size": "6", "enable_expert_parallel": True, "tp": 1},
            "EP 6 does not divide them; expected EP 2",
        ),
        ({"data_parallel_size": "3"}, "known are those of DP 8 × TP 1; DP 8"),
        (
            {"data_parallel_size": "8", "router": "best-fit"},
            "best-fit is not modelled: it reads",
        ),
        ({"data_parallel_size": "8", "dispatcher": "aladdin"}, "with --dispatcher"),
        ({"data_parallel_size": "8", "rebalancer": "llumnix"}, "with --rebalancer"),
        ({"data_parallel_size": "8", "scheduler": "sarathi"}, "is not modelled"),
        ({"data_parallel_size": "8", "solver": "mip"}, "with --solver"),
    ],
)
def test_what_ranks_cannot_be_is_refused_in_a_line_with_what_can(given, told):
    assert told in refused(**given)


def test_low_latency_kernels_serve_small_iterations():
    found = able(
        data_parallel_size="8",
        enable_expert_parallel=True,
        all2all_backend="deepep_low_latency",
        max_num_batched_tokens=1024,
    )

    assert list(found) == ["dp8-ep8"]
    assert found["dp8-ep8"].profile.all_to_all == "deepep"


def test_a_policy_that_knows_no_ranks_leaves_the_other_layouts():
    rows = list(configurations(PlanSettings(**R1, router="best-fit")))

    assert [str(row.layout) for row in rows if isinstance(row, Configuration)] == [
        "tp8",
        "tp8-ep8",
    ]
    reasons = {row.reason for row in rows if isinstance(row, Excluded)}
    assert all(
        re.search("best-fit is not modelled: it reads", reason) for reason in reasons
    )


def test_experts_apart_share_the_kv_by_dcp_and_ranks_do_not():
    rows = list(configurations(PlanSettings(**R1, decode_context_parallel_size=8)))

    alone, shared = able()["tp8-ep8"], able(decode_context_parallel_size=8)["tp8-ep8"]
    assert shared.engine.block_size == 8 * alone.engine.block_size
    assert (shared.tables.decode_context_s < alone.tables.decode_context_s)[1:].all()
    reasons = {str(row.layout): row.reason for row in rows if isinstance(row, Excluded)}
    assert list(reasons) == ["dp8-ep8", "dp8"]
    assert "is 8 at TP 1; it does not divide TP" in reasons["dp8"]


@pytest.mark.thorough
def test_a_plan_of_ranks_is_proven_and_made_again():
    settings = PlanSettings(
        **R1,
        data_parallel_size="8",
        workload="sharegpt",
        rate=4,
        slo="ttft=5s,tpot=200ms",
        tune=False,
        price={"H200-SXM": "3"},
    )

    made = plan(settings)

    best = made.best
    assert best.key in (("H200-SXM", "dp8"), ("H200-SXM", "dp8-ep8"))
    assert best.gpu_count == 8 * best.replica_count
    assert best.lower_bound_gpu_count % 8 == 0
    assert best.lower_bound_gpu_count <= best.gpu_count
    block = made.certificate
    assert (block["layout"], block["gpus_per_replica"]) == (best.key[1], 8)
    again = reproduce({"certificate": block, "settings": made.settings})
    assert again.attained[best.replica_count,] == best.run.judgement.attainment.share
    assert any("holds up the decodes of all" in text for text in made.warnings)


@pytest.mark.parametrize("interval", [None, 4])
def test_ranks_keep_states_unless_they_take_prompts_together(interval):
    (found,) = able(
        llm="Qwen3.5-397B-A17B",
        data_parallel_size="8",
        enable_expert_parallel=True,
        prefill_schedule_interval=interval,
    ).values()

    assert found.engine.state_groups > 0
    assert found.engine.keeps_states == (interval is None)
