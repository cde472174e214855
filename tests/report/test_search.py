"""A comparison of TP degrees says why, and what could not be compared."""

import io

from rich.console import Console

from capplan.planning.configuration import Excluded
from capplan.planning.search import Search, TpRow, TpSearch
from capplan.report.write_search import print_search

GOOD = TpRow("H100-SXM", 4, 900, 2000.0, 600, 3000.0, 2000.0, 600, 0.05, "KV", 0.4)
BAD = TpRow(
    "L40S", 1, 0, 0.0, 0, 0.0, 0.0, 0, float("nan"), "", None, "it does not fit"
)


def printed(found):
    text = io.StringIO()
    excluded = (Excluded("A100", 1, "no profile"),)
    search = Search("Llama", "a trace", found, excluded, {"H100-SXM TP 4": "measured"})
    print_search(search, Console(file=text, width=120, highlight=False))
    return text.getvalue()


def test_the_choice_stands_first_and_every_reason_is_said():
    text = printed(TpSearch((GOOD, BAD), GOOD, GOOD, {}, "because", 500.0, 0.05))

    assert text.startswith("H100-SXM TP 4   Llama\nbecause\n")
    assert "L40S TP 1: it does not fit" in text
    assert "A100 TP 1: no profile" in text
    assert "latency: measured" in text


def test_a_row_that_cannot_serve_shows_dashes_and_no_zero():
    text = printed(TpSearch((BAD,), None, None, {}, "none can serve", 500.0, 0.05))

    row = next(line for line in text.splitlines() if line.strip().startswith("L40S"))
    assert text.startswith("None can serve Llama.")
    assert row.split()[2:] == ["–"] * 7
