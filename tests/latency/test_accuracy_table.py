"""The accuracy table can be printed from a checkout alone."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "studies" / "accuracy_table.py"


def rows(text: str) -> dict[str, list[str]]:
    cells = [line.strip("|").split("|") for line in text.splitlines() if "%" in line]
    return {
        cell[0].rpartition("(")[0].strip(): [part.strip() for part in cell[1:]]
        for cell in cells
    }


@pytest.mark.thorough
def test_the_table_shows_what_the_shipped_profiles_recorded(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["accuracy_table.py"])

    runpy.run_path(str(EXAMPLE), run_name="__main__")

    printed = capsys.readouterr().out
    table = rows(printed)
    assert "No --data" in printed
    for phase in ("prefill", "decode", "mixed"):
        median, worst, target = table[f"shipped profiles, dense, {phase}"]
        aims = [float(part.strip(" %")) for part in target.split("/")]
        assert float(median.rstrip("%")) <= aims[0]
        assert float(worst.rstrip("%")) <= aims[1]
    page = (EXAMPLE.parents[2] / "docs/internals/latency.md").read_text(
        encoding="utf-8"
    )
    told = {
        "dense": "all shipped kernel sums, dense but the next (309)",
        "Gemma-4-31B": "Gemma-4-31B (13), beyond the target in decode",
        "mixtures of experts": "mixtures of experts (332), prefill / decode / mixed",
    }
    for kind, name in told.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {name}")]
        figures = [float(x) for x in re.findall(r"\d+\.\d", line)]
        printed = [
            float(table[f"shipped profiles, {kind}, {phase}"][column].rstrip("%"))
            for column in (0, 1)
            for phase in ("prefill", "decode", "mixed")
        ]
        assert figures == pytest.approx(printed, abs=0.06)


def test_tables_that_are_not_there_are_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["accuracy_table.py", "--data", str(tmp_path)])

    runpy.run_path(str(EXAMPLE), run_name="__main__")

    printed = capsys.readouterr().out
    for name in ("vllm_kernel_sum.csv.gz", "splitwise_llama2_70b.csv", "memory.csv"):
        assert f"{name} is absent" in printed
