"""Pipeline parallelism in settings, memory, latency, plan and launch line."""

import warnings

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.pipeline import Pipeline
from capplan.deployment.pools import Deployment
from capplan.errors import CapplanWarning, InputError
from capplan.fleet.catalog import gpu
from capplan.latency.pipeline import P2P_S, hop_times_s
from capplan.latency.roofline import efficiency_of
from capplan.llm.catalog import llm
from capplan.planning.configure.configuration import configurations, only_configuration
from capplan.planning.configure.launch import launch
from capplan.planning.configure.pipeline import refuse_stages
from capplan.planning.configure.scheduling import widest_alone
from capplan.planning.load.unbatched import unbatched
from capplan.planning.plan.plan import plan
from capplan.planning.settings.place import PlaceSettings
from capplan.planning.settings.plan import (
    PlanSettings,
    SearchSettings,
    SimulateSettings,
)
from capplan.report.received.verify import verify
from capplan.settings import SettingError
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.documents import plan_json

LLAMA = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 2}


def only(**settings) -> Configuration:
    (one,) = configurations(PlanSettings(**settings))
    assert isinstance(one, Configuration), one.reason
    return one


def test_a_replica_takes_the_gpus_of_all_stages():
    one = only(**LLAMA, pipeline_parallel_size=4)

    assert one.gpus == 8
    assert one.layout.text == "TP 2 × PP 4"
    assert one.key == ("H100-SXM", "tp2-pp4")
    assert one.nodes_per_replica == 1


def test_weights_are_those_of_all_stages_together():
    one = only(**LLAMA)
    four = only(**LLAMA, pipeline_parallel_size=4)

    # Norms are on each GPU: their number is not divided. One stage's are as loaded,
    # with 131,072 rotary positions of 128 numbers.
    table_bytes = 2 * 131_072 * 128
    assert four.weight_bytes == pytest.approx(
        one.weight_bytes - one.tp * table_bytes, rel=1e-4
    )


def test_the_last_stage_has_the_layer_of_the_draft():
    eagle = '{"method": "eagle3", "num_speculative_tokens": 2}'
    drafts = {"speculative_config": eagle, "acceptance_rates": (0.7, 0.4)}

    def more_bytes(**stages):
        plain, drafted = only(**LLAMA, **stages), only(**LLAMA, **stages, **drafts)
        return drafted.weight_bytes - plain.weight_bytes

    assert more_bytes(pipeline_parallel_size=4) == more_bytes()
    assert more_bytes() > 0


def test_stages_leave_more_room_for_kv():
    one = only(**LLAMA)
    two = only(**LLAMA, pipeline_parallel_size=2)

    # Half the layers: half the bytes of a block, and half the weights.
    assert two.engine.kv_block_bytes * 2 == one.engine.kv_block_bytes
    assert two.engine.kv_blocks > 2 * one.engine.kv_blocks


def test_a_hop_sends_the_hidden_state_and_the_residual():
    model, h100 = llm("Llama-3.1-8B"), gpu("H100-SXM")

    fixed_s, token_s = hop_times_s(model, h100, 1, spans_nodes=False)

    # Two tensors of 4,096 elements of 2 bytes, over 450 GB/s times what is reached.
    rate = 450e9 * efficiency_of(h100).link
    assert fixed_s == P2P_S
    assert token_s == pytest.approx(2 * 4096 * 2 / rate)


def test_stages_on_two_nodes_are_joined_by_the_network():
    inside = only(**{**LLAMA, "tp": 4}, pipeline_parallel_size=2).engine.pipeline
    across = only(**{**LLAMA, "tp": 8}, pipeline_parallel_size=2)

    assert across.nodes_per_replica == 2
    assert across.engine.pipeline.hop_token_s > inside.hop_token_s
    settings = PlanSettings(**{**LLAMA, "tp": 8}, pipeline_parallel_size=2)
    notes = launch(across, settings).notes
    assert any("--nnodes, --node-rank and --master-addr" in note for note in notes)


def test_all_stages_take_the_time_of_the_largest():
    # 16 of 32 layers and the output embedding, 128,256 x 4,096 of 7.505 B parameters.
    one = only(**LLAMA, pipeline_parallel_size=2)

    head = 128_256 * 4_096 / 7.505e9
    share = (1 - head) / 2 + head
    assert one.engine.pipeline.share == pytest.approx(share, rel=1e-4)


def test_the_engines_own_time_is_not_divided():
    one, two = only(**LLAMA), only(**LLAMA, pipeline_parallel_size=2)

    pipeline, time = two.engine.pipeline, two.profile.engine_time
    b = 64
    own_s = time.iteration_s + b * time.per_request_s
    kernels_s = one.tables.decode_s[b] - own_s
    hop_s = pipeline.hop_s + b * pipeline.hop_token_s
    expected = pipeline.share * kernels_s + own_s + hop_s
    assert pipeline.stage_tables(two.tables).decode_s[b] == pytest.approx(expected)
    assert own_s > 0


def test_given_times_have_equal_stages_without_hops():
    settings = SimulateSettings(
        latency_ms="10,0,0,0,0", kv_blocks=9, pipeline_parallel_size=2
    )

    one = only_configuration(settings)

    assert one.engine.pipeline == Pipeline(2)
    assert one.gpus == 2


def test_one_number_of_stages_is_simulated():
    settings = SimulateSettings(
        latency_ms="10,0,0,0,0", kv_blocks=9, pipeline_parallel_size=(1, 2)
    )

    with pytest.raises(InputError, match="is 1, 2; expected one without LLM and GPU"):
        only_configuration(settings)


def test_numbers_of_stages_are_compared():
    settings = PlanSettings(**{**LLAMA, "tp": (2, 4)}, pipeline_parallel_size="1,2")

    found = [str(one) for one in configurations(settings)]

    assert found == [
        "H100-SXM × TP 2",
        "H100-SXM × TP 2 × PP 2",
        "H100-SXM × TP 4",
        "H100-SXM × TP 4 × PP 2",
    ]


@pytest.mark.filterwarnings("ignore::capplan.errors.ExtrapolationWarning")
def test_an_llm_that_no_node_holds_gets_the_fewest_stages():
    asked = PlanSettings(llm="Llama-3.1-405B", gpu="H100-SXM")

    (*alone, whole) = configurations(asked)

    assert [one.tp for one in alone] == [1, 2, 4, 8]
    assert all("does not fit" in one.reason for one in alone)
    assert str(whole) == "H100-SXM × TP 8 × PP 2"  # 16 GPUs, two nodes


@pytest.mark.parametrize(
    "asked", [{"pipeline_parallel_size": 1}, {"tp": 8}, {"solver": "mip"}]
)
def test_stages_are_not_tried_where_they_are_not_wanted(asked):
    settings = PlanSettings(llm="Llama-3.1-405B", gpu="H100-SXM", **asked)

    *_, last = configurations(settings)

    assert "does not fit" in last.reason


def test_the_launch_line_gives_the_stages():
    settings = PlanSettings(**LLAMA, pipeline_parallel_size=2)
    (one,) = configurations(settings)

    line = launch(one, settings).line

    assert "--tensor-parallel-size 2 --pipeline-parallel-size 2" in line


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"pipeline_parallel_size": 33}, "has 32 layers.* expected at most 32"),
        ({"llm": "gpt-oss-20b"}, "has layers with a window.* expected pipeline_p"),
        ({"async_scheduling": False}, "--no-async-scheduling is not modelled"),
        ({"scheduler": "sarathi"}, "scheduler sarathi is not modelled"),
        ({"engine": "sglang"}, "scheduler sglang is not modelled"),
        ({"router": "best-fit"}, "router best-fit is not modelled"),
        ({"rebalancer": "llumnix"}, "with --rebalancer is not modelled"),
        ({"solver": "mip"}, "with --solver is not modelled"),
    ],
)
def test_what_is_not_modelled_with_stages_is_refused(given, reason):
    settings = PlanSettings(**{**LLAMA, "pipeline_parallel_size": 2, **given})

    with pytest.raises(InputError, match=reason):
        list(configurations(settings))


@pytest.mark.parametrize(
    ("name", "command"), [(SearchSettings, "search"), (PlaceSettings, "place")]
)
def test_commands_of_one_batch_refuse_stages(name, command):
    settings = name(**LLAMA, pipeline_parallel_size=2)

    with pytest.raises(InputError, match=f"capplan {command} knows no stages"):
        refuse_stages(settings, command)


def test_ranks_and_stages_together_are_refused():
    with pytest.raises(SettingError, match="data_parallel_size and pipeline_parallel"):
        PlanSettings(llm="DeepSeek-R1", data_parallel_size=8, pipeline_parallel_size=2)


def test_an_llm_with_experts_is_not_looked_at_with_ep_and_stages():
    tried = configurations(
        PlanSettings(llm="DeepSeek-R1", gpu="H200", pipeline_parallel_size=2)
    )

    assert {row.layout.ep for row in tried if isinstance(row, Configuration)} == {1}


def alone(one: Configuration, prompt: int, output: int):
    """Return latency of a request alone, as bounded and as simulated."""
    trace = Trace([prompt], [output], np.zeros(1))
    engine, tables = widest_alone(one)
    return unbatched(trace, tables, engine), simulate(
        trace, Deployment.of(one, 1)
    ).table


@pytest.mark.parametrize("stages", [2, 4])
def test_a_request_alone_takes_what_is_bounded(stages):
    one = only(**LLAMA, pipeline_parallel_size=stages)

    bounded, times = alone(one, 1_000, 50)

    assert times.ttft_s[0] == pytest.approx(bounded.ttft_s[0], rel=1e-9)
    assert times.tpot_s[0] == pytest.approx(bounded.tpot_s[0], rel=1e-9)


def test_a_prompt_in_chunks_takes_no_less_than_is_bounded():
    one = only(**LLAMA, pipeline_parallel_size=3, max_num_batched_tokens=256)

    bounded, times = alone(one, 3_000, 2)

    assert bounded.ttft_s[0] <= times.ttft_s[0] <= 1.1 * bounded.ttft_s[0]


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    path = tmp_path_factory.mktemp("traces") / "requests.csv"
    lines = [f"{k / 8},{200 + 7 * (k % 90)},{20 + k % 80}" for k in range(400)]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines))
    return str(path)


@pytest.fixture(scope="module")
def made(workload):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapplanWarning)
        return plan(
            PlanSettings(
                **LLAMA,
                pipeline_parallel_size=2,
                slo="ttft=1s,tpot=40ms",
                price={"H100-SXM": "3"},
                workload=workload,
            )
        )


def test_a_plan_says_what_it_assumes_of_the_stages(made):
    found = {row.what: row for row in made.assumptions}

    row = found["pipeline, H100-SXM × TP 2 × PP 2"]
    assert row.value.startswith("each of 2 stages takes 53.5 % of the kernels' time")
    assert row.how == "assumed"


def test_a_plan_counts_the_gpus_of_all_stages(made):
    assert made.best is not None
    assert made.best.gpu_count == 4 * made.best.replica_count
    assert made.best.lower_bound_gpu_count <= made.best.gpu_count


@pytest.mark.thorough
def test_a_plan_of_stages_is_verified(made, workload, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(plan_json(made))

    assert verify(path, simulate=True, given={"workload": workload}) == []
