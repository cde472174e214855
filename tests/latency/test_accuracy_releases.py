"""The accuracy of each group beside that of the release before."""

import re
from pathlib import Path

import pytest
from accuracy_releases import beside, figures_of, grown, last_release

DOCS = Path(__file__).parents[2] / "docs"
KEY = "an LLM", "a GPU", "vllm", "a source"
PAGE = """before
| LLM | GPU | engine | source | by | runs | TPOT | users at 1.25× |
|---|---|---|---|---|---|---|---|
| an LLM | a GPU | vllm | a source | kernel-sum | 3 | 1.10 | 0.9 |
| a new LLM | a GPU | vllm | a source | kernel-sum | 3 | 0.90 | – |

| another | table |
"""


def test_no_groups_error_grew_without_a_line_in_the_changes():
    _, before = last_release()
    now = figures_of((DOCS / "internals" / "accuracy.md").read_text(encoding="utf-8"))
    changes = (DOCS / "changes" / "unreleased.md").read_text(encoding="utf-8")

    assert len(now.keys() & before.keys()) > 100
    assert [one for one in grown(now, before) if str(one) not in changes] == []


def test_the_page_has_the_last_releases_figures():
    page = (DOCS / "internals" / "accuracy.md").read_text(encoding="utf-8")

    assert beside(page, *last_release()) == page


def test_the_readers_page_states_what_the_page_of_all_figures_found():
    told = (DOCS / "sure/accuracy.md").read_text(encoding="utf-8")
    found = (DOCS / "internals/accuracy.md").read_text(encoding="utf-8")

    rows = re.findall(
        r"^\| ([^|(]*) \((\d+)[^|]*\| (\d+) % \| (?:× ([\d.]+) \| (\d+) %)?", told, re.M
    )

    assert len(rows) == 5
    for name, count, within, width, inside in rows:
        short = {"NVIDIA, all engines": "NVIDIA"}.get(name, name.split()[-1])
        short = {"vLLM": name.partition(",")[0]}.get(short, short)
        stated = f"{short} {within}% of {count}", f"{within}% of {count}"
        assert (
            stated[0] in found or f"| {stated[1]}" in found or f"; {stated[1]}" in found
        )
        assert not width or f"{inside}% × {width}" in found


@pytest.mark.parametrize(
    ("before", "now", "is_grown"),
    [
        ("1.02", "1.08", True),
        ("1.02", "1.07", False),
        ("0.98", "0.92", True),
        ("1.10", "0.90", False),  # as far off on the other side
        ("–", "2.00", False),
    ],
)
def test_an_error_has_grown_by_more_than_five_points(before, now, is_grown):
    found = grown({KEY: now}, {KEY: before})

    assert [str(one) for one in found] == ["an LLM on a GPU, vllm"] * is_grown


def test_a_release_stands_behind_todays_figure_and_replaces_the_one_before():
    first = beside(PAGE, "0.3.0", {KEY: "1.04"})

    assert "| TPOT | TPOT, 0.3.0 | users at 1.25× |" in first
    assert "| 3 | 1.10 | 1.04 | 0.9 |" in first
    assert "| 3 | 0.90 | – | – |" in first
    assert "| another | table |" in first
    second = beside(first, "0.4.0", {KEY: "1.10"})
    assert second == first.replace("0.3.0", "0.4.0").replace("1.04", "1.10")
    assert figures_of(second) == figures_of(PAGE)
