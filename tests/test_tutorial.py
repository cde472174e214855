"""The tutorial works: its files are written, its commands run, its outputs come."""

import re
from pathlib import Path

import pytest

from capplan.cli.main import exit_code

TUTORIAL = Path(__file__).parents[1] / "docs/how/tutorial_scheduler.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_every_block_of_the_tutorial_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(TUTORIAL.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks].count("python") == 3

    shown = ""
    for kind, text in blocks:
        if kind == "python":
            (tmp_path / "mine.py").write_text(text)
        elif kind == "sh":
            for line in text.splitlines():
                exit_code(line.split()[1:])
            shown = "".join(capsys.readouterr())
        else:
            assert kind == "text"
            for line in text.splitlines():
                assert line in shown
