"""docs/internals/money.md names what catches each pitfall; each is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_that_the_pitfalls_name_exists():
    text = (ROOT / "docs/internals/money.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    files = (ROOT / "tests").rglob("test_*.py")

    there = {
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M)
    }

    assert len(named) > 25
    assert named - there == set()


def test_every_column_of_offers_is_told():
    from capplan.fleet.offers_file import COLUMNS

    text = (ROOT / "docs/guides/money.md").read_text(encoding="utf-8")

    assert [name for name in COLUMNS if f"`{name}`" not in text] == []
