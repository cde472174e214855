"""Profiles on disk: read back as written, nonsense refused, all shipped ones sound."""

import statistics

import numpy as np
import pytest

from capplan.errors import ProfileError
from capplan.latency.catalog import list_profiles
from capplan.latency.profile import Profile
from capplan.latency.profile_file import load_profile, profile_text, save_profile
from capplan.latency.terms import DecodeTerms, FusedTerms
from capplan.shipped import shipped

SHIPPED = [listed.path for listed in list_profiles()]
MIXTURES = ("Mixtral-8x7B", "Qwen3-30B-A3B")


def profile(**changes) -> Profile:
    given = {
        "gpu": "H100-SXM",
        "llm": "Llama-3.1-8B",
        "tp": 1,
        "engine": "vllm",
        "source": "a test",
        "how": "measured",
        "decode_form": "aladdin",
        "fused_form": "quadratic",
        "decode": DecodeTerms(constant_s=8e-3, per_request_s=1e-5, per_context_s=5e-8),
        "fused": FusedTerms(constant_s=9e-3, per_token_s=2e-5, attention_s=6e-10),
        "validity": {"decode": {"batch": [1, 256], "context": [128, 8192]}},
        "errors": {"decode": {"sigma": 0.02, "mean_abs": 0.01}},
        "kv_tokens": 446_000,
        "meta": {"driver": "570.1"},
    }
    return Profile.model_validate(given | changes)


def test_a_profile_is_read_back_as_written(tmp_path):
    path = tmp_path / "deep" / "tp1.yaml"

    save_profile(profile(), path)

    assert load_profile(path) == profile()
    assert [file.name for file in path.parent.iterdir()] == ["tp1.yaml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "constant_s: 0.008",
            "constant_s: -0.008",
            r"decode.constant_s is -0.008; exp",
        ),
        ("constant_s: 0.008", "constant_s: .nan", r"decode.constant_s is nan"),
        ("constant_s: 0.008", "constant_ms: 8", r"unknown key decode.constant_ms"),
        ("gpu: H100-SXM", "gqu: H100-SXM", r"(key gpu is missing|unknown key gqu)"),
        ("tp: 1", "tp: 0", r"tp is 0; expected >= 1"),
        ("how: measured", "how: dreamt", r"how is 'dreamt'"),
        ("schema: capplan-profile/1", "schema: other", r"schema is 'other'; expected"),
        ("tp: 1", "tp: [", r"not YAML: .*; expected a profile"),
        ("tp: 1", "tp: " + 100_000 * "[", r"nested too deeply; .* expected a profile"),
        ("tp: 1", "tp: 2026-13-41", r"not YAML: month must be"),
    ],
)
def test_a_profile_edited_into_nonsense_names_file_and_key(tmp_path, old, new, message):
    path = tmp_path / "edited.yaml"
    text = profile_text(profile())
    assert old in text
    path.write_text(text.replace(old, new, 1))

    with pytest.raises(ProfileError, match=message) as caught:
        load_profile(path)

    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_yaml_that_would_run_code_is_refused(tmp_path):
    path = tmp_path / "evil.yaml"
    path.write_text("!!python/object/apply:os.system ['true']\n")

    with pytest.raises(ProfileError, match=r"not YAML: could not determine"):
        load_profile(path)


def test_the_quantile_of_one_sigma_is_one_sigma_slower():
    plain = profile().tables(64, 256)

    edge = profile().tables(64, 256, quantile=statistics.NormalDist().cdf(1))

    assert edge.decode_s[1:] == pytest.approx(1.02 * plain.decode_s[1:])
    assert edge.fused_s == pytest.approx(plain.fused_s)  # no error of prefill is known


def test_use_beyond_the_measured_range_is_reported():
    warnings = profile().beyond_range(512, 16_384, 8192)

    assert any(
        "largest batch (512 requests) is beyond the 256" in sentence
        for sentence in warnings
    )
    assert any(
        "longest request (16,384 tokens) is beyond the 8,192" in sentence
        for sentence in warnings
    )
    assert any(
        "prefill beside decode was not measured" in sentence for sentence in warnings
    )
    assert len(profile().beyond_range(256, 8192, 8192)) == 1


def test_a_note_says_how_and_where_it_was_measured():
    assert "measured on the engine itself (vllm; a test)" in profile().note()
    assert "not a measurement" in profile(how="estimate").note()


def test_profiles_are_shipped_for_three_gpu_types_and_eight_llms():
    names = {path.relative_to(shipped("profiles")).parts[:2] for path in SHIPPED}

    for gpu in ("H100-SXM", "H200-SXM", "A100-80GB-SXM"):
        for llm in ("Llama-3.1-8B", "Llama-3.1-70B", *MIXTURES):
            assert (gpu, llm) in names
    assert ("V100-32GB-SXM2", "Qwen2.5-7B") in names
    assert ("A100-80GB-SXM", "OPT-13B") in names


@pytest.mark.thorough
def test_every_shipped_profile_is_sound_and_says_where_it_is_from():
    for path in SHIPPED:
        loaded = load_profile(path)
        gpu, llm, file = path.parts[-3:]
        assert (loaded.gpu, loaded.llm, f"tp{loaded.tp}.yaml") == (gpu, llm, file)
        assert loaded.source
        assert loaded.how in ("kernel-sum", "calibrated", "published", "measured")
        table = loaded.tables(1024, 16_384).check(1024, 16_384)
        # No form may fall far where it was not measured.
        highest = np.maximum.accumulate(table.decode_s[1:])
        assert (table.decode_s[1:] > 0.5 * highest).all(), path
        highest = np.maximum.accumulate(table.fused_s[1:])
        assert (table.fused_s[1:] > 0.5 * highest).all(), path


def test_shipped_kernel_sums_are_within_the_accuracy_that_is_promised():
    profiles = [load_profile(path) for path in SHIPPED]
    sums = [profile for profile in profiles if profile.how == "kernel-sum"]
    experts = (*MIXTURES, "Gemma-4-26B-A4B")

    def errors(phase, mixtures):
        return [
            profile.errors[phase].held_out_mean_abs
            for profile in sums
            if (profile.llm in experts) == mixtures and profile.llm != "Gemma-4-31B"
        ]

    promised = {
        "prefill": (0.025, 0.08),
        "decode": (0.02, 0.06),
        "mixed": (0.025, 0.08),
    }
    for phase, (median, worst) in promised.items():
        assert statistics.median(errors(phase, False)) <= median
        assert max(errors(phase, False)) <= worst
    assert statistics.median(errors("decode", True)) <= 0.04
    assert max(errors("decode", True)) <= 0.08
    # The one dense LLM beyond the promise, told in docs/internals/latency.md.
    beyond = [one.errors["decode"] for one in sums if one.llm == "Gemma-4-31B"]
    assert 0.06 < max(error.held_out_mean_abs for error in beyond) <= 0.094
