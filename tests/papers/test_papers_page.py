"""docs/papers.md is what its command writes, and explains what does not come out."""

from importlib import import_module
from pathlib import Path

import pytest

from capplan.simulator.schedulers import SCHEDULERS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text()


def claims() -> list[list[str]]:
    """Return the rows of the tables of claims, as cells."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines()]
    return [row for row in rows if {"yes", "**no**"} & set(row)]


def test_the_page_names_every_scheduler():
    missing = [name for name in SCHEDULERS if f"`{name}`" not in PAGE]

    assert missing == []


def test_a_claim_outside_its_band_has_its_reason():
    outside = [row for row in claims() if "**no**" in row]

    assert len(claims()) >= 40
    assert outside
    assert [row for row in outside if row[-1] == "**no**"] == []


def rows_with(*words: str) -> list[list[str]]:
    return [row for row in claims() if all(word in row[0] for word in words)]


@pytest.mark.parametrize("paper", ["AccelGen over Sarathi, 8/s", "vLLM over Orca"])
def test_throughput_stands_by_both_metrics(paper):
    assert rows_with("tokens/s in the span", paper)
    assert rows_with("tokens/s to the last token", paper)


def test_the_reason_of_equal_tokens_is_given_for_the_last_token_only():
    reasoned = [row for row in claims() if "the same tokens in the same KV" in row[-1]]

    assert [row[0] for row in reasoned] == [
        "tokens/s to the last token, AccelGen over Sarathi, 8/s (Fig. 11a)"
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


@pytest.mark.parametrize("share", ["100%", "99%"])
@pytest.mark.parametrize("other", ["JSQ", "power of two"])
def test_aladdin_needs_fewer_decode_workers_at_some_rate(other, share):
    (row,) = rows_with(f"than {other},", share, "(Fig. 12)")

    assert row[3] == "14 to 60 %"
    assert "yes" in row


def test_it_is_told_where_aladdin_saves_nothing():
    assert "inf is more than 32 workers at every theta" in PAGE
