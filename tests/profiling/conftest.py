from importlib import import_module
from pathlib import Path

import pytest

from capplan.profiling.backend import EngineFacts


@pytest.fixture
def lawful(monkeypatch):
    """Name of the backend with a known law, importable in subprocesses too."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", here)
    return "lawful_backend:LawfulBackend"


@pytest.fixture
def law(lawful):
    """Return the module with the law."""
    return import_module(lawful.partition(":")[0])


@pytest.fixture
def engine_facts():
    """Return facts of an engine with the limits that a test names."""

    def make(**engine):
        known = {
            "device": "a device",
            "backend": "an engine",
            "backend_version": "1",
            "torch_version": "1",
            "driver": "none",
            "dtype": "bfloat16",
            "quantization": "none",
            "kv_cache_dtype": "auto",
            "max_model_len": 8192,
            "max_num_batched_tokens": 2048,
            "max_num_seqs": 256,
            "block_size": 16,
            "kv_blocks": 8193,
            "kv_bytes_per_token": 1024.0,
            "async_scheduling": False,
            "layers": 4,
        }
        return EngineFacts(**known | engine)

    return make
