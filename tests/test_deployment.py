import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings, default_engine_settings
from capplan.deployment.memory import MemoryShare, memory_budget
from capplan.deployment.pools import Deployment
from capplan.deployment.replica import DoesNotFitError, replica
from capplan.deployment.speculation import Speculation
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.latency.contract import linear_tables
from capplan.llm.catalog import llm
from capplan.llm.layout import Layout

MEMORY = Path(__file__).parents[2] / "shared/data/iteration_times/memory.csv"


def memory_rows():
    if not MEMORY.exists():
        return []
    with MEMORY.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", memory_rows() or [None])
def test_kv_memory_is_within_3_gib_of_the_published_estimate(row):
    if row is None:
        pytest.skip("the memory table is not here")
    # aiconfigurator-core has 3.5 GiB of runtime and 80 GiB of an H100; what engines
    # logged is in tests/test_memory.py.
    model, tp = llm(row["model"]), int(row["tp"])

    budget = memory_budget(
        model,
        gpu(row["system"]),
        Layout(tp),
        EngineSettings(),
        MemoryShare(float(row["memory_fraction"])),
    )

    if row["error"]:
        assert budget.kv_bytes < 3 * 2**30
    else:
        published_gib = int(row["kv_bytes_total"]) / 2**30
        assert budget.kv_bytes / 2**30 == pytest.approx(published_gib, abs=3)


DRAFT = Speculation("ngram", (0.5,))


def test_drafts_of_states_that_are_kept_have_states_of_their_own():
    engine = EngineSettings(prefix_caching=True, speculation=DRAFT)

    model = llm("Qwen3-Next-80B-A3B-FP8")
    stateful = replica(model, gpu("H100"), Layout(2), engine).engine

    assert stateful.prefix_caching
    assert (stateful.state_groups, stateful.bounded_blocks) == (3, 3)
    # A block and of each group its state and the draft's, however short it is.
    assert stateful.request_blocks(np.array([1])).tolist() == [1 + 3 * 2]


@pytest.mark.parametrize("kv_blocks", range(6, 30))
def test_the_longest_request_fits_beside_the_states_of_its_drafts(kv_blocks):
    engine = EngineSettings(
        block_size=4,
        kv_blocks=kv_blocks,
        bounded_groups=2,
        bounded_blocks=3,
        state_groups=2,
        prefix_caching=True,
        speculation=DRAFT,
    )
    longest = engine.longest_request_tokens + engine.slack_tokens

    held = engine.request_blocks(np.array([longest, longest + 1]))

    assert held[0] <= kv_blocks - 1 < held[1]


def test_windows_and_states_leave_room_for_longer_contexts():
    on, engine = gpu("H100"), EngineSettings(prefix_caching=True)

    windowed = replica(llm("gpt-oss-120b"), on, Layout(2), engine).engine
    stateful = replica(llm("Qwen3-Next-80B-A3B-FP8"), on, Layout(2), engine).engine

    assert (windowed.bounded_groups, windowed.bounded_blocks) == (1, 9)
    assert windowed.block_size == 16
    assert windowed.prefix_caching
    assert (stateful.bounded_groups, stateful.bounded_blocks) == (3, 2)
    assert stateful.block_size == 544
    assert stateful.prefix_caching
    assert stateful.state_groups == 3


@pytest.mark.parametrize(
    ("tokens", "blocks"),
    [(1, 1 + 2), (16, 1 + 2), (17, 2 + 4), (48, 3 + 6), (49, 4 + 6), (800, 50 + 6)],
)
def test_a_request_holds_blocks_of_its_tokens_and_of_bounded_groups(tokens, blocks):
    engine = EngineSettings(block_size=16, bounded_groups=2, bounded_blocks=3)

    assert engine.request_blocks(np.array([tokens])).tolist() == [blocks]


@pytest.mark.parametrize("kv_blocks", range(2, 30))
def test_the_longest_request_fits_and_one_token_more_does_not(kv_blocks):
    engine = EngineSettings(
        block_size=4, kv_blocks=kv_blocks, bounded_groups=2, bounded_blocks=3
    )
    longest = engine.longest_request_tokens

    held = engine.request_blocks(np.array([longest, longest + 1]))

    assert held[0] <= kv_blocks - 1 < held[1]


def test_capacity_shrinks_by_what_bounded_groups_hold():
    engine = EngineSettings(
        block_size=10, kv_blocks=101, bounded_groups=2, bounded_blocks=3
    )

    # Requests of 20 tokens hold 3 · 20, of 100 tokens 100 + 2 · 30.
    assert engine.capacity_at(20) == 333
    assert engine.capacity_at(100) == 625


def test_a_block_crosses_the_links_of_all_gpus_side_by_side():
    engine = EngineSettings(
        kv_block_bytes=12_000_000, link_gb_per_s=24.0, host_kv_gib=3.0
    )

    # 12 MB at 24 GB/s; 3 GiB are 3,221,225,472 bytes, 268.4 blocks.
    assert engine.block_link_s == pytest.approx(0.5e-3)
    assert engine.host_kv_blocks == 268


def test_a_replica_knows_the_bytes_of_its_blocks_on_each_gpu():
    blocks = [
        replica(llm("Llama-3.1-8B"), gpu("H100"), Layout(tp)).engine.kv_block_bytes
        for tp in (1, 2)
    ]

    # 32 layers of 8 KV heads of 128, K and V in 2 bytes, 16 tokens.
    assert blocks == [16 * 32 * 8 * 128 * 2 * 2, 16 * 32 * 4 * 128 * 2 * 2]


def test_swapping_without_the_bytes_of_a_block_is_refused():
    with pytest.raises(InputError, match="name the LLM and the GPU"):
        EngineSettings().host_kv_blocks  # noqa: B018


def test_kv_blocks_by_hand():
    # 0.92 of 81,090 MiB, less 8,030,261,248 weights of 2 bytes and 131,072 positions
    # of 128 rotary numbers; for 8,192 tokens three feed-forwards of 14,336 numbers and
    # three activations of 4,096; 123 MiB in and 256 MiB outside of torch; CUDA graphs
    # of 51 sizes and 32 layers; over blocks of 16 · 131,072 bytes.
    left = 0.92 * 85_027_979_264 - 2 * 8_030_261_248 - 2 * 131_072 * 128
    left -= 2 * 8192 * 3 * (14_336 + 4096) + (123 + 256) * 2**20
    left -= (265 + 0.35 * 51 * 32) * 2**20

    found = replica(llm("Llama-3.1-8B"), gpu("H100"))

    assert found.engine.kv_blocks == int(left // (16 * 131_072))


@pytest.mark.parametrize(
    ("name", "tokens", "seqs"),
    [
        ("B200", 16_384, 1024),
        ("MI300X", 16_384, 1024),
        ("H100", 8192, 1024),
        ("H200", 8192, 1024),
        ("A100", 2048, 256),
        ("A100-80GB-PCIe", 2048, 256),
        ("L40S", 2048, 256),
        ("V100", 2048, 256),
    ],
)
def test_default_settings_are_those_that_vllm_chooses_for_the_gpu(name, tokens, seqs):
    # vLLM 0.32, engine arguments: defaults of the API server by device memory.
    engine = default_engine_settings(gpu(name))

    assert (engine.max_num_batched_tokens, engine.max_num_seqs) == (tokens, seqs)


def test_a_setting_that_the_user_gives_stays_and_one_left_out_does_not():
    engine = default_engine_settings(gpu("H100"), max_num_seqs=7, block_size=None)

    assert engine == EngineSettings(max_num_seqs=7, prefix_caching=True)


def test_a_replica_has_its_kv_blocks_and_its_memory():
    found = replica(llm("Llama-3.1-8B"), gpu("H100"), Layout(2))

    budget = found.budget
    used = found.engine.kv_blocks * 16 * 65_536
    assert 0 <= budget.kv_bytes - used < 16 * 65_536
    assert found.kv_source == "estimated"


def test_more_gpus_hold_more_context():
    capacities = [
        replica(llm("Qwen3-8B"), gpu("A100"), Layout(tp)).engine.kv_capacity_tokens
        for tp in (1, 2, 4, 8)
    ]

    assert capacities == sorted(capacities)


@pytest.mark.parametrize(
    ("reported", "blocks"),
    [
        ({"reported_kv_blocks": 2588}, 2588),
        ({"reported_kv_tokens": 41_408}, 2588),
        ({"reported_kv_tokens": 41_415}, 2588),
        ({"reported_kv_blocks": 100, "reported_kv_tokens": 41_408}, 100),
    ],
)
def test_what_an_engine_reported_goes_before_the_estimate(reported, blocks):
    found = replica(llm("Llama-3.1-8B"), gpu("RTX4090"), **reported)

    assert found.engine.kv_blocks == blocks
    assert found.kv_source == "reported by the engine"


def test_the_longest_request_is_what_llm_and_memory_allow():
    roomy = replica(llm("Llama-2-7B"), gpu("H200"))
    tight = replica(llm("Llama-3.1-8B"), gpu("RTX4090"), reported_kv_blocks=2588)

    assert roomy.engine.max_model_len == 4096
    assert tight.engine.max_model_len == 2587 * 16


def test_an_llm_that_does_not_fit_is_refused_with_its_numbers():
    with pytest.raises(DoesNotFitError) as refusal:
        replica(llm("Llama-3.1-70B"), gpu("H100"), Layout(1))

    # 0.92 · 79.19 GiB; 70,553,706,496 parameters of 2 bytes and their rotary table
    assert "72.85 GiB" in refusal.value.reason
    assert "131.4 GiB" in refusal.value.reason
    assert refusal.value.budget.kv_bytes < 0


@pytest.mark.parametrize(
    ("model", "name", "tp", "reason"),
    [
        ("Llama-3.1-8B", "H100", 16, "node of H100-SXM has"),
        ("Llama-3.1-8B", "GB200", 8, "node of GB200 has"),
        ("Qwen2.5-7B", "H100", 8, "28 attention heads; TP 8"),
        ("Phi-4", "H100", 4, "10 KV heads; TP 4"),
    ],
)
def test_a_tp_degree_that_cannot_split_the_llm_does_not_fit(model, name, tp, reason):
    with pytest.raises(DoesNotFitError, match=reason) as refusal:
        replica(llm(model), gpu(name), Layout(tp))

    assert refusal.value.budget is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"tp": 0},
        {"share": 0.0},
        {"share": 1.1},
        {"weight_dtype": "fp3"},
        {"kv_dtype": "int2"},
    ],
)
def test_a_wrong_argument_is_an_input_error_and_not_a_misfit(wrong):
    given = {"tp": 1, "share": 0.9, "weight_dtype": "bf16", "kv_dtype": "bf16"} | wrong

    with pytest.raises(InputError) as refusal:
        replica(
            replace(llm("Llama-3.1-8B"), weight_dtype=given["weight_dtype"]),
            gpu("H100"),
            Layout(given["tp"]),
            memory=MemoryShare(given["share"]),
            kv_dtype=given["kv_dtype"],
        )

    assert not isinstance(refusal.value, DoesNotFitError)


def test_fp8_weights_and_kv_leave_room_for_more():
    half = replica(llm("Llama-3.1-8B-FP8"), gpu("L4"), kv_dtype="fp8")

    full = replica(llm("Llama-3.1-8B"), gpu("L4"))

    assert half.engine.kv_capacity_tokens > 2 * full.engine.kv_capacity_tokens


def test_activations_grow_with_the_token_budget_and_the_requests_sampled():
    model = llm("Qwen3-8B")
    peaks = {
        (tokens, seqs): memory_budget(
            model,
            gpu("H100"),
            Layout(),
            EngineSettings(tokens, seqs),
            MemoryShare(has_graphs=False),
        ).activation_bytes  # of vLLM before 0.21
        for tokens in (2048, 8192)
        for seqs in (256, 1024)
    }

    more_tokens = peaks[8192, 1024] - peaks[2048, 1024]
    more_requests = peaks[2048, 1024] - peaks[2048, 256]
    assert more_tokens == 2 * (8192 - 2048) * model.hidden
    assert more_requests == 14 * (1024 - 256) * model.vocab


def test_room_for_cuda_graphs_is_left_since_vllm_0_21():
    with_graphs = replica(llm("Llama-3.1-8B"), gpu("H100"))

    on_top = replica(
        llm("Llama-3.1-8B"), gpu("H100"), memory=MemoryShare(has_graphs=False)
    )

    more_bytes = with_graphs.budget.runtime_bytes - on_top.budget.runtime_bytes
    assert more_bytes / 2**30 == pytest.approx(0.84, abs=0.05)  # logged by vLLM 0.19
    assert with_graphs.budget.activation_bytes < on_top.budget.activation_bytes


@pytest.mark.parametrize(
    ("tp", "replica_count", "gpu_count", "text"),
    [
        (8, 5, 40, "40 GPUs = 5 replicas × 8 (TP 8)"),
        (2, 1, 2, "2 GPUs = 1 replica × 2 (TP 2)"),
        (1, 1, 1, "1 GPU = 1 replica × 1 (TP 1)"),
        (4, 1250, 5000, "5,000 GPUs = 1,250 replicas × 4 (TP 4)"),
    ],
)
def test_a_pool_counts_its_gpus(tp, replica_count, gpu_count, text):
    pool = pool_of(tp, replica_count)

    assert pool.gpu_count == gpu_count
    assert str(pool) == text


@pytest.mark.parametrize(("tp", "count", "name"), [(0, 1, "tp"), (1, 0, "replicas")])
def test_a_pool_without_gpus_is_refused(tp, count, name):
    with pytest.raises(InputError, match=f"{name} is 0"):
        pool_of(tp, count)


def pool_of(tp, replica_count):
    tables = linear_tables(1e-3, 0, 0, 0, 0, max_batch=8, max_tokens=8)
    return Deployment.of(
        Configuration(EngineSettings(), tables, "H100", tp), replica_count
    ).pool


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_num_seqs", 0),
        ("max_num_batched_tokens", 0),
        ("block_size", 0),
        ("kv_blocks", 1),
        ("kv_block_bytes", -1),
        ("link_gb_per_s", 0.0),
        ("host_kv_gib", float("nan")),
    ],
)
def test_settings_with_which_no_request_can_run_are_refused(field, value):
    with pytest.raises(InputError, match=field):
        replace(EngineSettings(), **{field: value})


def test_windows_beside_states_are_refused():
    """The core would take blocks that are not there."""
    with pytest.raises(InputError, match="state_groups is 1; expected bounded_groups"):
        EngineSettings(bounded_groups=2, bounded_blocks=2, state_groups=1)
