"""The pages of the site: their links lead to where each file is in it."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GATHER = runpy.run_path(str(ROOT / "docs" / "gather.py"))
linked, pages = GATHER["linked"], GATHER["pages"]


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](../sure/risk.md#spare-nodes)", "[a](../sure/risk.md#spare-nodes)"),
        ("[a](../../reports/README.md)", "[a](../repository/reports/README.md)"),
        ("[`a`](../../capplan/errors.py)", "`a`"),
        ("[a](../none.md)", "[a](../none.md)"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_is_its_text(link, expected):
    assert linked(link, "docs/guides/money.md", pages(), None) == expected


def test_a_link_to_source_leads_to_the_repository_where_one_is_told():
    link = "[errors](../../capplan/errors.py)"

    found = linked(link, "docs/guides/money.md", pages(), "https://example.org/main")

    assert found == "[errors](https://example.org/main/capplan/errors.py)"


def test_a_copied_page_links_back_to_the_docs():
    text = linked("[a](docs/sure/risk.md)", "CONTRIBUTING.md", pages(), None)

    assert text == "[a](../sure/risk.md)"


def runs_of_prose(text: str) -> list[int]:
    """Return the lines of prose between a table, code or picture and the next one."""
    runs, is_code = [0], False
    for line in text.splitlines():
        is_fence = line.startswith("```")
        is_code ^= is_fence
        if is_fence or is_code or line.startswith(("|", "![", "    ")):
            runs.append(0)
        elif line:
            runs[-1] += 1
    return runs


READ = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.parent.name not in ("internals", "changes")
]


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_a_page_shows_something_on_every_two_screens(path):
    assert max(runs_of_prose(path.read_text(encoding="utf-8"))) <= 40  # of 130 letters
