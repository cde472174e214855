"""How far served fleets of ranks, experts, drafts and pools were off."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from capplan.latency.layout_errors import layout_class, layout_error
from capplan.llm.layout import Layout
from capplan.shipped import shipped

ROOT = Path(__file__).parents[2]
SERVED = ROOT.parent / "shared/data/served/deepseek_r1.csv"
SERVED_IS_THERE = pytest.mark.skipif(
    not SERVED.exists(), reason="shared data is not beside the tree"
)
ERRORS = shipped("profiles") / "layout_errors.yaml"
TP, EP, RANKS = Layout(8), Layout(8, 1, 8), Layout(1, 8, 8)


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "studies"))
    import served_capacity

    yield served_capacity
    for name in ("served_capacity", "served_pools", "served_loops", "served_layouts"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("layout", "drafts", "expected"),
    [
        (TP, False, "TP"),
        (EP, False, "EP"),
        (RANKS, False, "DP attention"),
        (TP, True, "MTP"),
        (EP, True, "MTP"),
        (RANKS, True, "MTP and DP attention"),
    ],
)
def test_ranks_and_drafts_tell_fleets_apart(layout, drafts, expected):
    assert layout_class(layout, drafts=drafts) == expected


def test_only_an_llm_and_a_class_that_were_served_have_an_error():
    found = layout_error("DeepSeek-R1", EP, drafts=False, disaggregated=False)

    low, _, high = found.capacity
    assert low < 1 < high
    assert found.sweeps >= 5
    # Three configurations of ranks without drafts or pools are too few.
    assert layout_error("DeepSeek-R1", RANKS, drafts=False, disaggregated=False) is None
    assert (
        layout_error("DeepSeek-R1", RANKS, drafts=False, disaggregated=True) is not None
    )
    assert layout_error("gpt-oss-120b", EP, drafts=False, disaggregated=False) is None


def test_the_load_within_a_tpot_is_between_the_simulated(study):
    # Users, TPOT and load; the third is slower and sustains less than the second.
    curve = np.array([(1, 10.0, 100.0), (2, 20.0, 400.0), (4, 15.0, 300.0)])

    assert study.within(curve, 9.9) == 0
    assert study.within(curve, 15.0) == pytest.approx(200.0)  # of 100 and 400
    assert study.within(curve, 30.0) == pytest.approx(400.0)


@pytest.mark.thorough
@SERVED_IS_THERE
@pytest.mark.parametrize("kind", ["EP", "MTP"])
def test_a_shipped_error_is_that_of_the_study(study, monkeypatch, kind):
    runs = study.served_loops.runs_of_one_pool(pd.read_csv(SERVED))
    of_kind = runs[runs.kind == kind]
    monkeypatch.setattr(study.served_loops, "runs_of_one_pool", lambda _: of_kind)

    found = pd.DataFrame(study.of_one_pool(of_kind))

    row = study.error_of(False, kind, found)
    row.pop("runs")
    shipped_rows = yaml.safe_load(ERRORS.read_text())["errors"]
    assert row in shipped_rows


@pytest.mark.slow
@SERVED_IS_THERE
def test_the_shipped_errors_are_those_of_the_study(study, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["served_capacity.py", str(SERVED)])

    study.main()

    assert capsys.readouterr().out.rstrip() == ERRORS.read_text().rstrip()
