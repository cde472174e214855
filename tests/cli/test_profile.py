"""``capplan profile`` from the command line, on an engine of known law."""

import re

import pytest

from capplan.cli.main import exit_code


@pytest.fixture
def profile(lawful, tmp_path, capsys):
    """Run ``capplan profile`` into ``tmp_path``; return exit code, stdout, stderr."""

    def run(*arguments):
        common = ["profile", "llm-7b", "--backend", lawful, "-o", str(tmp_path)]
        code = exit_code([*common, "--density", "coarse", *arguments])
        return code, *capsys.readouterr()

    return run


def test_it_prints_the_profiles_it_wrote(profile, tmp_path):
    code, out, err = profile("--tp", "1,2")

    folder = tmp_path / "H100-SXM" / "llm-7b"
    assert code == 0, err
    assert out.split() == [str(folder / "tp1.yaml"), str(folder / "tp2.yaml")]


def test_a_degree_that_fails_is_printed_with_its_remedy(profile):
    code, out, err = profile("--tp", "3,1")

    shown = " ".join(err.split())
    assert code == 0
    assert "TP 3: failed: ValueError: Total number of attention heads (8)" in shown
    assert "remedy: choose a TP degree that divides" in shown
    assert "tp1.yaml" in out


def test_it_fails_when_every_degree_does(profile):
    code, out, _ = profile("--tp", "3,5")

    assert code == 2
    assert out == ""


def test_points_that_make_no_profile_are_said_with_the_reason(profile, tmp_path):
    code, out, err = profile("--engine-arg", "refuse=decode")

    shown = " ".join(err.split())
    assert code == 2
    assert out == ""
    assert "left out: decode of 16 and fewer at 128: MemoryError: out of" in shown
    assert "no profile: no decode point was given" in shown
    assert (tmp_path / "H100-SXM" / "llm-7b" / "tp1.csv").exists()


def test_engine_settings_reach_the_engine(profile, tmp_path):
    profile("--max-num-seqs", "4", "--engine-arg", 'device="NVIDIA L4"')

    rows = (tmp_path / "L4" / "llm-7b" / "tp1.csv").read_text().splitlines()[1:]
    decode = [row for row in rows if row.startswith("decode")]
    assert (tmp_path / "L4" / "llm-7b" / "tp1.yaml").exists()
    assert max(int(row.split(",")[1]) for row in decode) == 4


def test_a_name_for_the_gpu_overrules_the_driver(profile, tmp_path):
    profile("--gpu", "my-h100")

    assert (tmp_path / "my-h100" / "llm-7b" / "tp1.yaml").exists()


def test_a_complete_profile_is_resumed_without_measuring(profile, tmp_path):
    profile()
    points = tmp_path / "H100-SXM" / "llm-7b" / "tp1.csv"
    before = points.read_bytes()

    refused, _, err = profile()
    resumed, out, _ = profile("--resume")

    assert refused == 2
    assert "add --resume to continue with them" in err
    assert resumed == 0
    assert out.split() == [str(points.with_suffix(".yaml"))]
    assert points.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--tp", "0"), "expected different degrees such as 1,2,4"),
        (("--tp", "one"), "expected different degrees such as 1,2,4"),
        (("--tp", "1,1"), "expected different degrees such as 1,2,4"),
        (("--tp", ""), "expected different degrees such as 1,2,4"),
        (("--engine-arg", "enforce_eager"), "expected NAME=VALUE"),
        (("--density", "dense"), "expected one of coarse, default, fine"),
        (("--dry-run",), "--dry-run needs --gpu"),
    ],
)
def test_wrong_settings_are_one_line_and_start_nothing(
    profile, tmp_path, arguments, expected
):
    code, _, err = profile(*arguments)

    assert code == 2
    assert expected in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_lists_points_and_time_and_measures_none(tmp_path, capsys):
    out = tmp_path / "none"

    code = exit_code(
        f"profile Llama-3.1-8B --gpu H100-SXM --tp 1,2 --dry-run -o {out}".split()
    )

    lines = capsys.readouterr().out.splitlines()
    totals = [line for line in lines if "points, 3 rounds, about" in line]
    assert code == 0
    assert any(line.startswith("TP 1: decode of 512 at") for line in lines)
    assert [line[:5] for line in totals] == ["TP 1:", "TP 2:"]
    points = [line for line in lines if line.startswith("TP 1:")]
    left_out = [line for line in points if "left out:" in line]
    assert f"TP 1: {len(points) - len(left_out) - 1} points" in totals[0]
    assert not out.exists()


def test_a_dry_run_on_a_terminal(terminal, tmp_path):
    screen = terminal(
        *("profile", "Llama-3.1-8B", "--gpu", "L4", "--max-model-len", 2048),
        *("--density", "coarse", "--dry-run", "-o", tmp_path),
    )

    assert screen.exit_code == 0, screen.text
    assert "points, 2 rounds, about" in screen.text


def test_progress_on_a_terminal_names_each_degree_and_scene(terminal, lawful, tmp_path):
    screen = terminal(
        *("profile", "llm-7b", "--backend", lawful, "--tp", "1,2"),
        *("--density", "coarse", "-o", tmp_path),
    )

    assert screen.exit_code == 0, screen.text
    assert "\x1b[?25l" in screen.text  # the cursor is hidden: a live display
    assert "TP 2" in screen.text
    assert "━" in screen.text
    assert re.search("(prefill|decode) of", screen.text)
