"""Load tests that say they are of another system than the profile they calibrate."""

import json
import warnings

import pytest

from capplan.calibration.sweep_file import read_sweep
from capplan.calibration.target import Target
from capplan.cli.main import exit_code
from capplan.errors import CapplanWarning, InputError
from capplan.llm.catalog import llm
from tests.calibration.test_sweep_file import (
    AIPERF,
    GUIDELLM,
    HEAD,
    INFERENCEMAX,
    SGLANG,
    VLLM,
    changed,
)

SERVER = SGLANG["server_info"]
OTHER = "Qwen/Qwen3-235B-A22B-FP8"


def target(name="H100-SXM/Llama-3.1-8B/tp1", **changes):
    gpu, model, tp = name.split("/")
    return Target(name, llm(model), gpu, int(tp.removeprefix("tp")), **changes)


def sweep(folder, *tests):
    for number, test in enumerate(tests):
        (folder / f"{number}.json").write_text(json.dumps(test))
    return folder


@pytest.mark.parametrize(
    "test",
    [
        VLLM | {"model_id": OTHER},
        VLLM | {"server_info": {"model_path": OTHER, "tp_size": 1}},  # SGLang
        INFERENCEMAX | {"hw": "h100", "tp": 1, "model": OTHER},
        GUIDELLM | {"config": {"backend": {"model": OTHER}, **GUIDELLM["config"]}},
        AIPERF | {"input_config": {"endpoint": {"model_names": [OTHER]}}},
        AIPERF | {"input_config": {"models": {"items": [{"name": OTHER}]}}},
    ],
    ids=["vllm", "sglang", "inferencemax", "guidellm", "aiperf", "aiperf-1.4"],
)
def test_a_sweep_of_another_llm_is_refused_whatever_wrote_it(test, tmp_path):
    with pytest.raises(InputError, match=OTHER) as error:
        read_sweep(sweep(tmp_path, test), 1, {}, target())

    assert "expected Llama-3.1-8B" in str(error.value)
    assert "--force" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_named_once_for_all_benchmarks_of_guidellm_is_compared(tmp_path):
    content = {"args": {"model": OTHER}, "benchmarks": [GUIDELLM]}

    with pytest.raises(InputError, match=f"model is {OTHER}"):
        read_sweep(sweep(tmp_path, content), 1, {}, target())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"hw": "b200-nb"}, "hw is b200-nb (expected H100-SXM)"),
        ({"tp": 8}, "tp is 8 (expected 1)"),
        ({"precision": "fp8"}, "precision is fp8 (expected weights in bf16)"),
        ({"spec_decoding": "mtp"}, "spec_decoding is mtp (expected none)"),
        ({"disagg": True}, "disagg is true (expected none)"),
        ({"dp_attention": "true"}, "dp_attention is true (expected none)"),
        ({"ep": 8}, "ep is 8 (expected 1)"),
    ],
    ids=str,
)
def test_each_aspect_that_a_test_states_is_compared(said, message, tmp_path):
    own = {"hw": "h100", "tp": 1, "model": "meta-llama/Llama-3.1-8B-Instruct"}

    with pytest.raises(InputError) as error:
        read_sweep(sweep(tmp_path, INFERENCEMAX | own | said), 1, {}, target())

    assert message in str(error.value)


def test_a_column_of_a_table_is_compared(tmp_path):
    path = tmp_path / "sweep.csv"
    head = HEAD.replace("isl", "gpu,tp,isl")
    path.write_text(head + "h200,1,1024,256,4,12,,\nh200,1,1024,256,8,14,,\n")

    with pytest.raises(
        InputError, match=r":2 and 1 more: is not of .*gpu is h200 \(expected H10"
    ):
        read_sweep(path, 1, {}, target())


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("/mnt/models/llama-3.1-8b-instruct/", "Llama-3.1-8B"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "Llama-3.1-8B-FP8"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "Llama-3.1-8B-AWQ"),
        ("meta-llama/Llama-3.1-70B-Instruct", "Llama-3.3-70B"),  # the same shapes
        ("amd/DeepSeek-R1-0528-MXFP4-Preview", "DeepSeek-R1-MXFP4"),
    ],
)
def test_whoever_publishes_an_llm_it_is_the_same(model, name, tmp_path):
    tests = [changed(VLLM | {"model_id": model}, users) for users in (8, 16)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        points = read_sweep(
            sweep(tmp_path, *tests), 1, {}, target(f"H/{name}/tp1")
        ).points

    assert len(points) == 2


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B-FP8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "Llama-3.1-8B"),
        ("acme/no-such-llm", "Llama-3.1-8B"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "DeepSeek-R1"),
    ],
)
def test_another_precision_or_an_unknown_repository_is_refused(model, name, tmp_path):
    with pytest.raises(InputError, match=f"model_id is {model}"):
        read_sweep(
            sweep(tmp_path, VLLM | {"model_id": model}), 1, {}, target(f"H/{name}/tp1")
        )


@pytest.mark.parametrize("hw", ["h100", "H100-SXM", "h100-cw", "NVIDIA H100 GPU (8x)"])
def test_a_gpu_is_known_under_the_names_of_clusters(hw, tmp_path):
    tests = [changed(VLLM | {"hw": hw}, users) for users in (8, 16)]

    assert len(read_sweep(sweep(tmp_path, *tests), 1, {}, target()).points) == 2


@pytest.mark.parametrize("hw", ["H100-PCIe", "h100_nvl", "gh200", "NVIDIA H800"])
def test_a_gpu_that_only_sounds_alike_is_refused(hw, tmp_path):
    with pytest.raises(InputError, match=f"hw is {hw}"):
        read_sweep(sweep(tmp_path, VLLM | {"hw": hw}), 1, {}, target())


def test_a_name_of_the_servers_own_is_taken_and_said(tmp_path):
    tests = [changed(VLLM | {"model_id": "our-chat"}, users) for users in (8, 16)]

    with pytest.warns(CapplanWarning, match="our-chat, which the catalog does not"):
        points = read_sweep(sweep(tmp_path, *tests), 1, {}, target()).points

    assert len(points) == 2


def test_force_takes_another_system_and_says_so(tmp_path):
    tests = [changed(VLLM | {"model_id": OTHER}, users) for users in (8, 16)]

    with pytest.warns(CapplanWarning, match=f"model_id is {OTHER}.*taken by --force"):
        points = read_sweep(
            sweep(tmp_path, *tests), 1, {}, target(is_forced=True)
        ).points

    assert len(points) == 2


def test_fit_onto_refuses_two_pools_by_their_word_disagg(tmp_path, capsys):
    two_pools = INFERENCEMAX | {"disagg": True, "prefill_tp": 4, "decode_tp": 8}
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([changed(two_pools, users) for users in (4, 16)]))
    out = tmp_path / "x.yaml"

    code = exit_code(
        ["fit", "--from", str(path), "--onto", "H200/Llama-3.1-8B/tp2", "-o", str(out)]
    )

    assert code == 2
    assert "disagg is true" in capsys.readouterr().err
    assert not out.exists()


def test_a_served_run_of_another_llm_is_refused(tmp_path, capsys):
    run = {
        "endpoint_type": "vllm",
        "model_id": OTHER,
        "ttfts": [0.1] * 30,
        "itls": [[0.01] * 4] * 30,
        "input_lens": [100] * 30,
        "output_lens": [5] * 30,
        "start_times": [float(at) for at in range(30)],
        "errors": [""] * 30,
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))

    asked = f"fit --from {path} --llm Llama-3.1-8B --gpu H100 --kv-blocks 9000"

    code = exit_code([*asked.split(), "-o", str(tmp_path / "x.yaml")])

    assert code == 2
    assert f"model_id is {OTHER} (expected Llama-3.1-8B)" in capsys.readouterr().err


def test_load_tests_without_a_profile_name_the_one_they_state(tmp_path, capsys):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(SGLANG | {"server_info": {**SERVER, "tp_size": 2}}))

    code = exit_code(["fit", "--from", str(path), "-o", str(tmp_path / "x.yaml")])

    assert code == 2
    assert "named with --onto GPU/Llama-3.1-8B/tp2" in capsys.readouterr().err


def test_another_llm_names_the_profile_that_fits(tmp_path):
    other = SGLANG | {"server_info": {"model_path": "Qwen/Qwen3-32B", "tp_size": 1}}

    with pytest.raises(InputError, match=r"; --onto H100-SXM/Qwen3-32B/tp1 fits; "):
        read_sweep(sweep(tmp_path, other), 1, {}, target())
