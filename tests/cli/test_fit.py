"""``capplan fit`` from the command line."""

import csv
import json
import re
from itertools import product

import pytest

from capplan.cli.main import exit_code
from capplan.latency.profile_file import load_profile

FIXED_S, PROMPT_S, DECODE_S, CONTEXT_S = 5e-3, 4e-5, 1e-4, 2e-7
HEADING = "phase,batch,new_tokens,context,seconds"


def per_request_s(context):
    return DECODE_S + CONTEXT_S * context


def exact_points(speed=1.0):
    """Return points that follow the linear form exactly, ``speed`` times as fast."""
    rows = [
        ("prefill", 1, tokens, 0, FIXED_S + PROMPT_S * tokens)
        for tokens in (16, 64, 128, 256, 512, 1024, 2048)
    ]
    rows += [
        ("decode", batch, batch, context, FIXED_S + batch * per_request_s(context))
        for batch, context in product((1, 4, 16, 64), (128, 512, 2048))
    ]
    return [(*row[:4], row[4] / speed) for row in rows]


@pytest.fixture
def points(tmp_path):
    """Return the path of points of two configurations, the second twice as fast."""
    path = tmp_path / "points.csv"
    lines = [
        ",".join(map(str, (name, tp, *row)))
        for name, tp, speed in (("slow", 1, 1), ("fast", 2, 2))
        for row in exact_points(speed)
    ]
    path.write_text(f"configuration,tp,{HEADING}\n" + "\n".join(lines) + "\n")
    return path


def fit(points, out, *arguments):
    common = ["fit", "--from", points, "-o", out, "--form", "aladdin"]
    named = ["--llm", "Llama-3.1-8B", "--gpu", "H100-SXM"]
    return exit_code([str(part) for part in [*common, *named, *arguments]])


@pytest.mark.parametrize(("name", "tp", "speed"), [("slow", 1, 1), ("fast", 2, 2)])
def test_coefficients_of_the_chosen_rows_are_recovered(
    points, tmp_path, capsys, name, tp, speed
):
    code = fit(points, tmp_path / "p.yaml", "--where", f"configuration={name}")

    shown = capsys.readouterr()
    profile = load_profile(tmp_path / "p.yaml")
    assert code == 0, shown.err
    assert (profile.llm, profile.gpu, profile.tp) == ("Llama-3.1-8B", "H100-SXM", tp)
    assert profile.decode.constant_s == pytest.approx(FIXED_S / speed, rel=1e-3)
    assert profile.decode.per_request_s == pytest.approx(DECODE_S / speed, rel=1e-3)
    assert profile.decode.per_context_s == pytest.approx(CONTEXT_S / speed, rel=1e-3)
    assert profile.fused.per_token_s == pytest.approx(PROMPT_S / speed, rel=1e-3)
    assert profile.errors["decode"].max_abs < 1e-3
    assert shown.out.splitlines()[-1] == f"written: {tmp_path / 'p.yaml'}"


def test_what_is_given_goes_before_the_file_and_the_file_before_the_path(
    points, tmp_path
):
    folder = tmp_path / "L40S" / "Qwen3-8B"
    folder.mkdir(parents=True)

    where = ("--where", "configuration=fast")
    by_file = fit(points, folder / "tp8.yaml", *where)
    given = fit(points, folder / "tp4.yaml", *where, "--tp", 4, "--engine", "sglang")

    assert by_file == given == 0
    assert load_profile(folder / "tp8.yaml").tp == 2
    assert load_profile(folder / "tp4.yaml").tp == 4
    assert load_profile(folder / "tp4.yaml").engine == "sglang"


def test_the_path_names_the_llm_and_gpu_that_the_file_does_not(points, tmp_path):
    folder = tmp_path / "L40S" / "Qwen3-8B"
    folder.mkdir(parents=True)
    where = ["--where", "configuration=slow"]

    code = exit_code(
        ["fit", "--from", str(points), "--out", str(folder / "tp1.yaml"), *where]
    )

    profile = load_profile(folder / "tp1.yaml")
    assert code == 0
    assert (profile.gpu, profile.llm) == ("L40S", "Qwen3-8B")


def test_source_how_date_and_formats_are_kept_in_the_profile(points, tmp_path):
    stated = ["--source", "a colleague", "--how", "estimate", "--date", "2026-03-01"]
    stated += ["--dtype", "float16", "--kv-dtype", "fp8", "--quantization", "fp8"]
    stated += ["--engine-version", "0.32.0", "--kv-tokens", "4000000"]

    fit(points, tmp_path / "p.yaml", "--where", "configuration=slow", *stated)

    profile = load_profile(tmp_path / "p.yaml")
    assert profile.source == "a colleague"
    assert (profile.how, profile.date) == ("estimate", "2026-03-01")
    assert (profile.dtype, profile.kv_dtype) == ("float16", "fp8")
    assert (profile.quantization, profile.engine_version) == ("fp8", "0.32.0")
    assert profile.kv_tokens == 4_000_000


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("fit -o p.yaml", "Missing option '--from'"),
        ("fit --from p.csv", "Missing option '--out'"),
        ("fit --from no.csv -o p.yaml", "no.csv"),
        ("fit --from no.csv -o p.yaml --tp 0", "--tp: tp is 0; expected"),
        ("fit --from no.csv -o p.yaml --where x", "expected COLUMN=VALUE"),
        (
            "fit --from aiconfigurator:h100_sxm/x -o p.yaml --max-num-seqs 8",
            "--max-num-seqs is of the engine behind a served run",
        ),
    ],
)
def test_a_wrong_setting_is_one_line(capsys, arguments, expected):
    code = exit_code(arguments.split())

    shown = capsys.readouterr().err
    assert code == 2
    assert shown.startswith("capplan: error: ")
    assert shown.count("\n") == 1
    assert expected in shown.replace("'-o' / ", "").replace("-o, ", "")


def test_a_profile_of_another_kind_than_known_is_refused(points, tmp_path, capsys):
    code = fit(
        points, tmp_path / "p.yaml", "--where", "configuration=slow", "--how", "guess"
    )

    assert code == 2
    assert "how" in capsys.readouterr().err
    assert not (tmp_path / "p.yaml").exists()


def test_on_a_terminal_the_chosen_form_is_bold_and_brackets_of_a_path_are_kept(
    terminal, points, tmp_path
):
    folder = tmp_path / "[bold]"
    folder.mkdir()
    arguments = ("--llm", "Llama-3.1-8B", "--gpu", "H100-SXM", "--form", "aladdin")

    screen = terminal(
        *("fit", "--from", points, "-o", folder / "p.yaml", *arguments),
        *("--where", "configuration=slow", "--plot", folder / "p.html"),
    )

    assert screen.exit_code == 0, screen.text
    assert re.search(r"\x1b\[1m[^\n]*aladdin", screen.text)
    assert "[bold]/p.yaml" in screen.text
    assert f"{folder / 'p.html'}" in screen.text
    assert (folder / "p.html").stat().st_size > 0


def test_the_report_of_a_fit_is_html_csv_and_json(points, tmp_path):
    folder = tmp_path / "report"

    code = fit(
        *(points, tmp_path / "p.yaml", "--where", "configuration=slow"),
        *("--report", folder),
    )

    assert code == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {"fit.json", "fit.csv", "errors.csv", "report.html", "report.md"}
    document = json.loads((folder / "fit.json").read_text())
    assert document["profile"]["decode"]["constant_s"] == pytest.approx(
        FIXED_S, rel=1e-3
    )
    text = (folder / "errors.csv").read_text()
    rows = {row["phase"]: row for row in csv.DictReader(text.splitlines())}
    assert set(rows) == {"prefill", "decode"}
    assert float(rows["decode"]["max_abs"]) < 1e-3
    assert "<svg" in (folder / "report.html").read_text()
