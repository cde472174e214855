"""Errors of estimates: the table is made from the profiles and stands in the docs."""

import re
import warnings
from pathlib import Path

import pytest

from capplan.errors import CapplanWarning

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
def test_the_nearer_the_source_the_smaller_the_error_and_the_docs_say_so(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "studies"))
    from estimate_errors import table

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapplanWarning)
        text = table()

    assert text in (ROOT / "docs/internals/latency.md").read_text(encoding="utf-8")
    rms = {}
    for line in text.splitlines()[2:]:
        kind, *cells = line.strip("| ").split(" | ")
        rms[kind.partition(" (")[0]] = [
            int(re.search(r"\((\d+)\)", cell)[1]) for cell in cells
        ]
    near, other = rms["another GPU, same architecture"], rms["another architecture"]
    for phase in range(3):
        assert rms["between TP degrees"][phase] < 12
        assert near[phase] < 12
        assert near[phase] < other[phase] < 25
