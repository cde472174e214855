import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm, llm_names
from capplan.llm.dtypes import KV_BYTES, QUANTIZED_BYTES

MEMORY = Path(__file__).parents[3] / "shared/data/iteration_times/memory.csv"

TINY = Architecture(
    "tiny", layers=2, hidden=8, heads=4, kv_heads=2, head_dim=2, vocab=10, dense_ffn=16
)


def memory_rows():
    if not MEMORY.exists():
        return []
    with MEMORY.open(newline="") as file:
        return [row for row in csv.DictReader(file) if not row["error"]]


def test_weights_of_a_tiny_llm_by_hand():
    # per layer: q 8·8, k and v 2·8·4, out 8·8, ffn 3·8·16, norms 2·8
    matrices = 2 * (64 + 64 + 64 + 384)
    rest = 2 * 10 * 8 + 2 * 16 + 8

    assert TINY.parameter_count == matrices + rest
    assert TINY.weight_bytes() == 2 * (matrices + rest)
    assert TINY.weight_bytes(dtype="fp8") == matrices + 2 * rest


def test_kv_heads_fewer_than_gpus_are_copied_in_weights_and_kv():
    # TP 4: a quarter of q, out, ffn and the embeddings, one of 2 KV heads, all norms
    layer = (64 + 64 + 384) / 4 + 2 * 8 * 2
    rest = 2 * 10 * 8 / 4 + 2 * 16 + 8

    assert TINY.weight_bytes_per_gpu(4) == 2 * (2 * layer + rest)
    assert TINY.kv_bytes_per_token_per_gpu(4) == 2 * 2 * 1 * 2 * 2
    assert TINY.kv_bytes_per_token_per_gpu(2) == 2 * 2 * 1 * 2 * 2
    assert TINY.kv_bytes_per_token_per_gpu(1) == 2 * 2 * 2 * 2 * 2


def test_compressed_kv_is_on_each_gpu():
    # DeepSeek-V2, section 2.1.3 and table 1: (d_c + d_R) · layers elements a token.
    v3 = llm("DeepSeek-V3")

    per_token = (512 + 64) * 61

    assert v3.kv_bytes_per_token("fp8") == per_token
    assert v3.kv_bytes_per_token_per_gpu(8) == 2 * per_token


def test_kv_of_multi_head_attention_is_that_of_accelgen():
    # AccelGen, Eq. 5: 4·layers·H bytes a token in fp16.
    opt = llm("OPT-13B")

    assert opt.kv_bytes_per_token("fp16") == 4 * 40 * 5120


def test_arithmetic_is_two_per_parameter_and_grows_with_the_context():
    # Attention: 2 products of 2·heads·head_dim per earlier token and layer.
    assert TINY.flops_per_token() == 2 * TINY.active_parameter_count
    assert TINY.flops_per_token(5) - TINY.flops_per_token() == 5 * 2 * 4 * 4 * 2


def test_a_token_uses_only_its_experts():
    mixed = replace(TINY, experts=4, experts_per_token=1, expert_ffn=16)

    unused = 2 * 3 * (3 * 8 * 16)

    input_embedding_and_last_norm = 10 * 8 + 8
    active = mixed.parameter_count - unused - input_embedding_and_last_norm
    assert mixed.active_parameter_count == active


def test_gpt_oss_weighs_what_its_model_card_says():
    # gpt-oss model card, table 1: checkpoints of 60.8 and 12.8 GiB.
    assert llm("gpt-oss-120b").weight_bytes() / 2**30 == pytest.approx(60.8, rel=0.01)
    assert llm("gpt-oss-20b").weight_bytes() / 2**30 == pytest.approx(12.8, rel=0.01)


def test_block_fp8_weighs_what_the_checkpoint_does():
    # DeepSeek-V3's page: 671 B parameters of the main model in FP8, embeddings in BF16.
    v3 = llm("DeepSeek-V3")
    embeddings = 2 * 129_280 * 7168

    assert v3.weight_bytes() == pytest.approx(671.03e9 + embeddings, rel=1e-3)
    assert v3.weight_bytes() > v3.weight_bytes(dtype="fp8")


def test_nvfp4_quantizes_all_matrices_but_those_of_latent_attention():
    # 4 bits and an 8-bit scale for each 16; NVIDIA's DeepSeek checkpoints exclude
    # self_attn (hf_quant_config.json).
    llama, v3 = llm("Llama-3.3-70B"), llm("DeepSeek-V3")
    embeddings = 2 * 128_256 * 8192
    attention = 61 * 187_107_328  # 7168·2112 + 1536·24576 + 512·32768 + 16384·7168

    dense = (llama.parameter_count - embeddings) * 4.5 / 8 + 2 * embeddings
    assert llama.weight_bytes(dtype="nvfp4") == pytest.approx(dense, rel=1e-3)
    experts = (v3.parameter_count - attention - 2 * 129_280 * 7168) * 4.5 / 8
    rest = 2 * (attention + 2 * 129_280 * 7168)
    assert v3.weight_bytes(dtype="nvfp4") == pytest.approx(experts + rest, rel=1e-3)


def test_kimi_k2_thinking_weighs_what_its_checkpoint_does():
    # Its page: 594 GB. Experts have 4 bits in groups of 32, the rest has 16.
    assert llm("Kimi-K2-Thinking").weight_bytes() == pytest.approx(594e9, rel=0.01)


@pytest.mark.parametrize("dtype", ["mxfp4", "int4_g32"])
def test_without_experts_all_matrices_are_quantized(dtype):
    dense = llm("Llama-3.1-8B")

    assert dense.weight_bytes(dtype=dtype) < 0.5 * dense.weight_bytes()


@pytest.mark.parametrize("row", memory_rows() or [None])
def test_weights_and_kv_are_those_of_the_published_estimator(row):
    if row is None:
        pytest.skip("the memory table is not here")
    found, tp = llm(row["model"]), int(row["tp"])
    kv_dtype = "fp8" if row["model"].endswith("FP8") else "bf16"
    # The estimator leaves one of the two embeddings out for mixtures of experts:
    # 1.02 % of Qwen3-30B-A3B.
    tolerance = 0.0105 if row["model"] == "Qwen3-30B-A3B" else 0.01

    weights = found.weight_bytes_per_gpu(tp)
    kv = found.kv_bytes_per_token_per_gpu(tp, kv_dtype)

    assert weights == pytest.approx(int(row["weights_bytes"]), rel=tolerance)
    assert kv == pytest.approx(int(row["kv_bytes_per_token_per_gpu"]), rel=1e-3)


@given(
    name=st.sampled_from(llm_names()),
    tp=st.sampled_from([1, 2, 4, 8]),
    dtype=st.sampled_from(sorted(QUANTIZED_BYTES)),
    kv_dtype=st.sampled_from(sorted(KV_BYTES)),
)
def test_splitting_never_lightens_the_replica_nor_burdens_a_gpu(
    name, tp, dtype, kv_dtype
):
    found = llm(name)
    assume(found.heads % tp == 0)
    assume(found.kv_heads % tp == 0 or tp % found.kv_heads == 0)

    assert found.weight_bytes(tp, dtype) >= found.weight_bytes(1, dtype) - tp
    assert found.weight_bytes_per_gpu(tp, dtype) <= found.weight_bytes_per_gpu(1, dtype)
    assert found.weight_bytes(tp, dtype) <= found.weight_bytes(tp, "bf16")
    per_gpu = found.kv_bytes_per_token_per_gpu(tp, kv_dtype)
    assert found.kv_bytes_per_token(kv_dtype) / tp <= per_gpu
    assert per_gpu <= found.kv_bytes_per_token(kv_dtype)


@pytest.mark.parametrize(
    ("tp", "complaint"),
    [(0, "TP is 0"), (3, "TP 3 does not divide"), (8, "TP 8 does not divide")],
)
def test_a_degree_that_the_heads_do_not_divide_by_is_refused(tp, complaint):
    with pytest.raises(InputError, match=complaint):
        TINY.weight_bytes(tp)


def test_kv_heads_that_can_be_neither_split_nor_copied_are_refused():
    odd = replace(TINY, heads=12, kv_heads=6)

    with pytest.raises(InputError, match="6 KV heads; TP 4"):
        odd.kv_bytes_per_token_per_gpu(4)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 0),
        ("kv_heads", 3),
        ("dense_ffn", 0),
        ("weight_dtype", "fp3"),
        ("experts", 4),
    ],
)
def test_what_is_no_transformer_is_refused(field, value):
    with pytest.raises(InputError):
        replace(TINY, **{field: value})


@pytest.mark.parametrize("dtype", ["int4", "float8", ""])
def test_an_unknown_kv_dtype_is_refused(dtype):
    with pytest.raises(InputError, match="KV dtype"):
        TINY.kv_bytes_per_token(dtype)


@pytest.mark.parametrize(
    ("engine", "short"),
    [("bfloat16", "bf16"), ("float16", "fp16"), ("fp8_e4m3", "fp8")],
)
def test_dtypes_may_be_named_as_engines_do(engine, short):
    assert TINY.kv_bytes_per_token(engine) == TINY.kv_bytes_per_token(short)
    assert TINY.weight_bytes(dtype=engine) == TINY.weight_bytes(dtype=short)
