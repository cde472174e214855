"""``capplan fit --from SWEEP --onto PROFILE``: means per concurrency."""

import json

import numpy as np
import pytest

import capplan
from capplan.calibration.load_test import SweepPoint, load_test
from capplan.calibration.sweep_profile import fit_sweep
from capplan.cli.main import exit_code
from capplan.deployment.engine import EngineSettings
from capplan.latency.catalog import find_profile
from capplan.latency.engine_time import EngineTime
from capplan.latency.profile_file import load_profile, save_profile
from capplan.latency.terms import tables
from capplan.latency.with_engine import calibrated, with_engine_time
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.settings.plan import PlanSettings
from tests.calibration.test_sweep_file import SGLANG, VLLM, changed

TRUE = EngineTime(factor=1.15, iteration_s=1.5e-3, per_request_s=6e-5, source="")
USERS = (4, 8, 16, 32, 64)


def served(users=USERS, isl=1024, osl=128):
    """Return load tests of an engine that is slower than its kernels."""
    base = find_profile("Llama-3.1-8B", "H100-SXM", 1)
    kernels = TRUE.applied(tables(base.decode, base.fused, max(users), 8192))
    return [
        (point := SweepPoint(isl, osl, count), load_test(kernels, ENGINE, point))
        for count in users
    ]


ENGINE = EngineSettings()


@pytest.fixture
def sweep(tmp_path):
    return write(tmp_path / "sweep.csv", served())


def write(path, tests, *, milliseconds=1e3, times=1.0):
    lines = ["isl,osl,concurrency,tpot_ms,ttft_ms,output_tokens_per_s"]
    for point, loop in tests:
        cells = (loop.tpot_s * milliseconds, loop.ttft_s * milliseconds)
        shape = f"{point.isl},{point.osl},{point.concurrency}"
        lines.append(
            f"{shape},{cells[0]},{cells[1]},{loop.output_tokens_per_s * times}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def fit(sweep, out, *arguments, onto="H100-SXM/Llama-3.1-8B/tp1"):
    given = ["fit", "--from", sweep, "--onto", onto, "--out", out, *arguments]
    return exit_code([str(part) for part in given])


def test_half_of_a_sweep_predicts_the_other_half(tmp_path, capsys):
    half = write(tmp_path / "half.csv", served((4, 16, 64)))

    code = fit(half, tmp_path / "mine.yaml")

    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "3 load tests of a table of means make 3 points." in shown.out
    assert "The files do not state what was measured." in shown.out
    profile = load_profile(tmp_path / "mine.yaml")
    assert profile.how == "calibrated"
    kernels = tables(profile.decode, profile.fused, 64, 8192)
    for point, seen in served((8, 32)):
        loop = load_test(profile.engine_time.applied(kernels), ENGINE, point)
        assert loop.tpot_s == pytest.approx(seen.tpot_s, rel=0.02)
        assert loop.output_tokens_per_s == pytest.approx(
            seen.output_tokens_per_s, rel=0.03
        )


def simulated_at(rate_per_s, profile):
    """Return the mean of load tests that ``simulate`` made at a rate, as one."""
    asked = {"input_len": "1024", "output_len": "128", "llm": "Llama-3.1-8B"}
    asked |= {"gpu": "H100-SXM", "tp": 1, "replicas": 1, "slo": "ttft=10s"}
    tables = [
        capplan.simulate(
            **asked, rate=rate_per_s, profiles=str(profile), seed=seed
        ).simulation.table
        for seed in range(1, 6)
    ]
    tpot_s, ttft_s = (
        float(np.mean([getattr(table, name) for table in tables]))
        for name in ("tpot_s", "ttft_s")
    )
    point = SweepPoint(1024, 128, None, tpot_s, ttft_s)
    return point._replace(requests=len(tables[0].ttft_s), rate_per_s=rate_per_s)


def test_tokens_faster_than_the_weights_are_read_are_told(tmp_path, capsys):
    rows = "1024,128,4,3.4,,\n1024,128,8,3.5,,\n"
    path = tmp_path / "sweep.csv"
    path.write_text(f"isl,osl,concurrency,tpot_ms,ttft_ms,output_tokens_per_s\n{rows}")

    fit(path, tmp_path / "mine.yaml")

    told = " ".join(capsys.readouterr().err.split())
    assert "a TPOT of 3.4 ms is less than H100-SXM takes to read the weights" in told


SLOWER = TRUE.model_copy(update={"request_s": 0.02, "prompt_token_s": 2e-5})


@pytest.mark.thorough
@pytest.mark.parametrize("time", [None, SLOWER], ids=["shipped", "slower"])
def test_a_sweep_simulated_at_rates_gives_its_profile_back_within_2_percent(
    time, tmp_path
):
    base = find_profile("Llama-3.1-8B", "H100-SXM", 1)
    right = with_engine_time(base, False) if time is None else calibrated(base, time)
    save_profile(right, tmp_path / "right.yaml")
    seen = [simulated_at(r, tmp_path / "right.yaml") for r in (2, 6, 10, 14, 18)]

    fitted = fit_sweep(seen, base, ENGINE, False, source="simulated")

    save_profile(fitted.profile, tmp_path / "found.yaml")
    for rate in (4, 12, 16):
        measured = simulated_at(rate, tmp_path / "right.yaml")
        found = simulated_at(rate, tmp_path / "found.yaml")
        assert found.tpot_s == pytest.approx(measured.tpot_s, rel=0.02)
        assert found.ttft_s == pytest.approx(measured.ttft_s, rel=0.05)


@pytest.mark.slow
def test_sglang_at_rates_gives_a_profile_of_its_engine_and_version(tmp_path, capsys):
    test = SGLANG | {"max_concurrency": None}
    tests = [
        test
        | {"request_rate": rate, "request_throughput": rate, "mean_tpot_ms": tpot_ms}
        | {"output_throughput": 200 * rate}
        for rate, tpot_ms in ((2.0, 7.0), (4.0, 7.6))
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, tests)))

    code = fit(path, tmp_path / "mine.yaml")

    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "requests/s" in shown.out
    told = " ".join(shown.err.split())
    assert "the load tests are of sglang, the kernels of H100-SXM/Llama-3.1-8B" in told
    assert "of vllm; the profile is one of sglang; if that is meant" in told
    assert "engine version 0.5.9 (version)" in shown.out
    profile = load_profile(tmp_path / "mine.yaml")
    assert (profile.engine, profile.engine_version) == ("sglang", "0.5.9")
    assert fit(path, tmp_path / "said.yaml", "--engine", "sglang") == 0
    assert not capsys.readouterr().err


def test_load_tests_of_another_engine_than_the_one_given_are_refused(tmp_path, capsys):
    tests = [SGLANG, changed(SGLANG, 16)]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, tests)))

    code = fit(path, tmp_path / "mine.yaml", "--engine", "vllm")

    assert code == 2
    assert "backend is sglang (expected vllm); --force" in capsys.readouterr().err
    assert fit(path, tmp_path / "mine.yaml", "--engine", "SGLang") == 0
    assert load_profile(tmp_path / "mine.yaml").engine == "sglang"


def test_the_seats_that_load_tests_state_are_those_of_the_simulated_engine(
    tmp_path, monkeypatch, capsys
):
    tests = [changed(VLLM | {"max_num_seqs": 12}, users) for users in (8, 16)]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, tests)))
    seen = []

    def remembered(points, base, engine, *others, **named):
        seen.append(engine.max_num_seqs)
        return fit_sweep(points, base, engine, *others, **named)

    monkeypatch.setattr("capplan.calibration.sweep_profile.fit_sweep", remembered)

    for flags in ((), ("--max-num-seqs", "64")):
        assert fit(path, tmp_path / "mine.yaml", *flags) == 0

    assert seen == [12, 64]
    assert "max num seqs 12 (max_num_seqs)" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_command_says_what_the_tests_determine(sweep, tmp_path, capsys):
    code = fit(sweep, tmp_path / "mine.yaml")

    shown = capsys.readouterr().out
    assert code == 0
    assert "per_request_s" in shown
    assert "Loads not fitted to are predicted within" in shown
    # One shape says nothing of a spread: a plan takes that of its kind.
    assert load_profile(tmp_path / "mine.yaml").engine_time.served is None


@pytest.mark.thorough
def test_three_shapes_say_how_far_other_concurrencies_are_off(tmp_path, capsys):
    tests = [test for isl in (256, 1024, 4096) for test in served(isl=isl)]
    sweep = write(tmp_path / "sweep.csv", tests)

    assert fit(sweep, tmp_path / "mine.yaml", "--engine-version", "0.33.0") == 0

    time = load_profile(tmp_path / "mine.yaml").engine_time
    assert time.served.sweeps == 3
    assert time.served.tpot == pytest.approx([1, 1, 1], abs=0.03)
    assert time.engine_version == "0.33.0"


@pytest.mark.thorough
def test_kv_of_the_test_is_read_by_its_bytes_and_the_profile_stays_its_own(
    sweep, tmp_path
):
    out = tmp_path / "mine.yaml"

    assert fit(sweep, out, "--kv-dtype", "fp8", "--kv-tokens", "500000") == 0

    assert load_profile(out).kv_element == "bf16"
    assert load_profile(out).kv_tokens == 500_000


@pytest.mark.thorough
def test_a_plan_takes_the_calibrated_profile(sweep, tmp_path, capsys):
    fit(sweep, tmp_path / "mine.yaml")
    asked = ["--workload", "synthetic:prompt=1024,output=128,n=300", "--rate", "8"]
    asked += ["--llm", "Llama-3.1-8B", "--slo", "ttft=2s,tpot=60ms"]

    code = exit_code(["plan", *asked, "--profiles", str(tmp_path / "mine.yaml")])

    assert code == 0
    assert "calibrated" in capsys.readouterr().out


@pytest.mark.parametrize("onto", ["H100-SXM/gpt-oss-120b/tp2", "A100/Qwen3-8B/tp1"])
def test_a_users_load_tests_go_before_shipped_times_and_end_the_doubt(
    onto, sweep, tmp_path
):
    """Shipped rows name the first LLM; no benchmark of the second was known there."""
    gpu, llm, tp = onto.split("/")
    asked = {"llm": llm, "gpu": gpu, "tp": tp.removeprefix("tp")}
    assert fit(sweep, tmp_path / "mine.yaml", onto=onto) == 0

    shipped = only_configuration(PlanSettings(**asked))
    found = only_configuration(
        PlanSettings(**asked, profiles=str(tmp_path / "mine.yaml"))
    )

    assert shipped.profile.engine_time.source != str(sweep)
    assert found.profile.engine_time.source == str(sweep)
    assert found.is_measured
    assert found.doubts == ()


@pytest.mark.thorough
@pytest.mark.parametrize("column", ["tpot_ms", "ttft_ms", "output_tokens_per_s"])
def test_any_one_column_is_enough(column, sweep, tmp_path, capsys):
    names, *rows = [line.split(",") for line in sweep.read_text().splitlines()]
    kept = [names.index(name) for name in ("isl", "osl", "concurrency", column)]
    lines = [",".join(row[at] for at in kept) for row in (names, *rows)]
    alone = tmp_path / "alone.csv"
    alone.write_text("\n".join(lines) + "\n")

    assert fit(alone, tmp_path / "mine.yaml") == 0, capsys.readouterr().err


def test_an_llm_without_a_profile_is_calibrated_from_its_data_sheet(
    sweep, tmp_path, capsys
):
    code = fit(sweep, tmp_path / "mine.yaml", onto="MI300X/Qwen3-8B/tp1")

    assert code == 0, capsys.readouterr().err
    assert load_profile(tmp_path / "mine.yaml").kernels_from is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"milliseconds": 1.0}, "are these seconds? expected milliseconds"),
        ({"times": 0.5}, "requests at once by Little's law; expected the concurrency"),
    ],
)
def test_wrong_units_are_refused_with_the_figure(change, message, tmp_path, capsys):
    tests = served()
    if "milliseconds" in change:  # Little's law would speak first
        tests = [(p, loop._replace(output_tokens_per_s=1.0)) for p, loop in tests]
    path = write(tmp_path / "sweep.csv", tests, **change)
    if "milliseconds" in change:
        rows = [line.rpartition(",")[0] for line in path.read_text().splitlines()]
        path.write_text("\n".join(rows) + "\n")

    code = fit(path, tmp_path / "mine.yaml")

    assert code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("onto", "message"),
    [
        ("H100-SXM", "names no profile; expected GPU/LLM/TP"),
        ("H100-SXM/Llama-9/tp1", "unknown LLM 'Llama-9'"),
        ("H900/Llama-3.1-8B/tp1", "H900"),
        ("H100-SXM/Llama-3.1-8B/tp3", "TP 3"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(onto, message, sweep, tmp_path, capsys):
    assert fit(sweep, tmp_path / "mine.yaml", onto=onto) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [("--tp", "2"), ("--how", "published"), ("--dtype", "float16"), ("--form", "x")],
)
def test_a_flag_of_another_fit_is_refused(flags, sweep, tmp_path, capsys):
    assert fit(sweep, tmp_path / "mine.yaml", *flags) == 2
    assert f"{flags[0]} is of another fit" in capsys.readouterr().err


def test_lengths_that_the_fit_misses_are_warned_of(tmp_path, capsys):
    times_ms = {2: 6.31, 12: 6.86, 40: 8.4}
    rows = [f"{isl},256,{n},{ms}" for isl in (1024, 8192) for n, ms in times_ms.items()]
    path = tmp_path / "means.csv"
    path.write_text("\n".join(["isl,osl,concurrency,tpot_ms", *rows]) + "\n")

    assert fit(path, tmp_path / "mine.yaml") == 0

    said = " ".join(capsys.readouterr().err.split())
    assert "with 8,192 + 256 tokens the fitted times are off by" in said


def test_kv_in_another_format_is_warned_of(tmp_path, capsys):
    server = SGLANG["server_info"] | {"kv_cache_dtype": "fp8_e4m3"}
    tests = [changed(SGLANG | {"server_info": server}, users) for users in (8, 16)]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, tests)))

    assert fit(path, tmp_path / "mine.yaml") == 0

    said = " ".join(capsys.readouterr().err.split())
    assert "KV cache in fp8_e4m3" in said
    assert "--kv-dtype fp8" in said
