"""docs/guides/exports.md: its commands run, and its tables are those of the targets."""

import re
from pathlib import Path

import pytest

from capplan.cli.main import exit_code
from capplan.report.exports import TARGETS, exported
from tests.report.exports.plans import one_pool, two_pools, written
from tests.report.exports.test_targets import APART

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/guides/exports.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:yaml)?\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.thorough
def test_the_commands_write_the_lines_that_are_shown(tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    commands, shown = BLOCKS

    for line in commands.splitlines():
        assert exit_code(line.split()[1:]) == 0

    lines = iter((tmp_path / "deploy" / "k8s.yaml").read_text().splitlines())
    for line in shown.splitlines():
        assert line in lines  # in this order


@pytest.mark.parametrize("target", TARGETS)
def test_the_table_names_the_files_of_each_target(target, tmp_path):
    (row,) = re.findall(rf"^\| `{target}` \|(.*)$", PAGE, re.MULTILINE)
    cells = row.split("|")

    texts, _ = exported(written(one_pool(), tmp_path), target)

    assert re.findall("`(.*?)`", cells[0]) == list(texts)
    assert ("yes" in cells[3]) == (target in APART)


@pytest.mark.parametrize("target", APART)
def test_the_targets_of_two_pools_are_those_that_take_them(target, tmp_path):
    assert exported(written(two_pools(), tmp_path), target)
