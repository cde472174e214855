"""The example prints a table of bounds and simulated plans."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "studies" / "bound_quality.py"


@pytest.mark.slow
def test_the_example_prints_bounds_below_what_was_simulated(monkeypatch, capsys):
    options = ["--requests", "5000", "--workload", "azure-conv-like", "--tpot-ms", "30"]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options])

    runpy.run_path(str(EXAMPLE), run_name="__main__")

    heading, _, row = capsys.readouterr().out.strip().splitlines()
    cells = dict(zip(heading.split(" | "), row.split(" | "), strict=True))
    bound = int(cells["bound"].split()[0])
    assert 1 < bound <= int(cells["best simulated"])
    assert bound <= int(cells["all answered"]) <= int(cells["best simulated"])
