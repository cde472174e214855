"""The shipped sums of kernels can be listed, and made again where the package is."""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from capplan.latency.catalog import list_profiles
from capplan.latency.profile_file import load_profile

EXAMPLE = Path(__file__).parents[2] / "examples" / "studies" / "kernel_profiles.py"


def run(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["kernel_profiles.py", *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")


def test_every_listed_llm_is_shipped(monkeypatch, capsys):
    shipped = {listed.llm for listed in list_profiles()}

    run(monkeypatch)

    printed = capsys.readouterr().out.splitlines()
    listed = {line.split(" on ")[0] for line in printed}
    assert listed
    assert listed <= shipped


def test_without_the_package_it_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    run(monkeypatch, "--out", str(tmp_path))

    assert "No aiconfigurator-core" in capsys.readouterr().out


@pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is absent"
)
@pytest.mark.parametrize("llm", ["gpt-oss-20b", "Qwen3-32B-FP8"])
def test_a_profile_made_again_is_the_shipped_one(monkeypatch, tmp_path, llm):
    run(monkeypatch, "--out", str(tmp_path), "--llm", llm, "--gpu", "H200-SXM")

    made = sorted(path for path in tmp_path.rglob("*.yaml"))
    shipped = {listed[:3]: listed.path for listed in list_profiles()}
    assert [path.stem for path in made] == ["tp1", "tp2", "tp4", "tp8"]
    for path in made:
        profile = load_profile(path)
        assert shipped["H200-SXM", llm, profile.tp].read_text() == path.read_text()
