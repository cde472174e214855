"""``capplan fit --from metrics:``: the profile of a fleet that runs."""

import json

import numpy as np
import pytest

from capplan.calibration.settings import FitSettings
from capplan.cli.main import exit_code
from capplan.engines.catalog import parse_engine
from capplan.errors import ProfileError
from capplan.latency.catalog import named_profile
from capplan.latency.profile_file import load_profile, save_profile
from capplan.latency.with_engine import as_planned, calibrated, with_engine_time
from capplan.planning.backtest.settings import BacktestSettings
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.report.to_files import answer
from capplan.report.writers.fit import fit

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")

LOAD = {
    "workload": "synthetic:prompt=lognormal(median=300,sigma=0.6),"
    "output=lognormal(median=100,sigma=0.4),n=40000"
}
FLEET = {**LOAD, "rate": 40.0, "replicas": 2}
CASES = [(tp, slower) for tp in (1, 2) for slower in (1.0, 1.2, 1.5)]


def of(tp):
    return {"llm": "Llama-3.1-8B", "gpu": ["H100-SXM"], "tp": [tp]}


def slowed(tp, slower):
    factor = f"{slower}[{slower},{slower}]@Llama-3.1-8B/H100-SXM/tp{tp}"
    return SimulateSettings(**of(tp), **FLEET, backtest=factor)


def fitted_to(folder, tp=1):
    """Write the profile that metrics give; return its path and the page."""
    path, onto = folder.with_suffix(".yaml"), f"H100-SXM/Llama-3.1-8B/tp{tp}"
    asked = {"measurements": f"metrics:{folder}", "onto": onto, "out": path}
    return path, fit(FitSettings(**asked))[0]


def exported(folder, settings):
    """Write the metrics of a simulated fleet."""
    answer("simulate", settings.model_copy(update={"export_metrics": f"{folder}:30s"}))
    return folder


@pytest.fixture(scope="module")
def slower(tmp_path_factory):
    """Metrics of a fleet whose iterations take 1.2 times as long as assumed."""
    return exported(tmp_path_factory.mktemp("fleet") / "m", slowed(1, 1.2))


@pytest.mark.thorough
def test_the_profile_of_a_slower_fleet_has_its_time_between_tokens(slower):
    path, page = fitted_to(slower)

    as_fitted = SimulateSettings(**of(1), **FLEET, profiles=str(path))
    seen, real = map(simulate_deployment, (as_fitted, slowed(1, 1.2)))
    means = [np.nanmean(run.simulation.table.tpot_s) for run in (seen, real)]
    profile = load_profile(path)
    assert means[0] == pytest.approx(means[1], rel=0.02)
    assert profile.backtested.value == pytest.approx(1.2, abs=0.02)
    assert profile.backtested.low < 1.2 < profile.backtested.high
    assert f"metrics of {slower} (2 windows, 2026-01-01)" in profile.source
    assert "one factor; 2 windows; those left out are" in page.lead


@pytest.mark.thorough
@pytest.mark.parametrize(("tp", "times"), CASES)
def test_a_plan_with_the_profile_is_that_with_the_backtest(tmp_path, tp, times):
    folder = exported(tmp_path / "m", slowed(tp, times))
    path, _ = fitted_to(folder, tp)
    answer("backtest", BacktestSettings(**of(tp), metrics=str(folder), out=tmp_path))
    asked = {**LOAD, **of(tp), "rate": 260.0, "slo": ["ttft=1s,tpot=30ms"]}

    fitted, backtested = (
        plan(PlanSettings(**asked, **times_of)).best
        for times_of in (
            {"profiles": str(path)},
            {"backtest": str(tmp_path / "backtest.json")},
        )
    )

    assert fitted.gpu_count == backtested.gpu_count
    assert fitted.gpu_count_range == backtested.gpu_count_range
    assert fitted.sureness == backtested.sureness == "measured"


@pytest.mark.thorough
def test_a_time_of_each_iteration_is_told_from_a_factor_where_loads_differ(tmp_path):
    draw, rows = np.random.default_rng(0), ["arrival_s,prompt_tokens,output_tokens"]
    for at, rate in enumerate((3, 6, 12, 24, 48, 96)):
        come_s = 600 * at + np.sort(draw.uniform(0, 600, 600 * rate))
        tokens = np.exp(draw.normal(np.log([300, 100]), 0.5, (len(come_s), 2)))
        both = zip(come_s, np.rint(tokens).astype(int), strict=True)
        rows += [f"{moment:.4f},{max(p, 1)},{max(o, 1)}" for moment, (p, o) in both]
    (tmp_path / "trace.csv").write_text("\n".join(rows))
    base = as_planned(named_profile("H100-SXM/Llama-3.1-8B/1"))
    time = base.engine_time
    later = time.model_copy(update={"iteration_s": time.iteration_s + 0.003})
    save_profile(calibrated(base, later), tmp_path / "later.yaml")
    given = {"trace": str(tmp_path / "trace.csv"), "replicas": 2}
    profiles = str(tmp_path / "later.yaml")
    fleet = SimulateSettings(**of(1), **given, profiles=profiles)

    path, page = fitted_to(exported(tmp_path / "m", fleet))

    found = load_profile(path).engine_time
    assert found.iteration_s == pytest.approx(later.iteration_s, abs=2e-4)
    assert found.decode_factor == pytest.approx(later.decode_factor, rel=0.02)
    assert "ms each, which loads tell apart; 12 windows" in page.lead


@pytest.mark.thorough
def test_with_times_of_another_engine_nothing_is_measured(slower):
    profile = load_profile(fitted_to(slower)[0])

    other = with_engine_time(profile, False, wanted=parse_engine("sglang"))

    assert profile.is_load_tested
    assert "metrics of" not in other.engine_time.source
    assert other.backtested is None
    assert not other.is_load_tested


@pytest.mark.thorough
def test_metrics_of_another_llm_are_refused(slower, tmp_path, capsys):
    code, said = refused(slower, tmp_path, capsys, onto="H100-SXM/Qwen3-8B/tp1")

    assert code == 2
    assert "model_name is Llama-3.1-8B (expected Qwen3-8B)" in said
    assert "--onto H100-SXM/Llama-3.1-8B/tp1 fits" in said


def test_a_profile_whose_factor_is_no_factor_is_refused():
    profile = as_planned(named_profile("H100-SXM/Llama-3.1-8B/1"))
    mistyped = profile.model_copy(update={"meta": {"backtest": "1.2"}})

    with pytest.raises(
        ProfileError, match=r"expected as `capplan fit --from metrics:`"
    ):
        _ = mistyped.backtested


@pytest.mark.thorough
def test_a_profile_is_shown_with_the_interval_of_its_fleet(slower, capsys):
    path, _ = fitted_to(slower)

    assert exit_code(["profiles", "show", str(path)]) == 0

    shown = capsys.readouterr().out
    assert "# times of its fleet: 1.1" in shown
    assert "of such engines" not in shown


def refused(path, tmp_path, capsys, *more, onto="H100-SXM/Llama-3.1-8B/tp1"):
    words = ["fit", "--from", f"metrics:{path}", "-o", tmp_path / "mine.yaml", *more]
    words += ["--onto", onto] if onto else []
    code = exit_code([str(word) for word in words])
    return code, capsys.readouterr().err.strip()


def scraped(name, values, **labels):
    metric = {"__name__": f"vllm:{name}", "instance": "a", **labels}
    return {
        "metric": metric,
        "values": [[30 * t, str(v)] for t, v in enumerate(values)],
    }


IDLE = [
    scraped(f"request_{what}_tokens_{part}", [7] * 60, **labels)
    for what in ("prompt", "generation")
    for part, labels in (("bucket", {"le": "+Inf"}), ("sum", {}), ("count", {}))
]


@pytest.mark.parametrize(
    ("series", "more", "message"),
    [
        (None, (), "is empty; expected files of metrics"),
        ([], (), "no series of vLLM or SGLang"),
        (
            [scraped("request_success_total", [1])],
            (),
            "one snapshot of a; expected two",
        ),
        (IDLE, (), "no window of 200 requests and 20 scrapes"),
        (IDLE, ("--form", "aladdin"), "--form has no effect on a fit to metrics"),
        (IDLE, ("--where", "gpu=H100"), "of metrics expected model_name=NAME"),
        (IDLE, ("--where", "model_name=b"), "no window of 200 requests"),
    ],
)
def test_metrics_that_tell_no_times_are_one_line(
    tmp_path, capsys, series, more, message
):
    folder = tmp_path / "m"
    folder.mkdir()
    if series is not None:
        answer_ = {"data": {"resultType": "matrix", "result": series}}
        (folder / "a.json").write_text(json.dumps(answer_))

    code, said = refused(folder, tmp_path, capsys, *more)

    assert code == 2
    assert message in said
    assert len([line for line in said.splitlines() if "warning" not in line]) == 1


def test_metrics_without_a_profile_to_calibrate_are_one_line(tmp_path, capsys):
    code, said = refused(tmp_path / "none", tmp_path, capsys, onto=None)

    assert code == 2
    assert "name it with --onto GPU/LLM/tpN" in said


def test_a_file_that_is_not_there_is_one_line(tmp_path, capsys):
    code, said = refused(tmp_path / "none", tmp_path, capsys)

    assert code == 2
    assert said.endswith("none: no such file")
