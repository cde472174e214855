"""Plans with prompts and decoding apart, beside replicas that do both."""

import pytest

from capplan.planning.plan import plan
from capplan.planning.settings import PlanSettings

ASKED = {
    "workload": "synthetic:prompt=900,output=120,n=1500",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": (1, 2),
    "rate": 60,
    "slo": "ttft=1s,tpot=15ms",
    "disaggregated": True,
    "as_of": "2026-11-20",
}


def planned(**more):
    return plan(PlanSettings(**{**ASKED, **more}))


@pytest.fixture(scope="module")
def both():
    return planned()


def test_candidates_of_both_kinds_stand_in_one_table(both):
    pairs = {
        tuple(pool.tp for pool in row.pools) for row in both.candidates if row.pools
    }

    assert pairs == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert {row.tp for row in both.candidates if not row.pools} == {1, 2}


def test_the_best_of_each_kind_are_held_against_each_other(both):
    whole, apart = both.best_aggregated, both.best_disaggregated

    assert not whole.pools
    assert [pool.role for pool in apart.pools] == ["prefill", "decode"]
    assert both.best in (whole, apart)
    assert both.disaggregation.gpu_count_saved == whole.gpu_count - apart.gpu_count
    assert both.disaggregation.usd_per_h_saved == pytest.approx(
        whole.cost.usd_per_h - apart.cost.usd_per_h
    )
    assert both.disaggregation.pays == (apart.cost.usd_per_h < whole.cost.usd_per_h)
