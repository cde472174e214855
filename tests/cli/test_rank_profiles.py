"""``capplan profiles list|show`` and ``capplan fit`` of ranks that step together."""

import json

import pytest

from capplan.cli.main import exit_code

WIDE = "H200/DeepSeek-R1/dp8-ep8"


@pytest.fixture
def capplan(capsys):
    """Run a command; return exit code, stdout, stderr."""

    def run(*arguments):
        code = exit_code([*map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_list_shows_them_in_a_table_of_their_own(capplan):
    code, out, _ = capplan(
        "profiles", "list", "--llm", "DeepSeek-R1", "--gpu", "H200", "--json"
    )

    answer = json.loads(out)
    assert code == 0
    assert [row["tp"] for row in answer["profiles"]] == [8]
    layouts = {row["layout"] for row in answer["rank_profiles"]}
    assert {"tp8-ep8", "dp8-ep8", "dp8"} <= layouts
    assert all(row["experts_error"] is not None for row in answer["rank_profiles"])


def test_show_states_the_parts_and_their_errors(capplan):
    code, out, _ = capplan("profiles", "show", WIDE, "--json")
    _, text, _ = capplan("profiles", "show", WIDE)

    profile = json.loads(out)
    assert code == 0
    assert (profile["dp"], profile["ep"], profile["imbalance"]) == (8, 8, 1.15)
    assert {"experts", "exchange"} <= set(profile["errors"])
    assert text.startswith("DeepSeek-R1 on H200-SXM, dp8-ep8: a sum of measured kernel")


def test_the_degree_of_tp_alone_is_still_that_of_tp_alone(capplan):
    code, out, _ = capplan("profiles", "show", "H200/DeepSeek-R1/tp8")

    assert code == 0
    assert out.startswith("DeepSeek-R1 on H200-SXM, TP 8: ")


def test_a_layout_that_is_not_there_is_one_line(capplan, tmp_path):
    for command in (
        ("profiles", "show", "H200/DeepSeek-R1/dp7-ep7"),
        ("profiles", "show", WIDE, "--plot", tmp_path / "curves.html"),
        ("profiles", "compare", WIDE, WIDE),
    ):
        code, out, error = capplan(*command)

        assert (code, out) == (2, "")
        assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "curves.html").exists()


@pytest.mark.parametrize(
    ("of", "flags", "message"),
    [
        ("Qwen/Qwen3-32B?dp=4", ("--llm", "Qwen3-32B"), "expected --replicas 4 of TP"),
        ("m?dp=48&ep=48", ("--llm", "DeepSeek-R1"), "256 experts; EP 48 does not div"),
        ("m?dp=8&ep=8&nextn=1", ("--llm", "Kimi-K2.5"), "no layer for multi-token"),
        ("m?ep=8", ("--llm", "DeepSeek-R1", "--tp", 4), "EP 8 does not divide the 4"),
        ("m?a2a=deepep", ("--llm", "DeepSeek-R1", "--tp", 4), "no ranks and no EP"),
    ],
)
def test_fit_refuses_what_the_llm_cannot_have(capplan, tmp_path, of, flags, message):
    out = tmp_path / "mine.yaml"

    code, _, error = capplan(
        "fit", "--from", f"aiconfigurator:h200_sxm/{of}", "--out", out, *flags
    )

    assert code == 2
    assert message in error
    assert not out.exists()
