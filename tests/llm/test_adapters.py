"""Memory of LoRA adapters, as vLLM's layers allocate it."""

import pytest

from capplan.errors import InputError
from capplan.llm.adapters import check_adapters, slot_bytes
from capplan.llm.catalog import llm


def test_an_adapter_of_llama_has_the_parameters_of_its_matrices():
    # Llama-3.1-8B, rank 16, 32 layers: q and o 4,096 + 4,096, k and v 4,096 + 1,024,
    # gate, up and down 4,096 + 14,336; both embeddings 128,256 + 4,096.
    layer = 2 * 8192 + 2 * 5120 + 3 * 18432
    parameters = 16 * (32 * layer + 2 * (128256 + 4096))

    assert slot_bytes(llm("Llama-3.1-8B"), 1, 16) == 2 * parameters


def test_tp_splits_one_of_the_two_matrices():
    # TP 4: A of q, k, v, gate and up whole, B split; of o and down the other way round.
    layer = (4096 + 1024) * 2 + 2 * (4096 + 256) + 3 * (4096 + 3584)
    parameters = 16 * (32 * layer + 2 * (128256 + 4096))

    assert slot_bytes(llm("Llama-3.1-8B"), 4, 16) == 2 * parameters


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("DeepSeek-R1", "experts"),
        ("Qwen3-235B-A22B", "experts"),
        ("Qwen3.5-27B", "recurrent states"),
    ],
)
def test_adapters_of_other_layers_are_refused(name, what):
    with pytest.raises(InputError, match=f"an LLM with {what} are not modelled"):
        check_adapters(llm(name))
