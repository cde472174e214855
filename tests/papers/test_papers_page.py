"""docs/how/papers.md is what its command writes, and explains what differs."""

from importlib import import_module
from pathlib import Path

import pytest

from capplan.simulator.schedulers import SCHEDULERS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how/papers.md").read_text()
VERDICTS = ("yes", "sign only", "**no**", "cannot be had")


def claims() -> list[list[str]]:
    """Return the rows of the tables of claims, as cells."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines()]
    return [row for row in rows if len(row) >= 5 and row[4].startswith(VERDICTS)]


def test_the_page_names_every_scheduler():
    missing = [name for name in SCHEDULERS if f"`{name}`" not in PAGE]

    assert missing == []


def test_a_claim_that_is_not_in_its_band_has_its_reason():
    outside = [row for row in claims() if not row[4].startswith(("yes", "sign"))]

    assert len(claims()) >= 100
    assert len(outside) >= 40
    assert [row[0] for row in outside if len(row) < 6 or not row[5].strip(" |")] == []


@pytest.fixture
def claim(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "studies"))
    return import_module("papers_claims").Claim


@pytest.mark.parametrize(
    ("published", "found", "verdict"),
    [
        ("30 to 40 %", (30, 35, 40), "yes"),
        ("30 to 40 %", (29, 35, 40), "**no**, 2 of 3"),
        ("30 to 40 %", (1, 2, 3), "**no**"),
        ("up to 40 %", (31, 35, 40), "sign only"),
        ("up to 40 %", (30, 35, 40), "**no**, 2 of 3"),  # 30 %: no gain, here
        ("of a run", (), "cannot be had"),
    ],
)
def test_a_figure_is_reproduced_where_all_seeds_are_in_the_papers_band(
    claim, published, found, verdict
):
    cells = claim("share", published, found, (30, 40), " %", "why").cells()

    assert cells[4] == verdict
    assert cells[5] == ("" if verdict == "yes" else "why")
    if found:
        assert cells[2] == f"{found[1]} ({found[0]} to {found[2]}) %"


def test_each_drawn_figure_shows_its_interval_of_ten_seeds():
    partly = [row[4] for row in claims() if " of " in row[4]]

    assert partly
    assert {verdict.rsplit(" ", 1)[1] for verdict in partly} == {"10"}


@pytest.mark.parametrize(
    ("words", "published"),
    [
        (("fewer GPUs than JSQ", "(Fig. 12)"), "up to 60 %"),
        (("fewer GPUs than default vLLM", "(Fig. 11)"), "up to 71 %"),
        (("best of all, 8 requests",), "at least 0.99"),
        (("auto-scaling",), "up to 36 %"),
        (("SLO attainment, 40 requests", "appendix"), "up to 5 times"),
        (("best worker, Llama-2-7B", "Table 3"), "1"),
        (("Oracle over AccelGen",), "+6 % (tokens/s +12 %, JCT -22 %)"),
        (("V100", "(Fig. 10)"), "no figure in the text"),
        (("Llama-2-70B", "(Fig. 9)"), "up to 40 %"),
        (("normal requests",), "at most +4.5 % (rerun +3 %)"),
    ],
)
def test_headline_figures_have_a_row(words, published):
    assert published in [row[1] for row in rows_with(*words)]


def test_priorities_cost_normal_requests_no_more_than_the_paper_says():
    assert [row[4] for row in rows_with("normal requests")] == ["yes"]


@pytest.mark.parametrize("requests", ["400 requests", "600 requests"])
def test_the_length_of_fastserves_run_is_part_of_the_claim(requests):
    assert rows_with("rate at equal", requests)


def rows_with(*words: str) -> list[list[str]]:
    return [row for row in claims() if all(word in row[0] for word in words)]


@pytest.mark.parametrize("paper", ["AccelGen over Sarathi, 8/s", "vLLM over Orca"])
def test_throughput_stands_by_both_metrics(paper):
    assert rows_with("tokens/s in the span", paper)
    assert rows_with("tokens/s to the last token", paper)


def test_the_reason_of_equal_tokens_is_given_for_the_last_token_only():
    reasoned = [row for row in claims() if "the same tokens in the same KV" in row[-1]]

    assert [row[0] for row in reasoned] == [
        "tokens/s to the last token, AccelGen over Sarathi, 8/s, "
        f"{count} requests (Fig. 11a)"
        for count in (300, 600)
    ]


def test_table_1_of_alise_is_quoted_at_the_rates_of_its_slides():
    table_1 = rows_with("tokens/s", "(Table 1)")

    assert {"2/s", "30/s"} <= {word for row in table_1 for word in row[0].split()}
    for row in table_1:
        theirs = "ShareGPT, 2/s" in row[0] or "Alpaca, 30/s" in row[0]
        assert theirs != (", at " in row[1])


def test_compute_use_and_goodput_are_as_the_paper_defines_them():
    assert len(rows_with("GPU compute use", "Fig. 3b", "prompt-heavy")) == 4
    assert rows_with("GPU compute use", "Fig. 11e")
    assert 'Its goodput is "with T = 1 s"' in PAGE
    assert 'FastServe is "built on Orca"' in PAGE


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "papers_sarathi",
        "papers_fastserve",
        "papers_llumnix",
        "papers_distserve",
        "papers_splitwise",
    ],
)
def test_a_section_is_what_its_command_writes(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "studies"))

    section = import_module(name).section()

    assert section in PAGE


def test_it_is_told_where_aladdin_saves_nothing():
    assert "inf is more than 32 workers at every theta" in " ".join(PAGE.split())
