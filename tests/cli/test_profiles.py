"""``capplan profiles list|show|compare|validate``."""

import json

import pytest

from capplan.cli.main import exit_code
from capplan.latency.catalog import find_profile
from capplan.latency.measurements import points_from_rows
from capplan.latency.profile_file import save_profile
from capplan.latency.with_engine import as_planned

H100 = "H100-SXM/Llama-3.1-8B/1"
H200 = "H200-SXM/Llama-3.1-8B/1"

ROWS = [
    ("prefill", 1, 512, 0),
    ("prefill", 1, 2048, 0),
    ("decode", 8, 8, 1024),
    ("decode", 64, 64, 1024),
    ("mixed", 8, 520, 1024),
]


@pytest.fixture
def profiles(capsys):
    """Run ``capplan profiles``; return exit code, stdout, stderr."""

    def run(*arguments):
        code = exit_code(["profiles", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def slower(tmp_path):
    """Return a file of points that take a quarter longer than the H100's profile."""
    profile = as_planned(find_profile("Llama-3.1-8B", "H100-SXM", 1))
    seconds = 1.25 * profile.predict(points_from_rows([(*row, 1.0) for row in ROWS]))
    path = tmp_path / "slower.csv"
    lines = [
        ",".join(map(str, (*row, time_s)))
        for row, time_s in zip(ROWS, seconds, strict=True)
    ]
    path.write_text("phase,batch,new_tokens,context,seconds\n" + "\n".join(lines))
    return path


def test_list_takes_only_the_llm_and_gpu_that_are_named(profiles):
    code, out, _ = profiles("list", "--llm", "Llama-3.1-8B", "--gpu", "H100-SXM")

    rows = [line.split() for line in out.splitlines() if line.startswith(" H100-SXM")]
    assert code == 0
    assert rows
    assert all(row[1].startswith("Llama") for row in rows)
    assert "H200" not in out
    assert out.splitlines()[-1] == "Errors are means over points not fitted to."


@pytest.mark.thorough
def test_list_shows_the_users_own_profiles_before_the_shipped(profiles, tmp_path):
    own = find_profile("Llama-3.1-8B", "H100-SXM", 1)
    folder = tmp_path / "MyGPU" / "Llama-3.1-8B"
    folder.mkdir(parents=True)
    save_profile(own.model_copy(update={"gpu": "MyGPU"}), folder / "tp1.yaml")

    _, out, _ = profiles("list", "--profiles", tmp_path)

    rows = [line for line in out.splitlines() if line.startswith(" ")][1:]
    assert rows[0].startswith(" MyGPU")
    assert len(rows) > 1


def test_show_prints_a_profile_that_reads_back_the_same(profiles, tmp_path):
    _, shown, _ = profiles("show", H100)
    copy = tmp_path / "copy.yaml"
    copy.write_text(shown.split("\n", 1)[1])

    code, again, _ = profiles("show", copy)

    assert code == 0
    assert again == shown


@pytest.mark.parametrize(
    "which",
    [
        "H100/Llama-3.1-8B/1",
        "h100_sxm/llama-3.1-8b/tp1",
        "H100/meta-llama/Llama-3.1-8B-Instruct/1",
    ],
)
def test_show_takes_the_names_that_plan_takes(profiles, which):
    _, by_full_names, _ = profiles("show", H100)

    code, shown, _ = profiles("show", which)

    assert code == 0
    assert shown == by_full_names


def test_list_takes_the_names_that_plan_takes_and_cuts_none(profiles):
    _, out, _ = profiles("list", "--llm", "meta-llama/Llama-3.1-8B-Instruct", "--json")
    _, listed, _ = profiles("list", "--gpu", "h100")

    found = json.loads(out)["profiles"]
    assert (
        {"Llama-3.1-8B"}
        <= {row["llm"] for row in found}
        <= {
            "Llama-3-8B",
            "Llama-3.1-8B",
        }
    )
    assert "…" not in listed
    assert all("H100-SXM" in row for row in listed.splitlines()[3:-2])


def test_compare_with_itself_is_1_and_its_inverse_the_other_way(profiles):
    def ratios(first, second):
        _, out, _ = profiles("compare", first, second)
        return [float(x.split()[-1]) for x in out.splitlines() if " ms " in x]

    same, forth, back = ratios(H100, H100), ratios(H100, H200), ratios(H200, H100)

    assert same == [1.0] * 17
    assert any(ratio < 0.95 for ratio in forth)  # the H200's memory is faster
    for one_way, other_way in zip(forth, back, strict=True):
        assert one_way * other_way == pytest.approx(1, abs=0.02)


def test_validate_says_how_much_too_fast_a_profile_is(profiles, slower):
    code, out, _ = profiles("validate", H100, "--against", slower)

    # A profile of 1 / 1.25 of the time is 20 % low.
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    for phase, count in (("prefill", "2"), ("decode", "2"), ("mixed", "1")):
        assert f"{phase} {count} 20.00 % 20.00 % -20.0 %".split() in rows


def test_validate_as_json_holds_the_same_errors(profiles, slower):
    _, out, _ = profiles("validate", H100, "--against", slower, "--json")

    document = json.loads(out)
    assert document["bias_by_phase"] == pytest.approx(
        {"prefill": -0.2, "decode": -0.2, "mixed": -0.2}
    )
    assert document["points_by_phase"] == {"prefill": 2, "decode": 2, "mixed": 1}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("list", "--gpu", "H10"), "unknown GPU 'H10'; did you mean"),
        (("list", "--llm", "Lama"), "unknown LLM 'Lama'"),
        (("show", "H100-SXM"), "expected a file or GPU/LLM/TP"),
        (("show", "H100-SXM/Llama-3.1-8B/two"), "expected a file or GPU/LLM/TP"),
        (("compare", H100, "H100-SXM/None/1"), "expected a file or GPU/LLM/TP"),
        (("validate", H100, "--against", "no.csv"), "no.csv"),
        (("validate", H100, "--against", "x", "--where", "y"), "COLUMN=VALUE"),
    ],
)
def test_a_wrong_argument_is_one_line(profiles, arguments, expected):
    code, _, err = profiles(*arguments)

    assert code == 2
    assert err.count("\n") == 1
    assert expected in err


def test_served_requests_are_no_points_to_validate_with(profiles, tmp_path):
    served = tmp_path / "served.jsonl"
    record = {"input_toks": 9, "output_toks": 3, "queued_ts": 0.0}
    served.write_text(json.dumps(record | {"first_token_ts": 1.0, "last_token_ts": 2}))

    code, _, err = profiles("validate", H100, "--against", served)

    assert code == 2
    assert "served.jsonl: holds served requests; expected points" in err


def test_list_on_a_terminal_has_a_bold_heading(terminal):
    screen = terminal("profiles", "list", "--gpu", "H100-SXM")

    assert screen.exit_code == 0, screen.text
    assert "\x1b[1;32m" in screen.text


@pytest.mark.parametrize("arguments", [("show", H100), ("compare", H100, H200)])
def test_show_and_compare_on_a_terminal(terminal, arguments):
    screen = terminal("profiles", *arguments)

    assert screen.exit_code == 0, screen.text
    assert "Llama-3.1-8B" in screen.text


def test_validate_on_a_terminal_draws_its_plot(terminal, slower, tmp_path):
    plot = tmp_path / "residuals.html"

    screen = terminal("profiles", "validate", H100, "--against", slower, "--plot", plot)

    assert screen.exit_code == 0, screen.text
    assert "20.00 %" in screen.text
    assert f"plot: {plot}" in screen.text
    assert plot.stat().st_size > 0
