"""The shipped profiles of ranks can be listed, and made again where the package is."""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from capplan.latency.catalog import rank_profiles
from capplan.shipped import shipped

STUDIES = Path(__file__).parents[2] / "examples" / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["rank_profiles.py", *arguments])
        runpy.run_path(str(STUDIES / "rank_profiles.py"), run_name="__main__")

    yield run
    sys.modules.pop("kernel_profiles", None)


def test_every_listed_llm_is_shipped_on_each_gpu_but_where_it_was_left_out(
    study, capsys
):
    study()

    printed = capsys.readouterr().out.splitlines()
    listed = {line.split(" on ")[0] for line in printed}
    folders = {path.parts[-2] for path in shipped("profiles").glob("*/*/*ep*.yaml")}
    assert listed
    assert listed <= folders
    assert folders <= listed


def test_deepep_is_not_asked_for_across_nodes(study, capsys):
    study("--gpu", "GB200")

    wide = [line for line in capsys.readouterr().out.splitlines() if "dp16" in line]
    assert wide
    assert not any("deepep" in line for line in wide)


def test_without_the_package_it_says_so(study, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    study("--out", str(tmp_path))

    assert "No aiconfigurator-core" in capsys.readouterr().out


@pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is absent"
)
def test_a_profile_made_again_is_the_shipped_one(study, tmp_path):
    study("--out", str(tmp_path), "--llm", "gpt-oss-120b", "--gpu", "H200-SXM")

    made = {path.name: path.read_text() for path in tmp_path.rglob("*.yaml")}
    folder = shipped("profiles") / "H200-SXM" / "gpt-oss-120b"
    assert set(made) == {
        path.name
        for path in folder.glob("*.yaml")
        if "ep" in path.name or "dp" in path.name
    }
    for name, text in made.items():
        assert (folder / name).read_text() == text, name
    assert len(list(rank_profiles(gpu="H200", llm="gpt-oss-120b"))) == len(made)
