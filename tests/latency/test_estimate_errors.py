"""The table of the estimates' errors can be printed from a checkout alone."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "studies" / "estimate_errors.py"


def rms_of(text: str) -> dict[tuple[str, str], float]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if "%" in line]
    return {(row[0], row[1]): float(row[-1].rstrip("%")) for row in rows}


@pytest.mark.slow
def test_the_nearer_the_source_the_smaller_the_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["estimate_errors.py"])

    runpy.run_path(str(EXAMPLE), run_name="__main__")

    rms = rms_of(capsys.readouterr().out)
    near, other = "another GPU, same architecture", "another architecture"
    for phase in ("decode", "prefill", "mixed"):
        assert rms["between TP degrees", phase] < 12
        assert rms[near, phase] < 12
        assert rms[near, phase] < rms[other, phase] < 25
