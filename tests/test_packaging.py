"""What the package declares, installs and says of itself."""

import ast
import re
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from capplan.cli.main import exit_code

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
MODULES = {"pyyaml": "yaml"}
"""Packages whose module has another name."""
BY_OTHERS = {"markupsafe", "hatchling"}
"""Packages that others bring: Jinja2 is built on MarkupSafe, wheels by Hatchling."""


def names(requirements):
    return {re.split(r"[<>=~!\[ ]", text)[0] for text in requirements}


def imported():
    """Return the packages that some file of capplan imports."""
    found = set()
    for path in (ROOT / "capplan").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"capplan"}


def test_every_dependency_is_imported_and_every_import_is_declared():
    declared = {MODULES.get(name, name) for name in names(PROJECT["dependencies"])}
    extras = {
        MODULES.get(name, name)
        for extra, required in PROJECT["optional-dependencies"].items()
        if extra != "dev"
        for name in names(required)
    }

    found = imported()

    assert declared - found == set()
    # aiconfigurator's tables come as a package of data, asked for by a message.
    undeclared = {each for each in found - declared - extras - BY_OTHERS}
    assert undeclared <= {"aiconfigurator_core", "aiconfigurator"}


def test_a_wheel_is_compiled_with_what_it_will_run_with():
    wheel = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert set(wheel["hooks"]["custom"]["dependencies"]) < set(PROJECT["dependencies"])


@pytest.mark.parametrize("package", ["highspy", "plotly", "tokenizers"])
def test_what_few_need_is_no_dependency_of_the_core(package):
    assert package not in names(PROJECT["dependencies"])


def test_without_tokenizers_the_message_says_which_extra_to_install(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "t.json").write_text(
        '[{"conversations": [{"from": "human", "value": "a"},'
        ' {"from": "gpt", "value": "b"}]}]'
    )

    code = exit_code(
        [
            *("search", "--trace", str(tmp_path / "t.json"), "--slo", "tpot=30ms"),
            *("--llm", "Llama-3.1-8B", "--gpu", "H100-SXM"),
            *("--tokenizer", str(tmp_path / "tokenizer.json")),
        ]
    )

    said = capsys.readouterr().err
    assert code == 2
    assert "pip install 'capplan[tokenizer]'" in said
    assert "tokenizer" in PROJECT["optional-dependencies"]


def test_the_classifiers_name_every_python_from_the_floor_on():
    listed = [
        text.rpartition(" ")[2]
        for text in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
    ]

    assert listed == [f"3.{minor}" for minor in range(11, 15)]
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "docs" / "CITATION.cff").read_text())

    assert cited["version"] == PROJECT["version"]
    assert cited["license"] == PROJECT["license"]
    assert cited["authors"] == PROJECT["authors"]


def test_the_documents_say_what_the_core_weighs_and_what_pulp_is_for():
    told = (ROOT / "docs/reference/commands.md").read_text()

    assert re.search(r"\d+ MB", told)
    assert "pulp" in (ROOT / "docs/how/placement.md").read_text().lower()
    assert "capplan[tokenizer]" in told


MOST_MB = 740
"""What the core may weigh, pip and setuptools included. [10⁶ bytes]"""


def closure(requirements):
    """Return the installed distributions that requirements need, without extras."""
    found, waiting = {}, [Requirement(text) for text in requirements]
    while waiting:
        asked = waiting.pop()
        if asked.marker and not asked.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(asked.name)
        if name not in found:
            found[name] = distribution(name)
            waiting += [Requirement(text) for text in found[name].requires or ()]
    return found


def test_the_core_weighs_less_than_it_may_and_about_what_the_documents_say():
    told = (ROOT / "docs/reference/commands.md").read_text()
    told_mb = int(re.search(r"The core takes (\d+) MB", told).group(1))

    installed = closure(PROJECT["dependencies"])
    paths = {
        path.locate()
        for each in installed.values()
        for path in each.files or ()
        if path.suffix != ".pyc"  # compiled when first imported, or not
    }
    found_mb = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6

    assert found_mb < told_mb <= MOST_MB
    assert found_mb > 0.7 * told_mb
    assert "plotly" not in installed
    assert "highspy" not in installed
