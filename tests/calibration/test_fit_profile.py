"""A fit takes each fact from the flag, else from the file, else from the path."""

import json
import math

import pytest

from capplan.calibration.calibrate import NAMES
from capplan.calibration.fit_profile import PointsFit, fit_profile
from capplan.calibration.settings import FitSettings, column_values
from capplan.errors import InputError, ProfileError
from capplan.latency.profile_file import save_profile
from capplan.planning.configure.configuration import configurations
from capplan.planning.settings.plan import PlanSettings
from capplan.profiling.backend import expert_rate
from capplan.report.pages.fit import MEANINGS

ROWS = [("prefill", 1, n, 0, 0.005 + 4e-5 * n) for n in (16, 64, 256, 1024, 2048)]
ROWS += [("decode", b, b, 512, 0.005 + 2e-4 * b) for b in (1, 2, 4, 8, 16, 32)]


@pytest.fixture
def points(tmp_path):
    """Return a function that writes points with these columns beside each row."""

    def write(**columns):
        path = tmp_path / "points.csv"
        heading = [*columns, "phase", "batch", "new_tokens", "context", "seconds"]
        lines = [",".join(map(str, [*columns.values(), *row])) for row in ROWS]
        path.write_text("\n".join([",".join(heading), *lines]) + "\n")
        return path

    return write


def fitted(path, out, **given):
    return fit_profile(
        FitSettings(measurements=str(path), out=out, form="aladdin", **given)
    )


def test_the_file_names_what_was_measured(points, tmp_path):
    path = points(gpu="h100_sxm", model="Llama-3.1-8B", tp=2, version="0.9")

    result = fitted(path, tmp_path / "p.yaml")

    profile = result.profile
    assert isinstance(result, PointsFit)
    assert len(result.points.seconds) == len(ROWS)
    assert (profile.gpu, profile.llm, profile.tp) == ("H100-SXM", "Llama-3.1-8B", 2)
    assert (profile.engine, profile.engine_version) == ("vllm", "0.9")
    assert profile.source == "points.csv"


def test_names_become_those_of_the_catalogs(points, tmp_path):
    named = {"gpu": "NVIDIA H100 80GB HBM3", "llm": "meta-llama/Llama-3.1-8B-Instruct"}

    profile = fitted(points(), tmp_path / "p.yaml", **named).profile

    assert (profile.gpu, profile.llm, profile.tp) == ("H100-SXM", "Llama-3.1-8B", 1)


OWN_LLM = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


def test_a_machine_and_llm_of_no_catalog_are_planned_with_their_facts(points, tmp_path):
    config = tmp_path / "my-own-llm" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(OWN_LLM))
    named = {"gpu": "machine-of-ours", "llm": str(config), "kv_tokens": 8000}

    profile = fitted(points(), tmp_path / "p.yaml", **named).profile

    assert (profile.gpu, profile.llm) == ("machine-of-ours", "my-own-llm")
    save_profile(profile, tmp_path / "p.yaml")
    settings = PlanSettings(llm=str(config), profiles=tmp_path / "p.yaml")
    (planned,) = configurations(settings)
    assert (planned.gpu, planned.engine.kv_blocks) == ("machine-of-ours", 500)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"gpu": "machine-of-ours"}, "machine-of-ours.* give --kv-tokens, the KV"),
        ({"llm": "my-own-llm"}, "unknown LLM 'my-own-llm'; .* config.json .* --llm P"),
    ],
)
def test_what_no_plan_could_use_is_refused(points, tmp_path, named, expected):
    named = {"gpu": "H100-SXM", "llm": "Llama-3.1-8B", **named}

    with pytest.raises(InputError, match=expected):
        fitted(points(), tmp_path / "p.yaml", **named)


@pytest.mark.parametrize(
    ("named", "missing"),
    [
        ({}, "give --llm and --gpu"),
        ({"llm": "Llama-3.1-8B"}, "does not say its gpu; give --gpu"),
        ({"gpu": "L4"}, "does not say its llm; give --llm"),
    ],
)
def test_what_is_measured_must_be_named(points, tmp_path, named, missing):
    with pytest.raises(InputError, match=missing):
        fitted(points(), tmp_path / "p.yaml", **named)


def test_iterations_faster_than_the_gpu_can_be_are_refused(points, tmp_path):
    # 16 GB of weights at the L4's 300 GB/s take 54 ms; these decode in 5.
    path = points(gpu="L4", llm="Llama-3.1-8B")

    with pytest.raises(ProfileError, match="another LLM, GPU or unit"):
        fitted(path, tmp_path / "p.yaml")


def test_a_fit_writes_nothing(points, tmp_path):
    path = points(gpu="H100-SXM", llm="Llama-3.1-8B")

    fitted(path, tmp_path / "p.yaml", plot=tmp_path / "p.html")

    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("setting", ["max_num_seqs", "kv_blocks", "prefix_caching"])
def test_engine_settings_do_not_apply_to_measured_iterations(points, tmp_path, setting):
    flag = "--" + setting.replace("_", "-")
    path = points(gpu="L4", llm="Llama-3.1-8B")

    with pytest.raises(InputError, match=f"{flag} is of the engine behind a served"):
        fitted(
            path, tmp_path / "p.yaml", **{setting: 8 if "_c" not in setting else True}
        )


def test_settings_in_python_take_conditions_as_a_mapping():
    settings = FitSettings(measurements="x", out="y", where={"tp": "2"})

    assert settings.where == {"tp": "2"}
    assert column_values(["tp=2", "a=b=c"]) == {"tp": "2", "a": "b=c"}


def test_only_engine_settings_that_are_given_are_passed_on():
    given = {"block_size": 32, "async_scheduling": False}

    settings = FitSettings(measurements="x", out="y", **given)

    assert settings.engine_settings() == given
    assert FitSettings(measurements="x", out="y").engine_settings() == {}


def test_a_rate_of_experts_leaves_the_share_that_no_token_chose():
    # Mixtral: a token uses 2 of 8 experts, so b tokens leave (3/4)^b unused.
    rate = expert_rate(2, 8)

    assert math.exp(-3 * rate) == pytest.approx(0.75**3)
    assert expert_rate(0, 0) is None
    assert expert_rate(8, 8) is None


def test_the_printed_coefficients_are_those_of_the_calibration_in_order():
    assert tuple(MEANINGS) == NAMES
