"""Fits recover what is known, choose the true form and refuse what cannot be fitted."""

import numpy as np
import pytest

from capplan.errors import ProfileError
from capplan.latency.fit import fit
from capplan.latency.forms import DECODE_FORMS, FUSED_FORMS, predict
from capplan.latency.measurements import Points, points_from_rows
from capplan.latency.terms import DecodeTerms, FusedTerms


def grid() -> Points:
    rows = [
        ("decode", batch, batch, context, 1.0)
        for batch in (1, 2, 3, 4, 8, 9, 16, 17, 32, 33, 64, 65, 96, 128, 129, 200, 256)
        for context in (128, 512, 1024, 2048, 4096)
    ]
    rows += [
        ("prefill", prompts, tokens, cached, 1.0)
        for prompts in (1, 4)
        for tokens in (64, 128, 200, 256, 400, 512, 768, 1024, 1500, 2048, 4096, 8192)
        for cached in (0, 2048)
    ]
    rows += [
        ("mixed", batch, batch + chunk, context, 1.0)
        for batch in (1, 8, 32, 128)
        for chunk in (128, 512, 2048)
        for context in (256, 2048)
    ]
    return points_from_rows(rows)


def measured(decode: DecodeTerms, fused: FusedTerms, noise: float, seed: int) -> Points:
    points = grid()
    true_s = np.where(
        points.phase == 1, predict(decode, points), predict(fused, points)
    )
    wobble = np.random.default_rng(seed).normal(1.0, noise, len(true_s))
    return points._replace(seconds=true_s * wobble)


DECODE = DecodeTerms(constant_s=8e-3, per_request_s=4e-5, per_context_s=5e-8)
FUSED = FusedTerms(
    constant_s=9e-3,
    per_token_s=2e-5,
    attention_s=6e-10,
    per_request_s=1e-5,
    per_context_s=5e-8,
)


def test_known_coefficients_are_recovered_without_bias():
    estimates = []
    for seed in range(30):
        fitted = fit(
            measured(DECODE, FUSED, 0.02, seed),
            decode_form="aladdin",
            fused_form="quadratic",
        )
        estimates.append(
            [
                fitted.decode.constant_s,
                fitted.decode.per_request_s,
                fitted.decode.per_context_s,
                fitted.fused.constant_s,
                fitted.fused.per_token_s,
                fitted.fused.attention_s,
                fitted.fused.per_request_s,
                fitted.fused.per_context_s,
            ]
        )
    true = np.array([8e-3, 4e-5, 5e-8, 9e-3, 2e-5, 6e-10, 1e-5, 5e-8])
    estimates = np.array(estimates)

    z = (estimates.mean(axis=0) - true) / (
        estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    )

    # Eight z-values: one beyond 3.5 happens by chance in one of 250 draws.
    assert np.abs(z).max() < 3.5


def test_weights_of_one_over_prediction_do_not_favour_fast_points():
    true_s = 0.01
    points = measured(DecodeTerms(constant_s=true_s), FUSED, 0.1, 3)

    fitted = fit(points, decode_form="aladdin", fused_form="quadratic")

    seconds = points.of("decode").seconds
    predicted_s = fitted.decode.base_s(np.array([64.0]))[0]
    weighted_by_observation = (1 / seconds).sum() / (1 / seconds**2).sum()
    assert weighted_by_observation < 0.985 * true_s
    assert predicted_s == pytest.approx(true_s, rel=0.03)


TRUE_DECODE = {
    "aladdin": DECODE,
    "interaction": DecodeTerms(
        constant_s=8e-3, per_request_s=4e-5, per_context_s=5e-8, per_mean_context_s=2e-6
    ),
    "hinge": DecodeTerms(
        constant_s=8e-3,
        per_request_s=1e-5,
        beyond_batch=64,
        per_request_beyond_s=1e-4,
        per_context_s=5e-8,
    ),
    "saturation": DecodeTerms(
        constant_s=3e-3,
        per_request_s=2e-5,
        saturation_rate=0.15,
        saturation_s=2e-2,
        per_context_s=5e-8,
    ),
    "steps": DecodeTerms(
        batch=[1, 16, 17, 64, 65, 128, 129, 256],
        batch_s=[8e-3, 8e-3, 2e-2, 1.6e-2, 3e-2, 2.4e-2, 5e-2, 4e-2],
        per_context_s=5e-8,
    ),
}

TRUE_FUSED = {
    "aladdin": FUSED.model_copy(update={"attention_s": 0.0}),
    "quadratic": FUSED,
    "hinge": FUSED.model_copy(
        update={
            "per_token_s": 2e-6,
            "beyond_tokens": [400],
            "per_token_beyond_s": [2e-5],
        }
    ),
    "steps": FusedTerms(
        tokens=[1, 256, 257, 1024, 1025, 4096, 4097, 16384],
        tokens_s=[1e-2, 1.2e-2, 3e-2, 4e-2, 8e-2, 1e-1, 0.3, 1.0],
        attention_s=6e-10,
        per_context_s=5e-8,
    ),
}


@pytest.mark.parametrize("form", TRUE_DECODE)
def test_cross_validation_chooses_the_true_form_of_decode(form):
    points = measured(TRUE_DECODE[form], FUSED, 0.002, 11)

    fitted = fit(points, fused_form="quadratic")

    assert fitted.decode_form == form
    assert fitted.errors["decode"].held_out_mean_abs < 0.01


@pytest.mark.parametrize("form", TRUE_FUSED)
def test_cross_validation_chooses_the_true_form_of_prefill(form):
    points = measured(DECODE, TRUE_FUSED[form], 0.002, 5)

    fitted = fit(points, decode_form="aladdin")

    assert fitted.fused_form == form
    assert fitted.errors["prefill"].held_out_mean_abs < 0.01


@pytest.mark.parametrize("form", DECODE_FORMS)
def test_every_decode_form_never_falls_below_zero(form):
    points = measured(DECODE, FUSED, 0.05, 1)

    decode = fit(points, decode_form=form, fused_form="aladdin").decode

    batch = np.arange(1, 1025, dtype=float)
    assert (decode.base_s(batch) > 0).all()
    assert (decode.context_s(batch) >= 0).all()


@pytest.mark.parametrize("form", [name for name in FUSED_FORMS if name != "steps"])
def test_more_tokens_never_take_less_time(form):
    points = measured(DECODE, FUSED, 0.05, 1)

    fused = fit(points, decode_form="aladdin", fused_form=form).fused

    time_s = fused.tokens_time_s(np.arange(1, 20_000, dtype=float))
    assert (np.diff(time_s) >= -1e-12).all()


def test_the_choice_is_explained_for_every_form_tried():
    fitted = fit(measured(DECODE, FUSED, 0.01, 2))

    assert {row.form for row in fitted.scores if row.part == "decode"} == set(
        DECODE_FORMS
    )
    assert sum(row.chosen for row in fitted.scores) == 2
    assert all(row.reason for row in fitted.scores)


def test_sigma_is_the_noise_of_the_points():
    fitted = fit(measured(DECODE, FUSED, 0.03, 9), form="aladdin")

    assert fitted.errors["decode"].sigma == pytest.approx(0.03, rel=0.3)


def test_an_unknown_form_names_those_there_are():
    with pytest.raises(ProfileError, match="'cubic' is unknown; expected aladdin"):
        fit(measured(DECODE, FUSED, 0.0, 0), form="cubic")


@pytest.mark.parametrize("missing", ["prefill", "decode"])
def test_a_profile_needs_prefill_and_decode(missing):
    points = measured(DECODE, FUSED, 0.0, 0)
    others = [name for name in ("prefill", "decode", "mixed") if name != missing]

    with pytest.raises(ProfileError, match=f"no {missing} point"):
        fit(points.of(*others))


def test_too_few_points_say_how_many_the_form_needs():
    rows = [("decode", b, b, 128, 0.01) for b in (1, 2)]
    rows += [("prefill", 1, n, 0, 0.02) for n in (128, 256, 512)]

    with pytest.raises(ProfileError, match="'aladdin' needs at least 4 points"):
        fit(points_from_rows(rows), form="aladdin")


def test_decode_beside_prefill_costs_as_alone_where_it_was_not_measured():
    points = measured(DECODE, FUSED, 0.0, 0).of("prefill", "decode")

    fitted = fit(points, decode_form="aladdin", fused_form="quadratic")

    batch = np.array([64.0, 256.0])
    alone_s = fitted.decode.base_s(batch)
    fused_s = fitted.fused.tokens_time_s(batch) + fitted.fused.decode_share_s(batch)
    assert (fused_s >= alone_s * 0.999).all()
    assert fitted.fused.context_s(batch) == pytest.approx(
        fitted.decode.context_s(batch)
    )
