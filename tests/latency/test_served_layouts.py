"""DeepSeek-R1 as served in layouts of EP, DP attention and MTP, against predictions."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from capplan.latency.contract import linear_tables
from capplan.latency.rank_tables import RankTables
from capplan.llm.layout import Layout

SERVED = Path(__file__).parents[3] / "shared/data/served/deepseek_r1.csv"
NEEDS_RUNS = pytest.mark.skipif(
    not SERVED.exists(), reason="shared data is not beside the tree"
)
STUDIES = Path(__file__).parents[2] / "examples" / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    import served_layouts

    yield served_layouts
    sys.modules.pop("served_layouts", None)


def run(**changes):
    """Return a run of 8 users on two ranks, prompts of 1,000 and answers of 100."""
    columns = {
        "hardware": "h200",
        "framework": "sglang",
        "precision": "fp8",
        "spec_method": "none",
        "disagg": False,
        "isl": 1000,
        "osl": 100,
        "conc": 8,
        "decode_tp": 2,
        "decode_ep": 2,
        "decode_dp_attention": True,
        "decode_num_workers": 0,
        "ttft": 0.1,
        "e2el": 1.0,
    }
    return SimpleNamespace(**(columns | changes))


def two_ranks():
    """Ranks of 1 ms and 0.1 ms a request, 10 µs a prompt token, experts 1 ms."""
    rank = linear_tables(1e-3, 1e-5, 0, 1e-4, 0, max_batch=64, max_tokens=2000)
    experts_s, none_s = np.full(5000, 1e-3), np.zeros(2500)
    return RankTables(rank, 2, experts_s, experts_s, none_s, none_s)


def test_an_aggregated_run_is_a_decode_and_its_share_of_prompts(study):
    found = study.predict(run(), Layout(1, 2, 2), two_ranks(), 1)

    # A decode of 4 on each rank is 1 + 0.4 + 1 ms; each of 8 prompts of 900 tokens adds
    # 9 ms once in the 90 tokens of an answer.
    assert found.tpot_s == pytest.approx(2.4e-3 + 8 / 90 * 9e-3)
    assert found.prompt_s == pytest.approx(2.4e-3 + 9e-3)
    request_s = found.prompt_s + 89 * found.tpot_s
    assert found.output_per_gpu_per_s == pytest.approx(8 * 90 / request_s / 2)


def test_prompts_on_both_ranks_at_once_hold_up_half_as_often(study):
    found = study.predict(run(), Layout(1, 2, 2), two_ranks(), 2)

    assert found.tpot_s == pytest.approx(2.4e-3 + 8 / 90 / 2 * 9e-3)


def test_a_decode_pool_has_the_users_that_decode(study):
    of = run(disagg=True, decode_num_workers=2, conc=16, ttft=0.5)

    found = study.predict(of, Layout(1, 2, 2), two_ranks(), 1)

    # Half of 16 users decode, on two workers of two ranks: two a rank.
    assert found.tpot_s == pytest.approx(2.2e-3)
    assert np.isnan(found.output_per_gpu_per_s)


def test_drafts_are_verified_and_accepted_at_v4s_rates(study):
    of = run(spec_method="mtp", disagg=True, decode_num_workers=1, conc=16, ttft=0.5)

    found = study.predict(of, Layout(1, 2, 2), two_ranks(), 1)

    # Four a rank, two drafts each: 8 tokens of 10 µs more, two layers more of 61.
    step_s = (2.4e-3 + 8e-5) * 63 / 61
    assert found.tpot_s == pytest.approx(step_s / 2.27)


def test_the_layout_is_that_of_the_workers_that_decode(study):
    assert study.layout_of(run()) == Layout(1, 2, 2)
    assert study.layout_of(run(decode_dp_attention=False, decode_tp=8)) == Layout(
        8, 1, 2
    )
    assert study.layout_of(run(disagg=True)) is None


def test_a_factor_is_of_other_configurations_and_where_there_are_four(study):
    groups = [
        pd.DataFrame({"tpot": [value], "engine": ["sglang"]})
        for value in (1.0, 1.1, 1.2, 1.3, 2.0)
    ]

    assert study.factor(groups, groups[-1], "tpot") == pytest.approx(1.15)
    assert study.factor(groups[:4], groups[0], "tpot") == 1.0
    assert study.error(pd.Series([2.0, 0.5]), 1.0) == pytest.approx(0.75)


@pytest.mark.thorough
@NEEDS_RUNS
def test_served_configurations_are_predicted_within_the_stated_errors(study):
    runs = study.predicted_runs(pd.read_csv(SERVED))

    rows = {row["class"]: row for row in study.scored(runs)}

    # Medians over configurations, nothing fitted: docs/internals/latency.md.
    for kind, most in STATED.items():
        assert rows[kind]["tpot"] <= most, kind
    assert rows["TP alone"]["runs"] >= 90
    assert rows["EP"]["output"] <= 0.15


STATED = {
    "TP alone": 0.10,
    "EP": 0.16,
    "MTP": 0.16,
    "DP attention, at once": 0.20,
    "decode pools, TP or EP": 0.12,
    "decode pools, MTP and DP attention": 0.15,
}


@pytest.mark.thorough
@NEEDS_RUNS
def test_fleets_of_two_pools_are_simulated_within_the_stated_errors(study):
    import served_pools

    given = pd.read_csv(SERVED)
    runs = served_pools.simulated_runs(given[given.conc <= 256])

    used = runs[runs.left_out == ""]
    same = [group for _, group in used.groupby(served_pools.SAME, dropna=False)]
    assert len(same) >= 35
    for name, limit in (("tokens", 0.13), ("tpot", 0.15)):
        errors = [study.error(group[name], 1.0) for group in same]
        assert np.median(errors) < limit, name
    assert set(used.kind) == {
        "decode pools, TP or EP",
        "decode pools, DP attention",
        "decode pools, MTP",
        "decode pools, MTP and DP attention",
    }
