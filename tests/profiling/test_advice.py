"""Each reason for which an engine refuses comes with a remedy."""

import pytest

from capplan.profiling.runner import advice

# Messages as vLLM 0.32 and torch 2.13 word them.
REASONS = {
    "Total number of attention heads (32) must be divisible by tensor parallel "
    "size (3).": "divides the attention heads",
    "RuntimeError: Failed to infer device type, please set the environment "
    "variable": "GPU and its driver",
    "ValueError: World size (4) is larger than the number of available GPUs (1)": (
        "no larger than the GPUs"
    ),
    "AssertionError: Not enough allowed NUMA nodes to bind threads of 8 local "
    "CPUWorkers.": "no larger than the GPUs",
    "ValueError: To serve at least one request with the models's max seq len "
    "(131072), (16.0 GiB KV cache is needed": "--max-model-len",
    "ValueError: No available memory for the cache blocks.": (
        "raise --gpu-memory-utilization"
    ),
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": (
        "higher TP degree"
    ),
    "the engine's process ended with signal 9 (SIGKILL)": "higher TP degree",
    "ValueError: Free memory on device (10/80 GiB) on startup is less than desired "
    "GPU memory utilization": "stop what else uses the memory",
    "ModuleNotFoundError: No module named 'vllm'": "--backend torch",
    "ModuleNotFoundError: No module named 'torch'": "capplan[torch]",
    "ValueError: User-specified max_model_len (9000) is greater than the derived "
    "max_model_len (max_position_embeddings=4096)": "that the model allows",
    "something nobody has seen": "read the log",
}


@pytest.mark.parametrize(("reason", "expected"), REASONS.items())
def test_a_reason_comes_with_what_would_do(reason, expected):
    assert expected in advice(reason)
