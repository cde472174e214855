"""KV blocks against hand-worked cases and what vLLM logs."""

from dataclasses import replace

import pytest

from capplan.errors import InputError
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm, llm_names
from capplan.llm.kv_groups import kv_groups
from capplan.llm.state_layer import StateLayer

LONG = 131_072


def groups(name, tp=1, kv_dtype="bf16", **options):
    return kv_groups(llm(name), tp, kv_dtype, 16, LONG, **options)


def test_full_attention_alone_has_one_block_for_all_layers():
    found = groups("Llama-3.1-8B")

    assert found == (16, 16 * 131_072, 0, 0, ())
    assert found.blocks(100 * found.block_bytes + 1, 8192) == 100


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        # 2 · KV heads · head_dim · 2 bytes in each layer with full attention
        ("gpt-oss-120b", 18 * 2 * 8 * 64 * 2),
        ("gpt-oss-20b", 12 * 2 * 8 * 64 * 2),
        ("Gemma-3-27B", 10 * 2 * 16 * 128 * 2),
        ("Qwen3-Next-80B-A3B", 24_576),
        ("Llama-4-Scout", 12 * 2 * 8 * 128 * 2),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B", 6 * 2 * 2 * 128 * 2),
        ("Mistral-7B-v0.1", 32 * 2 * 8 * 128 * 2),  # all layers have a window
    ],
)
def test_only_layers_with_full_attention_grow_with_the_context(name, bytes_per_token):
    assert llm(name).kv_bytes_per_token() == bytes_per_token
    assert llm(name).growing_layers > 0


@pytest.mark.parametrize(
    ("name", "bounded_groups", "bounded_blocks"),
    [
        ("gpt-oss-120b", 1, 8 + 1),  # 18 + 18 layers; 127 tokens and a begun block
        ("Gemma-3-27B", 6, 64 + 1),  # 10 + 52 layers, the last group padded
        ("Gemma-2-9B", 1, 256 + 1),  # 21 + 21
        ("Llama-4-Scout", 3, 512 + 1),  # 12 + 36, chunks of 8,192
    ],
)
def test_windows_take_blocks_of_their_own_groups(name, bounded_groups, bounded_blocks):
    found = groups(name)

    assert (found.bounded_groups, found.bounded_blocks) == (
        bounded_groups,
        bounded_blocks,
    )
    # All tokens of an iteration are written, whatever the window.
    assert found.blocks(10_000 * found.block_bytes, 8192) == (
        10_000 - bounded_groups * 512
    )


@pytest.mark.parametrize(
    ("name", "tp", "block_size", "block_bytes", "bounded_groups", "window_block"),
    [
        # What get_kv_cache_groups of vLLM 0.33 makes of layers with these heads: a
        # block holds as many more tokens as a token takes less memory.
        ("Gemma-4-26B-A4B", 1, 32, 655_360, 5, 16),
        ("Gemma-4-26B-A4B", 4, 16, 163_840, 5, 16),
        ("Gemma-4-26B-A4B", 8, 16, 163_840, 5, 32),
        ("Gemma-4-31B", 1, 32, 2_621_440, 5, 16),
        # The key of an index is in the block of all layers.
        ("DeepSeek-V3.2", 1, 16, 1_253_184, 0, 0),
        ("MiniMax-M3", 1, 16, 2_199_552, 0, 0),
    ],
)
def test_heads_of_two_widths_and_keys_of_an_index_share_blocks_as_in_vllm(
    name, tp, block_size, block_bytes, bounded_groups, window_block
):
    found = groups(name, tp)

    assert (found.block_size, found.block_bytes) == (block_size, block_bytes)
    assert found.bounded_groups == bounded_groups
    blocks = -(-1023 // window_block) + 1 if window_block else 0
    assert found.bounded_blocks == blocks


def test_a_window_is_no_longer_than_the_longest_request():
    assert kv_groups(llm("Gemma-3-27B"), 1, "bf16", 16, 320).bounded_blocks == 20


@pytest.mark.parametrize(
    ("name", "tp", "kv_dtype", "block_size"),
    [
        # vLLM: "Setting attention block size to N tokens to ensure that attention page
        # size is >= mamba page size."
        ("Qwen3-Next-80B-A3B", 1, "bf16", 544),
        ("Qwen3-Next-80B-A3B", 4, "bf16", 272),
        ("Qwen3.5-27B", 1, "bf16", 784),
        ("Qwen3.5-35B-A3B", 1, "bf16", 1056),
        ("Qwen3.5-35B-A3B", 1, "fp8", 2096),
    ],
)
def test_a_block_holds_a_state_as_the_engine_logs(name, tp, kv_dtype, block_size):
    assert groups(name, tp, kv_dtype).block_size == block_size


def test_a_state_takes_a_block_in_each_of_its_groups():
    # 12 layers with attention, 36 with a state: three groups of 12.
    found = groups("Qwen3-Next-80B-A3B")

    assert found.block_bytes == 544 * 24_576
    assert (found.bounded_groups, found.bounded_blocks) == (3, 1)
    assert groups("Qwen3-Next-80B-A3B", prefix_caching=True).bounded_blocks == 2
    assert found.blocks(10 * found.block_bytes, 8192) == 10


def test_few_layers_with_full_attention_need_no_padding_of_many():
    # 5 full and 4 windowed layers differ by less than half: two groups of 5.
    near = Architecture(
        "near", 9, 8, 2, 2, 4, 10, 16, sliding_window=8, sliding_layers=4
    )

    found = kv_groups(near, 1, "bf16", 4, LONG)

    assert found == (4, 5 * 2 * 2 * 4 * 2 * 4, 1, 3, (4,))


def test_more_layers_with_full_attention_share_a_block():
    # 6 full layers in 3 groups of the 2 windowed; 1 of these is a third of a block.
    mostly = Architecture(
        "mostly", 8, 8, 2, 2, 4, 10, 16, sliding_window=8, sliding_layers=2
    )

    found = kv_groups(mostly, 1, "bf16", 4, LONG)

    assert (found.block_bytes, found.bounded_groups) == (6 * 2 * 2 * 4 * 2 * 4, 1)


def test_the_state_of_a_gated_delta_network_by_hand():
    # Qwen3-Next: convolution 3 · (2·16·128 + 32·128), state 32·128·128, two bytes each.
    state = llm("Qwen3-Next-80B-A3B").state

    assert state.state_bytes_per_gpu(1) == 2 * (3 * 8192 + 32 * 128 * 128)
    assert state.state_bytes_per_gpu(4) == 2 * (3 * 8192 + 32 * 128 * 128) / 4


def test_groups_that_gpus_do_not_divide_are_copied():
    state = StateLayer(heads=8, head_dim=4, groups=1, state_dim=2, kernel=4)

    # Convolution over 32 + 2·groups·2 channels, copied until each GPU has a group.
    assert state.state_bytes_per_gpu(4) == 2 * (3 * (32 + 4 * 4) + 8 * 4 * 2) / 4


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ({"state_layers": 1}, "expected its shapes"),
        ({"sliding_layers": 0, "ffn_only_layers": 2}, "no layer has attention"),
    ],
)
def test_layers_that_hold_nothing_known_are_refused(shapes, complaint):
    tiny = Architecture("tiny", 2, 8, 2, 2, 4, 10, 16)

    with pytest.raises(InputError, match=complaint):
        replace(tiny, **shapes)


@pytest.mark.parametrize("name", llm_names())
def test_no_request_holds_more_than_if_all_layers_grew(name):
    found, each = llm(name), groups(name)
    tokens = 100_000
    blocks = -(-tokens // each.block_size)

    held = blocks + each.bounded_groups * min(blocks, each.bounded_blocks)

    all_layers = found.kv_bytes_per_token() / found.growing_layers
    all_layers *= found.attention_layers + found.state_layers
    assert held * each.block_bytes <= 1.25 * tokens * all_layers


@pytest.mark.parametrize(
    ("name", "layers", "indexed", "dense"),
    [("DeepSeek-V4-Flash", 43, 21, 20), ("DeepSeek-V4-Pro", 61, 30, 31)],
)
def test_compressed_attention_has_the_blocks_of_vllms_packed_groups(
    name, layers, indexed, dense
):
    """As vLLM 0.32's ``_get_packed_kv_cache_groups`` returns them for the specs of
    ``models/deepseek_v4/attention.py``, ``compressor.py`` and ``sparse_swa.py``.

    A block of 256 tokens holds 64 entries of 584 bytes and 64 keys of 132 of a layer
    with an index, and 2 entries of another, each padded to multiples of 576.
    """
    found = groups(name, kv_dtype="fp8")

    assert found.block_size == 256
    assert found.block_bytes == indexed * (37_440 + 8_640) + dense * 1_728
    # Two groups of windows: 127 tokens and a begun block of 64; states of 4 tokens
    # that overlap with 4 more, and of 128, in blocks of 4 and 8.
    assert found.bounded_groups * found.bounded_blocks == 2 * 3 + 3 + 17
    # Two iterations of 8,192 tokens are in flight.
    blocks = found.blocks(10_000 * found.block_bytes, 8192)
    assert blocks == 10_000 - 2 * (2 * 128 + 2048 + 1024)
    assert layers == llm(name).layers


def test_a_request_alone_takes_the_blocks_that_vllm_counts_for_deepseek_v4():
    """150k tokens in 7.7 GiB at ``--max-model-len 121344`` (vllm-project/vllm#51041).

    vLLM divides by what a request takes while two iterations of 8,192 of its tokens are
    in flight: 474 blocks of 256 tokens, and 259 twice, 4,099 and 2,065 of windows.
    """
    found = groups("DeepSeek-V4-Flash", kv_dtype="fp8")

    in_flight = sum(16_384 // size for size in found.window_tokens[:4])
    of_request = 121_344 // 256 + found.bounded_blocks * found.bounded_groups
    tokens = 7.7 * 2**30 / found.block_bytes / (of_request + in_flight) * 121_344
    assert tokens == pytest.approx(150_000, rel=0.08)


def test_a_block_beside_latent_attention_holds_a_state_in_multiples_of_128():
    """vLLM 0.32, ``platforms/interface.py``, ``_align_hybrid_block_size``.

    Kimi-K3: convolution 3 · 3·96·128 in 16 bits, state 96·128·128 in 32
    (``mamba_utils.py``, ``kda_state_shape``); 576 numbers of KV a token and layer.
    """
    state = (2 * 3 * 3 * 96 * 128 + 4 * 96 * 128 * 128) // 8

    found = groups("Kimi-K3", 8)

    assert found.block_size == 128 * -(-state // (576 * 2 * 128))
    # 24 layers of latent attention, 69 with a state: three groups of 24.
    assert found.block_bytes == 24 * 576 * 2 * found.block_size
    assert (found.bounded_groups, found.bounded_blocks) == (3, 1)


def test_keys_and_values_of_other_widths_and_heads_in_windows():
    # MiMo-V2-Flash: 9 layers of 4 KV heads, 39 with a window of 8, keys 192 and values
    # 128 wide (vLLM 0.32, mimo_v2.py, ``head_size_v``). A block of a window has the
    # bytes of a block of twice the tokens.
    found = groups("MiMo-V2-Flash")

    assert llm("MiMo-V2-Flash").kv_bytes_per_token() == 9 * 4 * (192 + 128) * 2
    assert found.block_size == 2 * 16
    assert found.block_bytes == 9 * 4 * (192 + 128) * 2 * 32
    assert found.bounded_blocks == 127 // 16 + 1 + 1
