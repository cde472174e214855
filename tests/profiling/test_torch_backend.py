"""The plain transformer computes what a transformer does, and is profiled alike."""

import json

import pytest

from capplan.errors import ProfileError
from capplan.llm.architecture import Architecture
from capplan.profiling.backend import EngineRequest
from capplan.profiling.point_file import PointFile
from capplan.profiling.runner import profile
from capplan.profiling.scenes import Point, Prompts
from capplan.profiling.settings import ProfileSettings

torch = pytest.importorskip("torch", reason="torch is not installed here")

from capplan.profiling.torch_backend import TorchBackend, work_of  # noqa: E402
from capplan.profiling.torch_llm import TorchLlm, Work, check_llm  # noqa: E402

SHAPES = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "vocab": 97,
    "dense_ffn": 64,
    "max_positions": 256,
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 97,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
}


@pytest.fixture
def transformer():
    cpu = torch.device("cpu")
    return TorchLlm(Architecture("tiny", **SHAPES), 1, cpu, torch.float32, 512, 128)


def scores(transformer, work, tokens):
    """Run an iteration on these tokens; return the scores of what comes next."""
    transformer.tokens = torch.tensor(tokens)
    return transformer.scores(work)


def test_decoding_a_token_is_prefilling_one_more(transformer):
    tokens = list(range(3, 23))

    whole = scores(transformer, Work(0, 0, 1, 20, 0), tokens)
    scores(transformer, Work(0, 0, 1, 19, 0), tokens[:19])
    decoded = scores(transformer, Work(1, 20, 0, 0, 0), tokens[19:])

    torch.testing.assert_close(decoded, whole, rtol=1e-4, atol=1e-5)


def test_a_prompt_in_two_chunks_is_the_prompt(transformer):
    tokens = list(range(3, 23))

    whole = scores(transformer, Work(0, 0, 1, 20, 0), tokens)
    scores(transformer, Work(0, 0, 1, 12, 0), tokens[:12])
    chunked = scores(transformer, Work(0, 0, 1, 8, 12), tokens[12:])

    torch.testing.assert_close(chunked, whole, rtol=1e-4, atol=1e-5)


def test_prompts_in_one_iteration_do_not_see_each_other(transformer):
    first, second = list(range(3, 13)), list(range(40, 50))

    together = scores(transformer, Work(0, 0, 2, 10, 0), first + second)
    alone = scores(transformer, Work(0, 0, 1, 10, 0), second)

    torch.testing.assert_close(together[1:], alone, rtol=1e-4, atol=1e-5)


def test_a_chunk_beside_decoding_requests_does_not_change_it(transformer):
    prompt = list(range(3, 13))

    alone = scores(transformer, Work(0, 0, 1, 10, 0), prompt)
    beside = scores(transformer, Work(4, 30, 1, 10, 0), [7] * 4 + prompt)

    assert beside.shape == (5, 97)
    torch.testing.assert_close(beside[4:], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("point", "work"),
    [
        (Point("prefill", 4, 256, 0), Work(0, 0, 4, 64, 0)),
        (Point("prefill", 1, 64, 512), Work(0, 0, 1, 64, 512)),
        (Point("decode", 8, 8, 100), Work(8, 100, 0, 0, 0)),
        (Point("mixed", 8, 72, 100), Work(8, 100, 1, 64, 0)),
    ],
)
def test_a_point_is_the_work_of_its_iteration(point, work):
    assert work_of(point) == work


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"experts": 8, "experts_per_token": 2, "expert_ffn": 8}, "has experts"),
        ({"dense_ffn": 63}, "does not divide the feed-forward"),
    ],
)
def test_what_is_not_built_here_is_refused(shapes, reason):
    with pytest.raises(ProfileError, match=reason):
        check_llm(Architecture("tiny", **SHAPES | shapes), 2)


def test_a_setting_of_another_engine_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    backend = TorchBackend(EngineRequest(str(tmp_path), 1, {"enforce_eager": True}))

    with pytest.raises(ProfileError, match="no setting enforce_eager"):
        backend.load()


def test_a_cache_too_small_for_one_request_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    options = {"kv_cache_memory_bytes": 4096}

    with pytest.raises(ProfileError, match="at least one request"):
        TorchBackend(EngineRequest(str(tmp_path), 1, options)).load()


def test_a_scene_gives_a_sample_per_repeat(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    backend = TorchBackend(EngineRequest(str(tmp_path), 1, {"max_model_len": 128}))
    facts = backend.load()

    samples = backend.run(Prompts(2, 16, 3))

    assert facts.kv_bytes_per_token == 2 * 2 * 2 * 8 * 2
    assert "not on vLLM" in facts.note
    assert [sample.point for sample in samples] == [Point("prefill", 2, 32, 0)] * 3
    assert all(sample.seconds > 0 for sample in samples)


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1, 2])
def test_it_is_profiled_from_start_to_end(tmp_path, monkeypatch, tp):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(CONFIG))
    options = {"max_num_batched_tokens": 128, "max_num_seqs": 4}
    settings = ProfileSettings(
        llm=str(tmp_path / "tiny"),
        tp=(tp,),
        out=tmp_path,
        backend="torch",
        gpu="cpu",
        density="coarse",
        **options,
    )

    (measured,) = profile(settings, lambda *progress: None)

    assert measured.failure is None
    with PointFile(measured.points_path) as points:
        phases = {row.point.phase for row in points.rows}
    assert phases == {"prefill", "decode", "mixed"}
