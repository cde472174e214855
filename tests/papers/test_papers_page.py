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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["papers_sarathi", "papers_fastserve"])
def test_a_section_is_what_its_command_writes(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))

    section = import_module(name).section()

    assert section in PAGE
