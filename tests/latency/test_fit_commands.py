"""``capplan fit`` and ``capplan profiles`` from the outside."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from capplan.calibration.served_engine import served_engine
from capplan.cli.fit import fit_command
from capplan.cli.main import exit_code
from capplan.cli.profiles import profiles_app
from capplan.deployment.engine import EngineSettings
from capplan.errors import CapplanWarning, InputError, ProfileError
from capplan.latency.contract import linear_tables
from capplan.latency.fitted_profile import Identity
from capplan.latency.profile_file import load_profile
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

DATA = Path(__file__).parents[1] / "latency" / "data"
POINTS = DATA / "points.csv"


def fit(*arguments):
    app = typer.Typer()
    app.command()(fit_command)
    return CliRunner().invoke(
        app, [str(part) for part in arguments], catch_exceptions=False
    )


def profiles(*arguments):
    return CliRunner().invoke(
        profiles_app, [str(part) for part in arguments], catch_exceptions=False
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    out, plot = folder / "mine.yaml", folder / "mine.html"
    result = fit("--from", POINTS, "--out", out, "--form", "hinge", "--plot", plot)
    return out, plot, result


def test_fit_writes_a_profile_of_what_the_file_says(fitted):
    out, _, result = fitted

    assert result.exit_code == 0
    profile = load_profile(out)
    assert (profile.llm, profile.gpu, profile.tp) == ("Llama-3.1-8B", "H100-SXM", 1)
    assert profile.decode_form == profile.fused_form == "hinge"
    assert profile.errors["decode"].held_out_mean_abs < 0.03
    assert "hinge" in result.output


def test_fit_draws_curves_and_residuals_into_one_file(fitted):
    _, plot, _ = fitted
    text = plot.read_text()

    assert "Residual by phase" in text
    assert not re.search(r'<script[^>]+src="http', text)


def test_fit_without_llm_and_gpu_is_refused(tmp_path):
    rows = [line.split(",") for line in POINTS.read_text().splitlines()]
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(",".join(row[5:]) for row in rows) + "\n")

    with pytest.raises(InputError, match="does not say its llm and gpu; give --llm"):
        fit("--from", bare, "--out", tmp_path / "p.yaml", "--form", "aladdin")

    assert not (tmp_path / "p.yaml").exists()


def test_fit_refuses_milliseconds_in_a_column_of_seconds(tmp_path):
    heading, *rows = POINTS.read_text().splitlines()
    wrong = tmp_path / "ms.csv"
    scaled = [
        ",".join([*row.split(",")[:-1], str(1e3 * float(row.split(",")[-1]))])
        for row in rows
    ]
    wrong.write_text("\n".join([heading, *scaled]) + "\n")

    with pytest.raises(ProfileError, match="are these milliseconds"):
        fit("--from", wrong, "--out", tmp_path / "p.yaml")

    assert not (tmp_path / "p.yaml").exists()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return a run that a simulated engine served, as LLMServingSim writes it."""
    rng = np.random.default_rng(2)
    trace = Trace(
        rng.integers(20, 1500, 60),
        rng.integers(10, 80, 60),
        np.cumsum(rng.exponential(0.1, 60)),
    )
    engine = EngineSettings(1024, 64, kv_blocks=1000, prefix_caching=True)
    tables = linear_tables(8e-3, 5e-5, 1e-9, 2e-5, 2e-7, max_batch=64, max_tokens=1024)
    times = simulate(trace, fleet_of(tables, engine, 1)).times
    path = tmp_path_factory.mktemp("served") / "requests.jsonl"
    with path.open("w") as file:
        for row in range(60):
            record = {
                "input_toks": int(trace.prompt_tokens[row]),
                "output_toks": int(trace.output_tokens[row]),
                "queued_ts": float(times.arrival_s[row]),
                "first_token_ts": float(times.first_token_s[row]),
                "last_token_ts": float(times.finish_s[row]),
            }
            file.write(json.dumps(record) + "\n")
    return path


LIMITS = ("--max-num-batched-tokens", 1024, "--max-num-seqs", 64)
IDENTITY = ("--llm", "Llama-3.1-8B", "--gpu", "L4")


def test_a_served_run_becomes_a_profile_that_a_plan_takes(served, tmp_path, capsys):
    out = tmp_path / "mine.yaml"

    result = fit(
        "--from", served, "--out", out, *IDENTITY, *LIMITS, "--kv-blocks", 1000
    )

    assert "60 of 60 served requests" in result.output
    assert "not identified" in result.output  # attention, at these lengths
    assert "TTFT" in result.output
    profile = load_profile(out)
    assert profile.decode.constant_s == pytest.approx(8e-3, rel=0.02)
    assert profile.kv_tokens == 16_000
    workload = "--workload synthetic:prompt=300,output=40,n=300 --rate 4"
    question = f"--llm Llama-3.1-8B --gpu L4 --tp 1 --profiles {out} --price L4=0.7"

    asked = f"plan {workload} {question} --slo ttft=2s,tpot=100ms --explain"
    code = exit_code(asked.split())

    shown = capsys.readouterr().out
    assert code == 0
    assert shown.startswith("Rent 1 L4 GPU for $511 a month.")
    assert "LLMServingSim's bench" in " ".join(shown.split())


def test_kv_blocks_that_are_not_given_are_estimated_and_said(served, tmp_path):
    arguments = ("--from", served, "--out", tmp_path / "p.yaml", *LIMITS)

    with pytest.warns(CapplanWarning, match="--kv-blocks is not given: .* estimated"):
        result = fit(*arguments, "--llm", "Llama-3.1-8B", "--gpu", "H100-SXM")

    assert "(estimated)" in result.output
    profile = load_profile(tmp_path / "p.yaml")
    assert profile.kv_tokens is None
    assert profile.meta["kv_blocks_source"] == "estimated"


def test_limits_not_given_are_those_of_vllm_serve_on_the_gpu():
    identity = Identity("L4", "Llama-3.1-8B", 1, "vllm", "test", "measured")

    plain, source = served_engine(identity, {"kv_blocks": 1000})
    other, _ = served_engine(identity, {"kv_blocks": 1000, "prefix_caching": False})

    assert source == "given"
    assert plain == EngineSettings(2048, 256, 16, 1000, True, True)
    assert not other.prefix_caching


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*IDENTITY, *LIMITS, "--kv-blocks", 50), "do not fit 50 KV blocks of 16"),
        ((*IDENTITY, "--form", "hinge"), "served runs are fitted with one form"),
        (("--llm", "Llama-3.1-8B", "--gpu", "Mine-9000"), "give --kv-tokens"),
        (
            ("--llm", "Llama-3.1-8B", "--gpu", "Mine-9000", "--kv-blocks", 1000),
            "give --max-num-batched",
        ),
        (("--llm", "Mine-1B", "--gpu", "L4"), "unknown LLM 'Mine-1B'; .* config.json"),
    ],
)
def test_what_a_served_run_cannot_be_fitted_with(served, tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        fit("--from", served, "--out", tmp_path / "p.yaml", *arguments)

    assert not (tmp_path / "p.yaml").exists()


def test_too_few_served_requests_are_refused_with_the_file(tmp_path):
    few = POINTS.with_name("guidellm.json")

    with pytest.raises(InputError, match=r"guidellm\.json: 2 requests have a TTFT"):
        fit("--from", few, "--out", tmp_path / "p.yaml", *IDENTITY, "--kv-blocks", 99)


def test_limits_of_an_engine_are_refused_for_measured_iterations(tmp_path):
    with pytest.raises(InputError, match="--max-num-seqs is of the engine behind"):
        fit("--from", POINTS, "--out", tmp_path / "p.yaml", "--max-num-seqs", 8)


def test_validate_prints_errors_by_phase_as_json(fitted):
    out, _, _ = fitted

    result = profiles("validate", out, "--against", POINTS, "--json")

    errors = json.loads(result.output)
    assert set(errors["mean_abs_error_by_phase"]) == {"prefill", "decode", "mixed"}
    for phase, mean in errors["mean_abs_error_by_phase"].items():
        assert 0 < mean <= errors["max_abs_error_by_phase"][phase] < 0.3


def test_validate_tells_regions_and_bias(fitted):
    out, _, _ = fitted

    result = profiles("validate", out, "--against", POINTS)

    assert "bias" in result.output
    assert "decode of" in result.output


def test_list_show_and_compare_name_profiles_by_gpu_llm_and_tp():
    listed = profiles("list", "--llm", "Qwen2.5-7B")
    shown = profiles("show", "V100-32GB-SXM2/Qwen2.5-7B/2")
    compared = profiles("compare", "H100-SXM/Llama-3.1-8B/1", "H200-SXM/Llama-3.1-8B/1")

    assert "publish" in listed.output
    assert "constant_s: 0.01585" in shown.output
    assert "SA scheduling" in shown.output
    assert "second / first" in compared.output


def test_a_profile_that_is_not_there_says_how_to_name_one():
    with pytest.raises(InputError, match="expected a file or GPU/LLM/TP"):
        profiles("show", "H100-SXM/Nothing-1B/1")
