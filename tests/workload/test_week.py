"""The shipped week is what its maker makes, and has the days its YAML states."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from capplan.shipped import shipped
from capplan.workload.catalog import read_yaml, shipped_workload

ROOT = Path(__file__).parents[2]
HOURLY = ROOT.parent / "shared/data/traces/published_facts"
YAML = shipped("workloads") / "azure-week-like.yaml"
HOUR_S = 3600


@pytest.fixture
def maker(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "studies"))
    import week_workload

    return week_workload


@pytest.fixture(scope="module")
def week():
    return shipped_workload("azure-week-like")


def ratios(hourly):
    """Return peak and least over the mean, and weekend over weekday, of 168 hours."""
    daily = hourly.reshape(7, 24).mean(axis=1)
    return {
        "hourly_peak": hourly.max() / hourly.mean(),
        "hourly_least": hourly.min() / hourly.mean(),
        "weekend_over_weekday": daily[5:].mean() / daily[:5].mean(),
    }


def hourly_counts(trace):
    return np.histogram(trace.arrival_s, np.arange(169) * HOUR_S)[0]


def test_the_week_is_what_its_maker_makes(maker):
    with gzip.open(YAML.parent / "azure-week-like.csv.gz", "rt") as stream:
        shipped_lines = stream.read().splitlines()

    assert maker.csv_lines(maker.week_recipe()) == shipped_lines


def test_the_week_has_the_burstiness_of_the_workload_whose_lengths_it_has():
    recipe = read_yaml(YAML)["recipe"]
    named = read_yaml(YAML.with_stem(recipe["lengths"]))["recipe"]

    assert recipe["arrivals"] == named["arrivals"]


def test_the_week_lasts_seven_days_at_its_rate(week):
    assert (np.diff(week.arrival_s) >= 0).all()
    assert 0 <= week.arrival_s[0] < 60
    assert 7 * 24 * HOUR_S - 60 < week.arrival_s[-1] < 7 * 24 * HOUR_S
    # Slow bursts, of variance 0.048 over 232 s, and Poisson noise: 0.7 % of a week.
    assert len(week) == pytest.approx(0.2 * 7 * 24 * HOUR_S, rel=0.03)


def test_the_week_and_its_curves_have_the_ratios_stated(maker, week):
    recipe, stated = maker.week_recipe(), read_yaml(YAML)["quality"]
    middle_s = HOUR_S * (np.arange(168) + 0.5)
    curve = maker.share_of_rate(recipe["share_of_rate"], middle_s)

    assert curve.mean() == pytest.approx(1, abs=1e-3)
    for of, hourly in (("fit", curve), ("rows", hourly_counts(week))):
        for name, ratio in ratios(hourly).items():
            assert ratio == pytest.approx(stated[name][of], abs=5e-3)
    # Noise of an hour: 8 % of slow bursts, 4 % of Poisson.
    assert np.std(hourly_counts(week) / (720 * curve)) == pytest.approx(0.09, abs=0.02)


def test_hours_that_follow_curves_are_fitted_by_them(maker):
    curves = maker.week_recipe()["share_of_rate"]
    middle_s = HOUR_S * (np.arange(168) + 0.5)

    fitted = maker.fitted(40 * maker.share_of_rate(curves, middle_s))

    for name, curve in curves.items():
        assert fitted[name]["mean"] == pytest.approx(curve["mean"], abs=2e-4)
        for wave in ("cos", "sin"):
            assert fitted[name][wave] == pytest.approx(curve[wave], abs=2e-4)


def test_the_curves_are_as_near_their_source_as_their_yaml_says(maker):
    source = HOURLY / "azure2024_hourly_rps_digitised.csv"
    if not source.is_file():
        pytest.skip("the hourly rates are not beside this checkout")
    with source.open() as stream:
        rates = [
            float(row["conv_rps_from_2024-05-12T00Z"]) for row in csv.DictReader(stream)
        ]
    hourly = np.roll(rates, -24)  # from Monday instead of Sunday
    curves, stated = maker.week_recipe()["share_of_rate"], read_yaml(YAML)["quality"]
    share = hourly / hourly.mean()

    curve = maker.share_of_rate(curves, HOUR_S * (np.arange(168) + 0.5))

    assert maker.fitted(hourly) == curves
    for name, ratio in ratios(hourly).items():
        assert ratio == pytest.approx(stated[name]["source"], abs=5e-3)
    explained = 1 - ((share - curve) ** 2).sum() / ((share - 1) ** 2).sum()
    relative_error = np.sqrt(((share / curve - 1) ** 2).mean())
    assert explained == pytest.approx(stated["fit"]["r_squared"], abs=1e-3)
    assert relative_error == pytest.approx(stated["fit"]["relative_error"], abs=1e-3)
