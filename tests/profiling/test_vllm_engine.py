"""The real vLLM engine, profiled on the CPU: run with ``-m vllm``."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from capplan.latency.profile_file import load_profile
from capplan.profiling.fitted import fit_measured
from capplan.profiling.point_file import PointFile
from capplan.profiling.runner import profile
from capplan.profiling.settings import ProfileSettings

pytestmark = pytest.mark.vllm

LLM = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
OPTIONS = {
    "load_format": "dummy",
    "dtype": "bfloat16",
    "enforce_eager": True,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 8,
    "block_size": 32,
    "kv_cache_memory_bytes": 8 * 2**20,
}
KV_BYTES_PER_TOKEN = 2 * 2 * 2 * 32 * 2  # K and V, layers, KV heads, width, bf16


@pytest.fixture(scope="module", autouse=True)
def cpu_engine():
    vllm = pytest.importorskip("vllm", reason="vLLM is not installed here")
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip(f"vLLM {vllm.__version__} is built for a GPU")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OMP_NUM_THREADS", "1")
        environment.setenv("KMP_BLOCKTIME", "0")
        environment.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLM))
    return str(folder)


def measure(llm, out, tp, **options):
    settings = ProfileSettings(
        llm=llm,
        tp=(tp,),
        out=out,
        gpu="cpu",
        density="coarse",
        engine_arg=OPTIONS | options,
    )
    (measured,) = profile(settings, lambda *progress: None)
    return measured


@pytest.mark.parametrize("tp", [1, 2])
def test_profile_fit_and_tables_in_one_go(llm, tmp_path, tp):
    if len(os.sched_getaffinity(0)) < tp:
        pytest.skip(f"TP {tp} on a CPU needs {tp} cores")

    measured = measure(llm, tmp_path, tp)

    assert measured.failure is None
    with PointFile(measured.points_path) as points:
        phases = {row.point.phase for row in points.rows}
        assert phases == {"prefill", "decode", "mixed"}
        assert all(row.seconds > 0 for row in points.rows)
    record = yaml.safe_load(measured.record_path.read_text())
    engine, reduced = record["engine"], record["all_reduce"]
    assert engine["kv_bytes_per_token"] == KV_BYTES_PER_TOKEN / tp
    assert engine["kv_blocks"] == 8 * 2**20 * tp // (KV_BYTES_PER_TOKEN * 32)
    assert bool(reduced) == (tp > 1)
    assert all(each["seconds"] > 0 for each in reduced)
    fitted = load_profile(fit_measured(measured, tmp_path))
    assert (fitted.engine, fitted.how) == ("vllm", "measured")
    fitted.tables(8, 256).check(8, 256)


def test_an_engine_that_cannot_step_ends_with_its_own_words(tmp_path):
    folder = tmp_path / "narrow"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLM | {"head_dim": 16}))

    measured = measure(str(folder), tmp_path, 1)

    assert "head_dim" in measured.failure
    assert measured.point_count == 0


RUN = """
import json, sys
from capplan.profiling.runner import profile
from capplan.profiling.settings import ProfileSettings
out, backend, llm, gpu, options = sys.argv[1:]
settings = ProfileSettings(
    llm=llm, out=out, backend=backend, gpu=gpu or None, density="coarse",
    engine_arg=json.loads(options), resume=True,
)
profile(settings, lambda *progress: None)
"""


def test_a_killed_run_goes_on_where_it_was(llm, tmp_path):
    path = tmp_path / "cpu" / "tiny" / "tp1.csv"
    command = [sys.executable, "-c", RUN, str(tmp_path), "vllm", llm, "cpu"]
    command.append(json.dumps(OPTIONS))

    killed = subprocess.Popen(command, start_new_session=True)
    while not path.exists() or path.read_bytes().count(b"\n") < 4:
        assert killed.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    kept = path.read_bytes()
    subprocess.run(command, check=True)

    assert path.read_bytes().startswith(kept)
    with PointFile(path) as points:
        assert len(points.rows) == len(points.points)
        assert {point.phase for point in points.points} == {
            "prefill",
            "decode",
            "mixed",
        }


@pytest.mark.parametrize(
    ("tp", "options", "reason", "would_do"),
    [
        (3, {}, "attention heads", "divides the attention heads"),
        (4, {}, "bind threads|NUMA|cores", "no larger than the GPUs"),
        (
            1,
            {"max_model_len": 4096},
            "max_model_len",
            "--max-model-len that the model allows",
        ),
        (
            1,
            {"kv_cache_memory_bytes": 2**16},
            "KV cache",
            "--max-model-len as small as",
        ),
        (
            1,
            {"kv_cache_memory_bytes": 2**45},
            "less than requested memory for kv",
            "more memory",
        ),
    ],
    ids=["heads", "devices", "context", "cache-too-small", "memory"],
)
def test_a_failure_is_recorded_with_the_engines_own_reason(
    llm, tmp_path, tp, options, reason, would_do
):
    if tp == 4 and len(os.sched_getaffinity(0)) >= 4:
        pytest.skip("there are cores enough for TP 4")

    measured = measure(llm, tmp_path, tp, **options)

    record = yaml.safe_load(measured.record_path.read_text())
    assert record["status"] == "failed"
    assert record["failure"]["reason"] == measured.failure
    assert any(part in measured.failure for part in reason.split("|"))
    assert would_do in measured.advice


def test_a_model_that_is_not_there_is_said(tmp_path):
    measured = measure(str(tmp_path / "nothing"), tmp_path, 1)

    assert measured.failure is not None
    assert "config.json" in measured.advice
