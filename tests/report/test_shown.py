"""Results in Python: text, notebook, DataFrame, charts, files."""

import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import capplan
from capplan.errors import InputError
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.shown import Shown
from capplan.report.page import Page
from capplan.report.questions import QUESTIONS, named

GIVEN = dict(
    llm="Llama-3.1-8B",
    gpu="H100-SXM",
    tp="1,2",
    price="H100-SXM=2.5",
    latency_ms="10,0.05,0,0.1,0.0001",
    kv_blocks=2000,
    max_num_seqs=64,
    slo="ttft=1s,tpot=30ms",
    as_of="2026-11-24",
)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "arrival_s": np.cumsum(rng.exponential(0.05, 2000)),
            "prompt_tokens": rng.integers(100, 300, 2000),
            "output_tokens": 20,
        }
    )


@pytest.fixture(scope="module")
def plan(frame):
    return capplan.plan(trace=frame, **GIVEN)


def test_repr_of_a_plan_is_a_paragraph_with_the_answer(plan):
    text = repr(plan)

    assert len(text) < 1000
    assert "\n" not in text
    assert text.startswith("Rent 1 H100-SXM GPU for $1,825 a month, Llama-3.1-8B · ")
    assert "cost: $1,825 a month · $21,900 a year" in text
    assert "ttft ≤ 1 s, tpot ≤ 30 ms for 99 %" in text
    assert "peak: holds" in text


def test_repr_of_a_candidate_and_of_its_run_is_a_line(plan):
    assert repr(plan.best) == "<H100-SXM × TP 1: 1 replicas, 1 GPUs>"
    assert repr(plan.best.run).startswith("1 GPU = 1 replica × 1 (TP 1)")
    assert len(repr(plan.candidates)) < 300


def test_a_notebook_shows_the_answer_and_its_table_escaped_and_without_a_style(plan):
    shown = plan._repr_html_()

    assert "<b>Rent 1 H100-SXM GPU for $1,825 a month.</b>" in shown
    assert "<th>in time</th>" in shown
    assert "<style" not in shown
    assert "<script" not in shown


def test_to_pandas_is_the_csv_as_a_frame(plan, tmp_path):
    plan.save(tmp_path / "plan.csv")

    frame = plan.to_pandas()

    written = pd.read_csv(tmp_path / "plan.csv")
    assert list(frame.columns) == list(written.columns)
    assert len(frame) == len(plan.candidates) == 2
    assert frame["gpu_count"].tolist()[0] == plan.best.gpu_count
    with pytest.raises(InputError, match="expected plan, risk, classes"):
        plan.to_pandas("prices")


def test_plot_draws_the_charts_of_the_report_in_a_frame_and_a_file(plan, tmp_path):
    charts = plan.plot()

    path = charts.save(tmp_path / "charts.html")
    shown = charts._repr_html_()
    plan.save(tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text()
    assert charts.count == report.count("<svg") - 1 > 0  # without the panel's bars
    assert path.read_text().count("<svg") == charts.count
    assert shown.startswith("<iframe srcdoc=")
    assert re.search(r'srcdoc="[^"]*"', shown).group().count("&lt;svg") == charts.count
    with pytest.raises(InputError, match=r"expected a name in \.html"):
        charts.save(tmp_path / "charts.png")


def test_save_writes_what_out_writes(frame, tmp_path):
    written = capplan.plan(trace=frame, **GIVEN, out=tmp_path / "out")

    paths = written.save(tmp_path / "saved")

    assert {path.name for path in paths} == {
        path.name for path in (tmp_path / "out").iterdir()
    }
    for path in paths:
        if path.name != "plan.json":  # it names its folder
            assert path.read_text() == (tmp_path / "out" / path.name).read_text()


def test_save_takes_a_file_alone_and_refuses_other_names(plan, tmp_path):
    (path,) = plan.save(tmp_path / "deep" / "mine.json")

    assert json.loads(path.read_text())["status"] == "feasible"
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(InputError, match=r"expected a folder, or a name in \.json"):
        plan.save(tmp_path / "mine.xml")


def test_a_plan_of_a_frame_is_that_of_its_csv(plan, frame, tmp_path):
    path = tmp_path / "same.csv"
    frame.to_csv(path, index=False)

    of_file = capplan.plan(trace=str(path), **GIVEN)

    tables = (each.to_pandas().drop(columns="trace_source") for each in (plan, of_file))
    pd.testing.assert_frame_equal(*tables)


def test_a_frame_becomes_the_same_file_each_time_and_is_not_changed(frame):
    before = frame.copy()

    first, second = (PlanSettings(trace=frame).trace for _ in range(2))

    pd.testing.assert_frame_equal(frame, before)
    assert first == second
    other = PlanSettings(trace=frame.assign(output_tokens=21)).trace
    assert other != first
    pd.testing.assert_frame_equal(pd.read_csv(first), frame)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (pd.DataFrame({"arrival_s": []}), "a DataFrame without rows"),
        (pd.DataFrame([[1, 2, 3]]), "column 0 has no name"),
    ],
)
def test_a_frame_that_holds_no_requests_is_refused(wrong, expected):
    with pytest.raises(InputError, match=expected):
        PlanSettings(trace=wrong)


def test_every_result_of_the_package_is_one_that_shows_itself():
    annotated = {
        getattr(capplan, name).__annotations__["return"].strip('"')
        for name in capplan.__all__
    }

    for row in QUESTIONS.values():
        named(f"capplan.report.pages.{row.page}")  # so that its result is known
    results = {kind.__name__ for kind in Shown.__subclasses__()}
    asked = {row.result for name, row in QUESTIONS.items() if name != "place"}
    assert annotated <= results == asked


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_a_row_of_the_questions_names_is_there(name):
    row = QUESTIONS[name]

    page = named(f"capplan.report.pages.{row.page}")

    assert callable(named(f"capplan.{row.compute}"))
    assert page.__annotations__["return"] in (Page, "Page")
    assert row.model.model_fields


def test_a_search_shows_itself_too():
    found = capplan.search(
        workload="synthetic:prompt=200,output=20,n=500",
        llm="Llama-3.1-8B",
        gpu="H100-SXM",
        slo="tpot=30ms",
    )

    assert repr(found).startswith(f"H100-SXM × TP {found.found.best.tp}, Llama-3.1-8B.")
    assert {"gpu", "tp", "tokens_per_s_per_gpu"} <= set(found.to_pandas().columns)
    assert "<table>" in found._repr_html_()


def test_without_the_report_a_result_prints_its_name_and_says_what_to_import():
    script = (
        "from capplan.planning.shown import Shown\n"
        "assert repr(Shown()) == '<Shown>', repr(Shown())\n"
        "assert Shown()._repr_html_() is None\n"
        "try:\n    Shown().to_pandas()\n"
        "except RuntimeError as error:\n    print(error)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert "capplan.report.shown" in done.stdout


def test_a_plan_survives_pickling(plan):
    assert repr(pickle.loads(pickle.dumps(plan))) == repr(plan)


def test_a_result_without_a_lead_prints_its_facts_and_rows():
    text = repr(
        capplan.simulate(
            **{k: v for k, v in GIVEN.items() if k != "tp"},
            workload="synthetic:prompt=200,output=20,n=500",
            rate=20,
            tp=1,
        )
    )

    assert text.startswith("1 GPU = 1 replica × 1 (TP 1), one deployment, simulated")
    assert "within: ttft ≤ 1 s, tpot ≤ 30 ms" in text
    assert "; latency time to first token, mean " in text
    assert len(text) < 1500


def test_an_infeasible_plan_prints_why():
    text = repr(
        capplan.plan(
            **{**GIVEN, "slo": "tpot=5ms"},
            workload="synthetic:prompt=200,output=20,n=500",
            rate=20,
        )
    )

    assert text.startswith("No GPU named here holds tpot ≤ 5 ms, Llama-3.1-8B · ")
